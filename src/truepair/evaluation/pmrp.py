"""Plausible-match R-precision (Chun et al., PCME, CVPR 2021; reported in NCR's supplement).

Recall calls an image wrong though it shows the same things as the right one. Here items carry labels (the object
classes of an image; a text has its image's), and an item is a plausible match of a query when their label sets
differ in at most zeta classes (Hamming distance). A query with R plausible matches has the R-precision: the
share of plausible ones among the R items retrieved first. PMRP is its mean over queries and over zeta = 0, 1, 2.
As in the published code, images without any label are left out with their texts, as queries and as items; the
MS-COCO 1K value is the mean of five folds. Ties count against the matcher, as in recall.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truepair.errors import TruepairError
from truepair.evaluation.recall import Matrix, as_array, checked_image_of

_PIECE = 2**22


@dataclass(frozen=True)
class Pmrp:
    """Plausible-match R-precision, image to text and text to image, per cent."""

    i2t: float
    t2i: float


def pmrp(
    similarity: Matrix, labels: ArrayLike, image_of: ArrayLike, zetas: Sequence[int] = (0, 1, 2)
) -> Pmrp:
    """R-precision over plausible matches.

    similarity: n x m, images x texts. labels: n x classes, true or 1 where an image shows a class.
    image_of: m, the image that every text belongs to.
    """
    n, m = similarity.shape
    owners = checked_image_of(image_of, n, m)
    of_images = np.asarray(labels).astype(bool)
    if of_images.ndim != 2 or len(of_images) != n:
        raise TruepairError(
            f"Labels have the shape {of_images.shape}, but there are {n} images."
            " Give one row for every image and one column for every class."
        )
    images = np.flatnonzero(of_images.any(axis=1))
    texts = np.flatnonzero(of_images[owners].any(axis=1))
    if not len(texts):
        raise TruepairError("No text belongs to an image with labels; PMRP has nothing to compare.")
    image_labels, text_labels = (of_images[rows].astype(np.float32) for rows in (images, owners[texts]))
    i2t = (as_array(similarity[images[rows]])[:, texts] for rows in _runs(len(images), m))
    t2i = (as_array(similarity[:, texts[rows]]).T[:, images] for rows in _runs(len(texts), n))
    return Pmrp(
        _mean_precision(i2t, image_labels, text_labels, zetas),
        _mean_precision(t2i, text_labels, image_labels, zetas),
    )


def _mean_precision(
    blocks: Iterator[NDArray[Any]],
    queries: NDArray[np.float32],
    items: NDArray[np.float32],
    zetas: Sequence[int],
) -> float:
    total, asked, start = np.zeros(len(zetas)), np.zeros(len(zetas)), 0
    for scores in blocks:
        if np.isnan(scores.max()):
            raise TruepairError(
                "A similarity is not a number. Check the features (truepair inspect) and the weights."
            )
        own = queries[start : start + len(scores)]
        start += len(scores)
        distance = own.sum(axis=1)[:, None] + items.sum(axis=1) - 2 * own @ items.T
        rising = np.sort(scores, axis=1)
        for k, zeta in enumerate(zetas):
            precision = r_precision(scores, rising, distance <= zeta)
            total[k] += np.nansum(precision)
            asked[k] += np.count_nonzero(~np.isnan(precision))
    return float(100 * (total / asked).mean())


def r_precision(
    scores: NDArray[Any], rising: NDArray[Any], plausible: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The share of plausible items among the first R of every query, q; NaN where a query has none.

    scores: q x items. rising: the same, each row sorted. plausible: q x items, R of them in a row.
    """
    wanted = plausible.sum(axis=1)
    # The score of the R-th item: everything above it is retrieved, of what equals it the implausible first.
    last = np.take_along_axis(rising, (rising.shape[1] - np.maximum(wanted, 1))[:, None], axis=1)
    above, level = scores > last, scores == last
    places_left = wanted - above.sum(axis=1)
    tied_hits = np.maximum(0, places_left - (level & ~plausible).sum(axis=1))
    hits = (above & plausible).sum(axis=1) + tied_hits
    share: NDArray[np.float64] = np.full(len(scores), np.nan)
    np.divide(hits, wanted, where=wanted > 0, out=share)
    return share


def _runs(queries: int, items: int) -> Iterator[slice]:
    height = max(1, _PIECE // items)
    return (slice(start, min(start + height, queries)) for start in range(0, queries, height))
