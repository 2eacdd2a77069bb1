"""Decoys: a few pairs that are re-paired on purpose, unknown to the method that trains on them.

A network scores a wrong pair higher once it has trained on it, so random re-pairings that it has never seen are no
measure of the wrong ones among its own training pairs. Decoys are: they are wrong for certain, and the network has
learnt from them as it has from all other wrong pairs.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from truepair.pairs.core import Pairs
from truepair.pairs.noise import caption_noise

SHARE = 0.04
FEWEST = 200


def with_decoys(pairs: Pairs, seed: int) -> tuple[Pairs, NDArray[np.bool_]]:
    """The pairs with the images of a few permuted, and which ones these are, n.

    A share of the pairs; of small data more, up to a tenth. Like the pairs of synthetic noise, a few of those chosen
    get back an image that they had, and are no decoys then.
    """
    count = max(int(SHARE * len(pairs)), min(FEWEST, len(pairs) // 10))
    image_of = caption_noise(pairs.image_of, count / max(len(pairs), 1), seed)
    return replace(pairs, image_of=image_of), image_of != pairs.image_of
