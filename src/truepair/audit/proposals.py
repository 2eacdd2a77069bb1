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
LEARNT_FROM = 0.25
"""Of the pairs looked at in such data, the share that are likely right: they tell how far proposals can be trusted."""
ENOUGH = 50
"""Matched pairs needed to learn from how often a best partner is the right one."""
_LINES, _TILE = 512, 8192
"""Scores looked at together: of so many pairs with so many candidates."""


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
    asked = _asked(probability, max(1, int(COMPARISONS // max(pairs.n_images, len(pairs)))))
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
        agreement = Agreement(every_image, witness.text_codes(pairs, rows, k))
        del every_image
        _best_images(agreement, own, rows, images)
        del agreement
        every_text = witness.text_codes(pairs, np.arange(len(pairs)), k)
        agreement = Agreement(every_text, witness.image_codes(pairs, held, k))
        del every_text
        _best_texts(agreement, held, place, rows, pairs.image_of, texts)
        del agreement
    return texts, images


def _asked(probability: Vector, most: int) -> Index:
    """The pairs to look for proposals for: all, or the strongest suspects and some that are likely right."""
    by_suspicion = np.argsort(-probability, kind="stable")
    if most >= len(probability):
        return by_suspicion
    right = np.flatnonzero(probability < 0.5)
    right = np.random.default_rng(0).permutation(right)[: int(LEARNT_FROM * most)]
    suspects = by_suspicion[~np.isin(by_suspicion, right)]
    return np.concatenate([suspects[: most - len(right)], right])


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
    ahead = contest.best[there] - contest.others[there]
    found = np.interp(ahead, lead[order], np.asarray(chance, dtype=np.float64))
    confidence[there] = found * probability[there]
    return confidence


def _best_images(agreement: Agreement, own: Index, rows: Index, contest: Contest) -> None:
    """agreement: of the texts of these rows with all images. own: the given image of each row."""
    for part in _parts(len(rows)):
        given = np.arange(len(part)), own[part]
        _search(agreement, part, given, given, rows[part], contest)


def _best_texts(
    agreement: Agreement, held: Index, place: Index, rows: Index, image_of: Index, contest: Contest
) -> None:
    """agreement: of the held images with all texts. place: of the image of each row among them."""
    order = np.argsort(image_of, kind="stable")
    starts = np.searchsorted(image_of[order], held, side="left")
    counts = np.searchsorted(image_of[order], held, side="right") - starts
    by_place = np.argsort(place, kind="stable")
    asking = np.searchsorted(place[by_place], np.arange(len(held) + 1))
    for part in _parts(len(held)):
        mine = by_place[asking[part[0]] : asking[part[-1] + 1]]
        given = place[mine] - part[0], rows[mine]
        texts = np.concatenate([order[starts[image] : starts[image] + counts[image]] for image in part])
        own = np.repeat(np.arange(len(part)), counts[part]), texts
        _search(agreement, part, own, given, rows[mine], contest)


def _parts(lines: int) -> Iterator[Index]:
    return (np.arange(start, min(start + _LINES, lines)) for start in range(0, lines, _LINES))


def _search(
    agreement: Agreement,
    asking: Index,
    own: tuple[Index, Index],
    given: tuple[Index, Index],
    rows: Index,
    contest: Contest,
) -> None:
    """Go through all candidates, a tile at a time, and write down how the contest of these rows ends.

    asking: p, which texts of the agreement look for the best of its images. own: lines of asking and candidates that
    take no part. given: for each of the rows its line of asking and its given candidate.
    """
    line = np.arange(len(asking))
    best = np.full(len(asking), -1, dtype=np.int64)
    highest, total = np.full(len(asking), -np.inf), np.full(len(asking), -np.inf)
    for start in range(0, len(agreement.images), _TILE):
        tile = slice(start, start + _TILE)
        scores = agreement.all(asking, tile)
        here = (given[1] >= start) & (given[1] < tile.stop)
        contest.given[rows[here]] = scores[given[0][here], given[1][here] - start]
        here = (own[1] >= start) & (own[1] < tile.stop)
        scores[own[0][here], own[1][here] - start] = -np.inf
        first = scores.argmax(1)
        top = scores[line, first]
        there, better = np.isfinite(top), top > highest
        best[better], highest[better] = start + first[better], top[better]
        scores -= np.where(there, top, 0)[:, None]
        summed = np.exp(scores, out=scores).sum(1)[there]
        total[there] = np.logaddexp(total[there], top[there] + np.log(summed))
    contest.rows[rows] = best[given[0]]
    contest.best[rows] = highest[given[0]]
    contest.others[rows] = total[given[0]]
