"""How long a shortlist has to be, measured on validation data where every pair was scored."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from truepair.evaluation.recall import Integers, Ranks, checked_image_of, ranks
from truepair.evaluation.similarity import MEMORY_LIMIT
from truepair.evaluation.two_stage import Scores, Size, Stages, two_stage_ranks

BOUND = 0.3
"""rSum that shortlists may cost."""

SHARES = (*(round(0.01 * 1.25**step, 4) for step in range(21)), 1.0)
"""Shares of the candidates that are tried: 1 % and always a quarter more, up to 87 %, and all."""


class Difference(NamedTuple):
    """What shortlists do to rSum. lost: hits that exact ranks have and these have not. gained: the other way round.

    A shortlist gains a hit where it leaves out an item that the exact score would have put before the query's own.
    """

    lost: float
    gained: float

    @property
    def loss(self) -> float:
        """By how much rSum falls; below 0 where it rises."""
        return self.lost - self.gained


@dataclass(frozen=True)
class Calibration:
    """How long shortlists have to be, and what they cost the validation data.

    share: of all candidates. size: on the validation data, of `images` images and `texts` texts. lost, gained: of
    rSum there, by lists of this size; of several scorers, those of the one that loses most. bound: what was allowed.
    """

    share: float
    size: Size
    lost: float
    gained: float
    bound: float
    images: int
    texts: int

    def size_for(self, n_images: int, n_texts: int) -> Size:
        """The lists' size in another set: the same share of a larger one, the same length in a smaller one.

        A match that is the best of k listed among n candidates comes on average behind x times as many others among
        x times as many candidates, whatever the scores: a constant share keeps the probability that it is listed.
        Hits are rarer in a larger set, and those that remain stand further in front, so this errs on the safe side.
        In a smaller set more matches are hits, and some of them stood further back: there the length is kept.
        """
        same = Size.of_share(self.share, n_images, n_texts)
        return Size(
            min(n_images, max(self.size.images, same.images)), min(n_texts, max(self.size.texts, same.texts))
        )


def calibrate(
    stages: Stages,
    exact: Sequence[Scores],
    image_of: ArrayLike,
    bound: float = BOUND,
    longer: int = 1,
    memory_limit: int = MEMORY_LIMIT,
) -> Calibration:
    """The smallest of `SHARES` that, like all larger ones, costs no more than the bound; and for safety a larger one.

    exact: one matrix of exact scores, images x texts, for every scorer that shares the shortlists. longer: by how many
    steps of `SHARES` the lists are made longer than they had to be here, for data that is not the validation data.
    """
    n, m = exact[0].shape
    owners = checked_image_of(image_of, n, m)
    looked_up = replace(stages, listed=lambda rows, columns: np.stack([x[rows, columns] for x in exact]))
    whole = [ranks(matrix, owners) for matrix in exact]
    adequate = [Calibration(1.0, Size(n, m), 0.0, 0.0, bound, n, m)]
    for share in reversed(SHARES[:-1]):
        size = Size.of_share(share, n, m)
        found = two_stage_ranks(looked_up, owners, size, memory_limit, shown=False).ranks
        worst = max((difference(a, b) for a, b in zip(whole, found, strict=True)), key=lambda d: d.loss)
        if worst.loss > bound:
            break
        adequate.append(Calibration(share, size, worst.lost, worst.gained, bound, n, m))
    return adequate[max(0, len(adequate) - 1 - longer)]


def difference(exact: Ranks, found: Ranks) -> Difference:
    """What the ranks found lose and gain of the exact ones' rSum."""
    lost = gained = 0.0
    for a, b in zip(exact, found, strict=True):
        asked: Integers = np.flatnonzero(a >= 0)
        for k in (1, 5, 10):
            before, after = a[asked] < k, b[asked] < k
            lost += 100.0 * int(np.count_nonzero(before & ~after)) / len(asked)
            gained += 100.0 * int(np.count_nonzero(after & ~before)) / len(asked)
    return Difference(lost, gained)
