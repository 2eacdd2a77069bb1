"""What a suspect pair should have been: the best other image for its text and the best other text for its image."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truepair.beliefs.canonical import Agreement
from truepair.beliefs.null import mismatch_probability
from truepair.beliefs.witness import Witness
from truepair.pairs.core import Pairs

Index = NDArray[np.int64]
Vector = NDArray[np.float64]

COMPARISONS = 2e9
"""Agreements to look at, at most. Larger data get proposals for the strongest suspects only."""
ENOUGH = 50
"""Pairs of a kind needed to learn how the best other partners score."""
_BLOCK = 512


@dataclass(frozen=True, eq=False)
class Best:
    """The best other partner of every pair. rows: n, -1 where none was looked for. scores: n, -inf there."""

    rows: Index
    scores: Vector


def best_partners(pairs: Pairs, witness: Witness, probability: Vector) -> tuple[Best, Best]:
    """For every pair the best other text of its image, and the best other image of its text.

    Each is chosen by the model that knows neither this image nor its texts. probability: n, of being mismatched;
    the strongest suspects come first where the data are too large to look at all.
    """
    most = int(COMPARISONS // max(pairs.n_images, len(pairs)))
    asked = np.argsort(-probability, kind="stable")[: max(most, 1)]
    texts, images = (
        Best(np.full(len(pairs), -1, dtype=np.int64), np.full(len(pairs), -np.inf)) for _ in range(2)
    )
    fold = witness.fold[pairs.image_of]
    paired, place = np.unique(pairs.image_of, return_inverse=True)
    for k in range(len(witness.models)):
        rows = np.sort(asked[fold[asked] == k])
        if not len(rows):
            continue
        image_codes = witness.image_codes(pairs, np.arange(pairs.n_images), k)
        text_codes = witness.text_codes(pairs, np.arange(len(pairs)), k)
        by_text = Agreement(image_codes, text_codes[rows])
        _best_images(by_text, pairs.image_of[rows], rows, images)
        by_image = Agreement(text_codes, image_codes[paired[np.unique(place[rows])]])
        _best_texts(by_image, place, np.unique(place[rows]), rows, texts)
    return texts, images


def _best_images(agreement: Agreement, own: Index, rows: Index, found: Best) -> None:
    for start in range(0, len(rows), _BLOCK):
        part = np.arange(start, min(start + _BLOCK, len(rows)))
        scores = agreement.all(part)
        scores[np.arange(len(part)), own[part]] = -np.inf
        best = scores.argmax(1)
        found.rows[rows[part]] = best
        found.scores[rows[part]] = scores[np.arange(len(part)), best]


def _best_texts(agreement: Agreement, place: Index, images: Index, rows: Index, found: Best) -> None:
    """images: the distinct images of the rows, as places among the paired ones."""
    order = np.argsort(place, kind="stable")
    first = np.searchsorted(place[order], images, side="left")
    last = np.searchsorted(place[order], images, side="right")
    best, best_score = np.zeros(len(images), dtype=np.int64), np.zeros(len(images))
    for start in range(0, len(images), _BLOCK):
        part = np.arange(start, min(start + _BLOCK, len(images)))
        scores = agreement.all(part)
        for line, image in enumerate(part):
            scores[line, order[first[image] : last[image]]] = -np.inf
        best[part] = scores.argmax(1)
        best_score[part] = scores.max(1)
    at = np.searchsorted(images, place[rows])
    there = np.isfinite(best_score[at])
    found.rows[rows] = np.where(there, best[at], -1)
    found.scores[rows] = best_score[at]


def proposal_confidence(best: Best, probability: Vector) -> Vector:
    """How sure it is that each pair is wrong and its best other partner right, n.

    The best other partner of a matched pair is wrong: their scores are a null. How much better the best other
    partners of mismatched pairs score tells how many of those are right, and which.
    """
    there = best.rows >= 0
    wrong, right = there & (probability > 0.9), there & (probability < 0.1)
    confidence = np.zeros(len(probability))
    if min(wrong.sum(), right.sum()) < ENOUGH:
        return confidence
    by_chance = mismatch_probability(best.scores[wrong], best.scores[right])
    order = np.argsort(best.scores[wrong], kind="stable")
    found = 1.0 - np.interp(best.scores[there], best.scores[wrong][order], by_chance[order])
    confidence[there] = found * probability[there]
    return confidence
