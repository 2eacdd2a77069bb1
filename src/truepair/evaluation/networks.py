"""Retrieval results of trained networks on a split: each network alone, and all together."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from truepair.evaluation.calibration import BOUND, Calibration, calibrate
from truepair.evaluation.encoding import encode_split, evaluating
from truepair.evaluation.protocols import evaluate, find_protocol, mean_retrieval
from truepair.evaluation.similarity import MEMORY_LIMIT, matcher_scorer, mean_scorer, similarity_matrix
from truepair.evaluation.two_stage import matcher_stages, two_stage_ranks
from truepair.matchers.base import ImageCodes, Matcher, TextCodes
from truepair.pairs.batch import BatchReader

CALIBRATED_IMAGES = 1000


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
    with evaluating(*networks):
        codes = _encoded(networks, reader)
        scorers = [matcher_scorer(network, *both) for network, both in zip(networks, codes, strict=True)]
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


def evaluate_two_stage(
    networks: Sequence[Matcher],
    reader: BatchReader,
    calibration: Calibration,
    protocol: str = "f30k",
    memory_limit: int = MEMORY_LIMIT,
    *,
    shown: bool = True,
) -> dict[str, Any]:
    """The same from shortlists, which all networks share; and how long these were and how many pairs were scored."""
    pairs, chosen = reader.pairs, find_protocol(protocol)
    results, listed, everything, size = [], 0, 0, calibration.size
    with evaluating(*networks):
        stages = matcher_stages(networks, _encoded(networks, reader))
        for images, texts, own in chosen.parts(pairs.image_of, pairs.n_images):
            size = calibration.size_for(len(images), len(texts))
            found = two_stage_ranks(stages.take(images, texts), own, size, memory_limit, shown=shown)
            results.append([ranks.retrieval() for ranks in found.ranks])
            listed, everything = listed + found.listed, everything + len(images) * len(texts)
    scorers = [asdict(mean_retrieval(folds)) for folds in zip(*results, strict=True)]
    return {
        "networks": scorers[: len(networks)],
        "ensemble": scorers[-1],
        "two_stage": {
            "images_per_text": size.images,
            "texts_per_image": size.texts,
            "scored": listed / everything,
            "calibration": {**asdict(calibration), "size": list(calibration.size)},
        },
    }


def calibrate_networks(
    networks: Sequence[Matcher],
    reader: BatchReader,
    bound: float = BOUND,
    memory_limit: int = MEMORY_LIMIT,
    *,
    shown: bool = True,
) -> Calibration:
    """Shortlists that serve every network and the ensemble, by all scores of at most 1,000 images with their texts."""
    images = np.arange(min(reader.pairs.n_images, CALIBRATED_IMAGES))
    texts = np.flatnonzero(reader.pairs.image_of < len(images))
    with evaluating(*networks):
        codes = _encoded(networks, reader)
        scorers = [
            matcher_scorer(n, *both).take(images, texts) for n, both in zip(networks, codes, strict=True)
        ]
        exact = [similarity_matrix(scorer, memory_limit, shown=shown) for scorer in scorers]
        stages = matcher_stages(networks, codes).take(images, texts)
    exact += [np.mean(exact, axis=0)] if len(exact) > 1 else []
    return calibrate(stages, exact, reader.pairs.image_of[texts], bound, memory_limit=memory_limit)


def _encoded(networks: Sequence[Matcher], reader: BatchReader) -> list[tuple[ImageCodes, TextCodes]]:
    return [encode_split(network, reader, next(network.parameters()).device) for network in networks]
