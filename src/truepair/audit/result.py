"""What an audit finds about every pair and about all of them, whichever scores it was made from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truepair.beliefs.share import Kind, NoiseShare
from truepair.beliefs.siblings import Swapped

Vector = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Proposals:
    """The best other partner of every pair. rows: n, -1 where there is none. confidence: n, in [0, 1]."""

    rows: Rows
    confidence: Vector


@dataclass(frozen=True)
class Diagnostic:
    """Whether the mismatches look like random re-pairings, as the audit takes them to be. says: in a sentence.

    slope: how unevenly the null's lower half is found among the given scores; near 0 for random mismatches.
    swapped_share: the share of texts that seem to be those of similar images, told by the other texts of the same
    image; None where too few images have several texts, or nobody looked.
    """

    kind: Kind
    says: str
    slope: float = 0.0
    swapped_share: float | None = None


@dataclass(frozen=True, eq=False)
class AuditResult:
    """Verdicts about n pairs.

    scores: n, how well each pair agrees. null_scores: m, of random re-pairings under the same models.
    match_score: n, in [0, 1], rises with the score. mismatch_probability: n, calibrated. is_mismatch: n bools at
    the error rate. share: of mismatched pairs, with its 95 % interval. other_text: for every pair, the row of the
    pair whose text suits the image best. other_image: the image row that suits its text best. unsupported: words of
    each text that nothing in the picture supports. share_alone: the share by the pictures alone, where the other texts
    of each image were believed as well.
    """

    scores: Vector
    null_scores: Vector
    match_score: Vector
    mismatch_probability: Vector
    is_mismatch: NDArray[np.bool_]
    share: float
    interval: tuple[float, float]
    diagnostic: Diagnostic
    other_text: Proposals
    other_image: Proposals
    unsupported: Sequence[Sequence[str]]
    error_rate: float
    share_alone: float | None = None


def diagnostic(noise: NoiseShare, swapped: Swapped | None = None) -> Diagnostic:
    """What the estimate of the share says about the kind of the mismatches, in words.

    swapped: what the texts of the same image say about each other, where they were asked.
    """
    says, share = _SAYS[noise.kind], None if swapped is None else swapped.share
    if swapped is None or not swapped.plain or noise.kind == "undecided":
        return Diagnostic(noise.kind, says, noise.slope, share)
    says = (
        f"About {swapped.share:.0%} of the texts seem to belong to similar pictures: they differ from the other texts "
        "of their picture as texts of similar pictures do. The estimated share leaves most of these out, and they are "
        "hard to find by picture and text alone."
    )
    return Diagnostic("structured", says, noise.slope, share)


_SAYS: dict[Kind, str] = {
    "none": "The scores are those of true pairs: there is no sign of mismatches beyond a few.",
    "random": "The mismatches look random: wrong pairs score as random re-pairings do.",
    "structured": "The mismatches do not look like random ones: many wrong pairs seem to be similar to right ones, as "
    "when captions of like pictures were swapped. Then there are more of them than estimated, and those are harder "
    "to find.",
    "undecided": "The scores can hardly tell the given pairs from random ones. Either almost all are mismatched, or "
    "the features say too little about the texts; the share is not to be trusted.",
}
