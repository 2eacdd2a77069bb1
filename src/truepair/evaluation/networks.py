"""Retrieval results of trained networks on a split: each network alone, and all together."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from truepair.evaluation.encoding import encode_split, evaluating
from truepair.evaluation.protocols import evaluate
from truepair.evaluation.similarity import MEMORY_LIMIT, matcher_scorer, mean_scorer, similarity_matrix
from truepair.matchers.base import Matcher
from truepair.pairs.batch import BatchReader


def evaluate_networks(
    networks: Sequence[Matcher],
    reader: BatchReader,
    protocol: str = "f30k",
    memory_limit: int = MEMORY_LIMIT,
    *,
    shown: bool = True,
) -> dict[str, Any]:
    """Recalls of every network, and of the ensemble: the mean of their similarities.

    Matrices are kept and averaged while they all fit into the memory limit; otherwise every block is scored
    anew for the ensemble.
    """
    image_of = reader.pairs.image_of
    scorers = []
    with evaluating(*networks):
        for network in networks:
            device = next(network.parameters()).device
            scorers.append(matcher_scorer(network, *encode_split(network, reader, device)))
        if (len(networks) + 1) * reader.pairs.n_images * len(image_of) * 4 <= memory_limit:
            matrices = [similarity_matrix(scorer, memory_limit, shown=shown) for scorer in scorers]
            alone = [evaluate(matrix, image_of, protocol) for matrix in matrices]
            together = (
                evaluate(np.mean(matrices, axis=0), image_of, protocol) if len(matrices) > 1 else alone[0]
            )
        else:
            alone = [evaluate(scorer, image_of, protocol, memory_limit, shown=shown) for scorer in scorers]
            ensemble = mean_scorer(scorers)
            together = (
                evaluate(ensemble, image_of, protocol, memory_limit, shown=shown)
                if len(scorers) > 1
                else alone[0]
            )
    return {"networks": [asdict(result) for result in alone], "ensemble": asdict(together)}
