"""Retrieval results of trained networks on a split: each network alone, and all together."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truepair.evaluation.calibration import BOUND, Calibration, calibrate
from truepair.evaluation.encoding import encode_split, evaluating
from truepair.evaluation.first_stage import FirstStage, crossed, features, logits
from truepair.evaluation.protocols import evaluate, find_protocol, mean_retrieval
from truepair.evaluation.recall import Integers
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


@dataclass(frozen=True)
class Shortlists:
    """How long shortlists are, and what makes them: fitted vectors, or the networks' global ones (None)."""

    calibration: Calibration
    first_stage: FirstStage | None


def evaluate_two_stage(
    networks: Sequence[Matcher],
    reader: BatchReader,
    shortlists: Shortlists,
    protocol: str = "f30k",
    memory_limit: int = MEMORY_LIMIT,
    *,
    shown: bool = True,
) -> dict[str, Any]:
    """The same from shortlists, which all networks share; and how long these were and how many pairs were scored."""
    pairs, chosen = reader.pairs, find_protocol(protocol)
    calibration, first = shortlists.calibration, shortlists.first_stage
    results, listed, everything, size = [], 0, 0, calibration.size
    with evaluating(*networks):
        codes = _encoded(networks, reader)
        vectors = None
        if first is not None:
            images, texts = first.vectors(*features(networks, codes))
            vectors = torch.from_numpy(images), torch.from_numpy(texts)
        stages = matcher_stages(networks, codes, vectors)
        for rows, columns, own in chosen.parts(pairs.image_of, pairs.n_images):
            size = calibration.size_for(len(rows), len(columns))
            found = two_stage_ranks(stages.take(rows, columns), own, size, memory_limit, shown=shown)
            results.append([ranks.retrieval() for ranks in found.ranks])
            listed, everything = listed + found.listed, everything + len(rows) * len(columns)
    scorers = [asdict(mean_retrieval(folds)) for folds in zip(*results, strict=True)]
    return {
        "networks": scorers[: len(networks)],
        "ensemble": scorers[-1],
        "two_stage": {
            "first_stage": "global vectors" if first is None else "fitted vectors",
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
) -> Shortlists:
    """Shortlists that serve every network and the ensemble, by all scores of at most 1,000 images with their texts.

    Global vectors and fitted ones are tried (those on pairs their fit has not seen); the shorter lists are taken.
    """
    images = np.arange(min(reader.pairs.n_images, CALIBRATED_IMAGES))
    texts = np.flatnonzero(reader.pairs.image_of < len(images))
    owners = reader.pairs.image_of[texts]
    with evaluating(*networks):
        codes = [(i.take(_rows(images, i)), t.take(_rows(texts, t))) for i, t in _encoded(networks, reader)]
        scorers = [matcher_scorer(network, *both) for network, both in zip(networks, codes, strict=True)]
        exact = [similarity_matrix(scorer, memory_limit, shown=shown) for scorer in scorers]
        stages = matcher_stages(networks, codes)
        seen = features(networks, codes)
    mean = np.mean(exact, axis=0)
    target = logits(mean) if all(network.has_sigmoid for network in networks) else mean
    exact += [mean] if len(exact) > 1 else []
    by_vectors = calibrate(stages, exact, owners, bound, memory_limit=memory_limit)
    if len(images) < 2:
        return Shortlists(by_vectors, None)
    unseen = crossed(*seen, target, owners)
    predicted = replace(stages, rough=lambda rows, columns: unseen[rows][:, columns])
    by_fit = calibrate(predicted, exact, owners, bound, memory_limit=memory_limit)
    if by_vectors.share <= by_fit.share:
        return Shortlists(by_vectors, None)
    return Shortlists(by_fit, FirstStage.fit(*seen, target))


def _rows(rows: Integers, codes: ImageCodes | TextCodes) -> Tensor:
    return torch.from_numpy(rows).to(codes.vectors.device)


def _encoded(networks: Sequence[Matcher], reader: BatchReader) -> list[tuple[ImageCodes, TextCodes]]:
    return [encode_split(network, reader, next(network.parameters()).device) for network in networks]
