"""What a suspect pair should have been: the best other image for its text and the best other text for its image."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from truepair.beliefs.canonical import Agreement
from truepair.beliefs.witness import Witness
from truepair.pairs.core import Pairs

Index = NDArray[np.int64]
Vector = NDArray[np.float64]

COMPARISONS = 2e9
"""Agreements to look at, at most. Larger data get proposals for the strongest suspects only."""
ENOUGH = 50
"""Matched pairs needed to learn from how often a best partner is the right one."""
_CELLS = 4_000_000


@dataclass(frozen=True, eq=False)
class Contest:
    """The best other partner of every pair against all others and against the given one.

    rows: n, the best other partner, -1 where none was looked for. best: n, its score. others: n, the log of the sum
    of the exponentials of all other partners' scores. given: n, the score of the given partner.
    """

    rows: Index
    best: Vector
    others: Vector
    given: Vector

    @classmethod
    def empty(cls, n: int) -> "Contest":
        """A contest in which nobody has been looked at."""
        return cls(np.full(n, -1, dtype=np.int64), *(np.full(n, -np.inf) for _ in range(3)))


def contests(pairs: Pairs, witness: Witness, probability: Vector) -> tuple[Contest, Contest]:
    """For every pair the best other text of its image, and the best other image of its text.

    Each is scored by the model that knows neither this image nor its texts. probability: n, of being mismatched; the
    strongest suspects come first where the data are too large to look at all.
    """
    most = int(COMPARISONS // max(pairs.n_images, len(pairs)))
    asked = np.argsort(-probability, kind="stable")[: max(most, 1)]
    texts, images = Contest.empty(len(pairs)), Contest.empty(len(pairs))
    fold = witness.fold[pairs.image_of]
    for k in range(len(witness.models)):
        rows = np.sort(asked[fold[asked] == k])
        if not len(rows):
            continue
        own = pairs.image_of[rows]
        held, place = np.unique(own, return_inverse=True)
        # One side after the other: the codes of all images and of all texts need not be in memory together.
        every_image = witness.image_codes(pairs, np.arange(pairs.n_images), k)
        _best_images(Agreement(every_image, witness.text_codes(pairs, rows, k)), own, rows, images)
        del every_image
        every_text = witness.text_codes(pairs, np.arange(len(pairs)), k)
        asking = witness.image_codes(pairs, held, k)
        _best_texts(Agreement(every_text, asking), held, place, rows, pairs.image_of, texts)
    return texts, images


def proposal_confidence(contest: Contest, probability: Vector) -> Vector:
    """How sure it is that each pair is wrong and its best other partner right, n.

    Learnt from the matched pairs, whose right partner is known: had the given partner lain among all the others,
    would it have come out first, and how far ahead of them was the first? Takes for granted that the right partner
    is among the data.
    """
    there = contest.rows >= 0
    matched = there & (probability < 0.5)
    confidence = np.zeros(len(probability))
    if matched.sum() < ENOUGH:
        return confidence
    won = contest.given[matched] > contest.best[matched]
    first = np.maximum(contest.given[matched], contest.best[matched])
    lead = first - np.logaddexp(contest.others[matched], contest.given[matched])
    order = np.argsort(lead, kind="stable")
    weights = 1 - probability[matched][order]
    chance = isotonic_regression(won[order].astype(np.float64), weights=weights, increasing=True).x
    found = np.interp(
        (contest.best - contest.others)[there], lead[order], np.asarray(chance, dtype=np.float64)
    )
    confidence[there] = found * probability[there]
    return confidence


def _best_images(agreement: Agreement, own: Index, rows: Index, contest: Contest) -> None:
    """agreement: of the texts of these rows with all images. own: the given image of each row."""
    for part in _parts(len(rows), len(agreement.images)):
        scores = agreement.all(part)
        line = np.arange(len(part))
        contest.given[rows[part]] = scores[line, own[part]]
        scores[line, own[part]] = -np.inf
        _enter(contest, rows[part], scores, line)


def _best_texts(
    agreement: Agreement, held: Index, place: Index, rows: Index, image_of: Index, contest: Contest
) -> None:
    """agreement: of the held images with all texts. place: of the image of each row among them."""
    order = np.argsort(image_of, kind="stable")
    ends = (
        np.searchsorted(image_of[order], held, side="left"),
        np.searchsorted(image_of[order], held, "right"),
    )
    by_place = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[by_place], np.arange(len(held) + 1))
    for part in _parts(len(held), len(agreement.images)):
        scores = agreement.all(part)
        mine = by_place[starts[part[0]] : starts[part[-1] + 1]]
        line = place[mine] - part[0]
        contest.given[rows[mine]] = scores[line, rows[mine]]
        for at, image in enumerate(part):
            scores[at, order[ends[0][image] : ends[1][image]]] = -np.inf
        _enter(contest, rows[mine], scores, line)


def _parts(lines: int, width: int) -> Iterator[Index]:
    """Lines of a matrix of this width, a few million cells at a time."""
    step = max(1, _CELLS // width)
    return (np.arange(start, min(start + step, lines)) for start in range(0, lines, step))


def _enter(contest: Contest, rows: Index, scores: NDArray[np.float32], line: Index) -> None:
    """Write down the best and the sum of each line of scores for the pairs of these rows."""
    best = scores.argmax(1)
    highest = scores[np.arange(len(scores)), best]
    there = np.isfinite(highest)
    total = np.full(len(scores), -np.inf)
    total[there] = highest[there] + np.log(np.exp(scores[there] - highest[there, None]).sum(1))
    contest.rows[rows] = np.where(there, best, -1)[line]
    contest.best[rows] = highest[line]
    contest.others[rows] = total[line]
