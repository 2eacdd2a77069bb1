"""Measuring networks on a split: each alone, and all together."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from truepair.evaluation.encoding import encode_split
from truepair.evaluation.recall import recall
from truepair.matchers.base import Matcher
from truepair.pairs.batch import BatchReader
from truepair.training.run import evaluating


@dataclass(frozen=True)
class Validation:
    """A split to choose the best epoch by."""

    reader: BatchReader

    def measure(self, networks: Sequence[Matcher]) -> dict[str, Any]:
        """Recalls of every network, and of the ensemble: the mean of their similarities."""
        similarities = []
        for network in networks:
            device = next(network.parameters()).device
            with evaluating(network):
                images, texts = encode_split(network, self.reader, device)
                similarities.append(network.similarity(images, texts).float())
        image_of = self.reader.pairs.image_of
        return {
            "networks": [asdict(recall(similarity, image_of)) for similarity in similarities],
            "ensemble": asdict(recall(torch.stack(similarities).mean(0), image_of)),
        }
