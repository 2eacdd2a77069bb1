"""Texts of one image as witnesses of each other: are captions of similar pictures swapped?

A caption that was swapped with that of a similar picture agrees with its picture almost as well as a true one, and so
does a caption that says little; an image and a text alone cannot tell the two apart. But where an image has several
texts, a swapped one differs from the others, as a text of a similar picture does, and texts of similar pictures can
be put in its place at will: the re-pairing null once more, with similar pictures instead of any.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truepair.beliefs.share import ALLOWANCE, NoiseShare, share_beside
from truepair.beliefs.whitening import Vectors, unit
from truepair.beliefs.witness import Witness, pooled, text_vectors
from truepair.pairs.core import Pairs

Array = NDArray[np.float64]
Index = NDArray[np.int64]
NEAR = 0.05
"""The share of the images that count as similar to an image."""
MOST_IMAGES = 4000
"""Images looked at; each is compared with each."""
FEWEST = 50
"""Images with several texts needed to say anything."""
TIMES = 5


@dataclass(frozen=True, eq=False)
class Siblings:
    """How well texts agree with the other texts of an image, cosines.

    given: n, each text with the others of its own image. near: m, a text of a similar image in its place. random: l, a
    text of any other image. The images are those of the other texts.
    """

    given: Array
    near: Array
    random: Array
    images: Index
    near_images: Index
    random_images: Index


@dataclass(frozen=True)
class Swapped:
    """The share of texts that seem to be those of similar images. low: the lower end of its 95 % interval. plain:
    whether it is too much to be chance, or what an uneven estimate of the random mismatches leaves."""

    share: float
    low: float
    plain: bool


def swapped_share(pairs: Pairs, witness: Witness, noise: NoiseShare, seed: int = 0) -> Swapped | None:
    """How many texts seem to be those of similar images; None where too few images have several texts, or where the
    random mismatches may be everything.

    noise: the random mismatches, which are taken off, as many as there may be. Noise that moves all texts of an image
    together leaves no trace among them.
    """
    heard = None if noise.kind == "undecided" else hear_siblings(pairs, witness, seed)
    if heard is None:
        return None
    given, near, random = (
        (heard.given, heard.images),
        (heard.near, heard.near_images),
        (heard.random, heard.random_images),
    )
    share, low = share_beside(given, near, random, noise.high, seed)
    return Swapped(share, low, low > ALLOWANCE + 0.1 * noise.share)


def hear_siblings(pairs: Pairs, witness: Witness, seed: int = 0) -> Siblings | None:
    """What the texts of the same image say about each other; None where too few images have several."""
    rng = np.random.default_rng(seed)
    count = np.bincount(pairs.image_of, minlength=pairs.n_images)
    held = rng.permutation(np.flatnonzero(count > 1))[:MOST_IMAGES]
    if len(held) < FEWEST:
        return None
    rows = np.flatnonzero(np.isin(pairs.image_of, held))
    held, image = np.unique(pairs.image_of[rows], return_inverse=True)
    texts = unit(witness.texts(text_vectors(pairs, rows, witness.basis)))
    near = _similar(unit(witness.images(pooled(pairs, held))), max(5, int(NEAR * len(held))))
    total = np.zeros((len(held), texts.shape[1]), dtype=np.float32)
    np.add.at(total, image, texts)
    others = unit(total[image] - texts)
    order = np.argsort(image, kind="stable")
    starts = np.searchsorted(image[order], np.arange(len(held)))

    def with_texts_of(images: Index) -> Array:
        which = starts[images] + rng.integers(count[held[images]])
        return _cosines(texts[order[which]], others)

    drawn = [near[image, rng.integers(near.shape[1], size=len(rows))] for _ in range(TIMES)]
    # Any image but the own one.
    far = [(image + rng.integers(1, len(held), len(rows))) % len(held) for _ in range(TIMES)]
    given_images = held[image]
    return Siblings(
        _cosines(texts, others),
        np.concatenate([with_texts_of(images) for images in drawn]),
        np.concatenate([with_texts_of(images) for images in far]),
        given_images,
        np.tile(given_images, TIMES),
        np.tile(given_images, TIMES),
    )


def _similar(vectors: Vectors, count: int) -> Index:
    """The places of the most similar vectors of each, but itself: n x count."""
    count = min(count, len(vectors) - 1)
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -np.inf)
    return np.asarray(np.argpartition(-similarity, count - 1, axis=1)[:, :count])


def _cosines(texts: Vectors, others: Vectors) -> Array:
    return np.asarray(np.einsum("nd,nd->n", texts, others), dtype=np.float64)
