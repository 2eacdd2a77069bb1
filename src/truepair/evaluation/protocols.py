"""The field's ways of measuring retrieval, by name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from truepair.errors import TruepairError
from truepair.evaluation.recall import Integers, Matrix, Recall, Retrieval, checked_image_of, recall
from truepair.evaluation.similarity import MEMORY_LIMIT, Scorer, ranks_blockwise


@dataclass(frozen=True)
class Protocol:
    """Which part of a split is searched at once.

    folds: how many equal runs of images are measured on their own and averaged. images: how many the split
    must have. one_to_one: every image has one text.
    """

    name: str
    purpose: str
    folds: int = 1
    images: int | None = None
    one_to_one: bool = False

    def check(self, owners: Integers, n_images: int) -> None:
        """Complain if the data is not what the protocol is made for."""
        if self.images is not None and n_images != self.images:
            raise TruepairError(
                f"Protocol {self.name} needs {self.images} images, but there are {n_images}."
                " Use f30k to search the whole split, whatever its size."
            )
        if self.one_to_one and not np.array_equal(np.sort(owners), np.arange(n_images)):
            raise TruepairError(
                f"Protocol {self.name} needs exactly one text for every image, but {n_images} images have"
                f" {len(owners)} texts. Use f30k, which takes any number of texts an image."
            )

    def parts(self, owners: Integers, n_images: int) -> Iterator[tuple[Integers, Integers, Integers]]:
        """What is searched at once: images, their texts, and the place of every text's image among the images."""
        self.check(owners, n_images)
        for images in np.array_split(np.arange(n_images), self.folds):
            texts = np.flatnonzero((owners >= images[0]) & (owners <= images[-1]))
            yield images, texts, owners[texts] - images[0]


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("f30k", "the whole split at once, any number of texts an image"),
        Protocol("coco-1k", "the mean of five folds of 1000 images", folds=5, images=5000),
        Protocol("coco-5k", "all 5000 images at once", images=5000),
        Protocol("pairs", "the whole split at once, one text an image (CC152K)", one_to_one=True),
    )
}


def find_protocol(name: str) -> Protocol:
    """The protocol of this name."""
    if name not in PROTOCOLS:
        raise TruepairError(f"There is no protocol '{name}'. There are: {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]


def evaluate(
    similarity: Matrix | Scorer,
    image_of: ArrayLike,
    protocol: str | Protocol = "f30k",
    memory_limit: int = MEMORY_LIMIT,
    *,
    shown: bool = True,
) -> Retrieval:
    """Recalls by a protocol. image_of: m, the image that every text belongs to.

    similarity: a matrix, images x texts, or a scorer that computes it block by block; then only what the
    protocol looks at is computed.
    """
    chosen = find_protocol(protocol) if isinstance(protocol, str) else protocol
    n, m = (
        similarity.shape if not isinstance(similarity, Scorer) else (similarity.n_images, similarity.n_texts)
    )
    owners = checked_image_of(image_of, n, m)
    results = []
    for images, texts, own in chosen.parts(owners, n):
        if isinstance(similarity, Scorer):
            part = similarity.take(images, texts)
            results.append(ranks_blockwise(part, own, memory_limit, shown=shown).retrieval())
        else:
            rows = similarity[images[0] : images[-1] + 1]
            results.append(recall(rows if len(texts) == m else rows[:, texts], own))
    return mean_retrieval(results)


def mean_retrieval(results: Sequence[Retrieval]) -> Retrieval:
    """The mean of every number over folds or runs; its rsum is the mean of theirs."""
    i2t, t2i = ([getattr(result, side) for result in results] for side in ("i2t", "t2i"))
    return Retrieval(_mean_recall(i2t), _mean_recall(t2i))


def _mean_recall(sides: Sequence[Recall]) -> Recall:
    return Recall(*(float(np.mean([getattr(side, f.name) for side in sides])) for f in fields(Recall)))
