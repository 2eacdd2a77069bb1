"""What the data alone says about its pairs: the witness, the other texts of each image, and the re-pairing null."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truepair.beliefs.null import mismatch_probability
from truepair.beliefs.share import NoiseShare, estimate_share
from truepair.beliefs.vouching import vouched
from truepair.beliefs.witness import Testimony, hear
from truepair.pairs.core import Pairs


@dataclass(frozen=True, eq=False)
class Judgement:
    """Verdicts about n pairs.

    probability: n, of being mismatched. testimony: the scores they were made from. noise: the share of mismatches;
    by_witness: that by the witness alone. with_texts: whether the other texts of each image were believed.
    """

    probability: NDArray[np.float64]
    testimony: Testimony
    noise: NoiseShare
    by_witness: NoiseShare
    with_texts: bool


def judge(pairs: Pairs, seed: int = 0, heard: Testimony | None = None) -> Judgement:
    """Judge every pair by models that have not seen it. heard: what the witness has said already, if it was asked."""
    heard = heard or hear(pairs, seed)
    by_witness = _share(pairs, heard, seed)
    probability = mismatch_probability(heard.scores, heard.null_scores, by_witness.share)
    if by_witness.kind in ("none", "random"):
        together = vouched(pairs, heard, probability, seed)
        noise = None if together is None else _share(pairs, together, seed)
        if together is not None and noise is not None and noise.kind in ("none", "random"):
            probability = mismatch_probability(together.scores, together.null_scores, noise.share)
            return Judgement(probability, together, noise, by_witness, True)
    return Judgement(probability, heard, by_witness, by_witness, False)


def witness_prior(pairs: Pairs, seed: int = 0) -> NDArray[np.float64]:
    """The probability that each pair is mismatched, before anything has been trained."""
    return judge(pairs, seed).probability


def _share(pairs: Pairs, heard: Testimony, seed: int) -> NoiseShare:
    return estimate_share(heard.scores, heard.null_scores, pairs.image_of, heard.null_images, seed)
