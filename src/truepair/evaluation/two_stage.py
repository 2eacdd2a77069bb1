"""Similarity in two stages: products of vectors make a shortlist of every query, exact scores rank it.

A pair is listed if its text is among the image's best by the vectors, or its image among the text's best. Every
listed pair is scored once, exactly, and counts in both directions. So every query has an order of all items: those
listed with it first, by score, then the others, by the vectors. Ranks are read from that order by the rule of
`evaluation.recall`: other items that score at least as high count against. With everything listed they are exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from truepair.errors import TruepairError
from truepair.evaluation.recall import Integers, Ranks, as_array, checked_image_of
from truepair.evaluation.similarity import MEMORY_LIMIT, Rows
from truepair.matchers.base import ImageCodes, Matcher, TextCodes
from truepair.progress import track

Scores = NDArray[Any]

# A pair of the first stage takes its score and three masks; a listed one two places and an exact score besides.
_PAIR_BYTES = 32
# Products of other shapes differ in their last digits; the item that made a limit has to reach it all the same.
_LAST_DIGITS = 1e-6
_SHOWN_BLOCKS = 50  # so that the bar of a long search moves


@dataclass(frozen=True)
class Stages:
    """Both stages' scores of a set.

    rough: first-stage scores of some images with some texts, rows x columns. listed: the exact scores of image rows[p]
    with text columns[p], s x p: of one scorer or of several that share the shortlist.
    """

    n_images: int
    n_texts: int
    rough: Callable[[Rows, Rows], Scores]
    listed: Callable[[Integers, Integers], Scores]

    def take(self, images: Integers, texts: Integers) -> "Stages":
        """The stages of these images and texts alone."""
        return Stages(
            len(images),
            len(texts),
            lambda rows, columns: self.rough(images[rows], texts[columns]),
            lambda rows, columns: self.listed(images[rows], texts[columns]),
        )


def matcher_stages(
    matchers: Sequence[Matcher],
    codes: Sequence[tuple[ImageCodes, TextCodes]],
    vectors: tuple[Tensor, Tensor] | None = None,
) -> Stages:
    """Encoded items of one or several networks, which share one shortlist.

    vectors: of images and texts, whose products are the first stage; by default the networks' global ones side by
    side. Scores are those of every network in its row, and of their mean in a last row if there are several.
    """
    if any(matcher.training for matcher in matchers):
        raise TruepairError("A matcher is in training mode. Call matcher.eval() first.")
    images, texts = global_vectors(matchers, codes) if vectors is None else vectors

    def rough(rows: Rows, columns: Rows) -> Scores:
        return as_array(images[_places(rows, images)] @ texts[_places(columns, texts)].T)

    def listed(rows: Integers, columns: Integers) -> Scores:
        with torch.inference_mode():
            scores = [
                matcher.pair_similarity(i, t, _index(rows, i.vectors), _index(columns, t.vectors))
                for matcher, (i, t) in zip(matchers, codes, strict=True)
            ]
        found = np.stack([as_array(score) for score in scores])
        return found if len(found) == 1 else np.concatenate([found, found.mean(axis=0, keepdims=True)])

    return Stages(len(images), len(texts), rough, listed)


def global_vectors(
    matchers: Sequence[Matcher], codes: Sequence[tuple[ImageCodes, TextCodes]]
) -> tuple[Tensor, Tensor]:
    """Of all networks side by side: their products are the sum of the networks' cosines."""
    with torch.inference_mode():
        images = [matcher.image_vectors(i) for matcher, (i, _) in zip(matchers, codes, strict=True)]
        texts = [matcher.text_vectors(t) for matcher, (_, t) in zip(matchers, codes, strict=True)]
    return torch.cat(images, dim=1), torch.cat(texts, dim=1)


class Size(NamedTuple):
    """How long shortlists are: images of every text, and texts of every image."""

    images: int
    texts: int

    @classmethod
    def of_share(cls, share: float, n_images: int, n_texts: int) -> "Size":
        """This share of all candidates, at least one."""
        # A product a little above a whole number is that number.
        return cls(*(min(n, max(1, ceil(share * n - 1e-9))) for n in (n_images, n_texts)))


class Found(NamedTuple):
    """Ranks of every scorer, and how many pairs were scored."""

    ranks: list[Ranks]
    listed: int


def two_stage_ranks(
    stages: Stages, image_of: ArrayLike, size: Size, memory_limit: int = MEMORY_LIMIT, *, shown: bool = True
) -> Found:
    """Ranks of all texts and images among shortlists of this size. image_of: m, the image of every text.

    Items tied at the end of a shortlist all belong to it, so that ranks do not depend on the order of the data.
    """
    n, m = stages.n_images, stages.n_texts
    owners = checked_image_of(image_of, n, m)
    lists = _Lists.of(stages, size, memory_limit)
    # Own pairs first: the ranks are measured against them. They are not scored again.
    known = [_own_listed(stages, lists, owners, rows) for rows in lists.blocks]
    own_texts = np.concatenate(known)
    exact = _checked(stages.listed(owners[own_texts], own_texts))
    counters = [_Counter.of(scores, own_texts, owners, n) for scores in exact]
    listed = len(own_texts)
    for rows in track(lists.blocks, "Two-stage ranks", len(lists.blocks), shown=shown):
        there = lists.mask(stages, rows)
        own = _own_of(owners, rows)
        there[owners[own] - rows.start, own] = False
        images, texts = there.nonzero()
        images += rows.start
        listed += len(images)
        for counter, scores in zip(counters, _checked(stages.listed(images, texts)), strict=True):
            counter.add(images, texts, scores, owners)
    behind = _behind(stages, lists, owners, own_texts)
    return Found([counter.ranks(behind, owners) for counter in counters], listed)


def _own_listed(stages: Stages, lists: "_Lists", owners: Integers, rows: slice) -> Integers:
    """Texts of these images that are listed with their own image."""
    own = _own_of(owners, rows)
    there: NDArray[np.bool_] = lists.mask(stages, rows)[owners[own] - rows.start, own]
    return np.asarray(own[there])


def _own_of(owners: Integers, rows: slice) -> Integers:
    return np.flatnonzero((owners >= rows.start) & (owners < rows.stop))


@dataclass(frozen=True)
class _Lists:
    """Which pairs are listed: those whose first-stage score reaches the image's or the text's limit.

    blocks: runs of images that fit the memory with all texts. of_image: n. of_text: m.
    """

    blocks: list[slice]
    of_image: Scores
    of_text: Scores

    @classmethod
    def of(cls, stages: Stages, size: Size, memory_limit: int) -> "_Lists":
        n, m = stages.n_images, stages.n_texts
        blocks = _slices(n, min(memory_limit // (_PAIR_BYTES * m), ceil(n / _SHOWN_BLOCKS)))
        of_image = [_kth_largest(stages.rough(rows, slice(0, m)), size.texts) for rows in blocks]
        columns = _slices(m, memory_limit // (_PAIR_BYTES * n))
        of_text = [_kth_largest(stages.rough(slice(0, n), part).T, size.images) for part in columns]
        return cls(blocks, np.concatenate(of_image) - _LAST_DIGITS, np.concatenate(of_text) - _LAST_DIGITS)

    def mask(self, stages: Stages, rows: slice) -> NDArray[np.bool_]:
        """The listed pairs of these images, rows x m."""
        rough = stages.rough(rows, slice(0, len(self.of_text)))
        return np.asarray((rough >= self.of_image[rows, None]) | (rough >= self.of_text))


@dataclass
class _Counter:
    """Counts, for one scorer, the listed items that score at least as high as a query's best own one.

    own: m, the score of every text with its image, -inf where that pair is not listed. best: n, of an image's texts.
    """

    own: Scores
    best: Scores
    i2t: Integers
    t2i: Integers

    @classmethod
    def of(cls, scores: Scores, own_texts: Integers, owners: Integers, n_images: int) -> "_Counter":
        own = np.full(len(owners), -np.inf, dtype=scores.dtype)
        own[own_texts] = scores
        best = np.full(n_images, -np.inf, dtype=scores.dtype)
        np.maximum.at(best, owners, own)
        return cls(own, best, np.zeros(n_images, np.int64), np.zeros(len(owners), np.int64))

    def add(self, images: Integers, texts: Integers, scores: Scores, owners: Integers) -> None:
        """Count listed pairs that are not own ones. Where no own pair is listed, all stand before it."""
        self.i2t += np.bincount(images[scores >= self.best[images]], minlength=len(self.i2t))
        self.t2i += np.bincount(texts[scores >= self.own[texts]], minlength=len(self.t2i))

    def ranks(self, behind: Ranks, owners: Integers) -> Ranks:
        """The ranks, when all pairs have been added. behind: what stands before items that are not listed."""
        asked = np.bincount(owners, minlength=len(self.i2t)) > 0
        return Ranks(np.where(asked, self.i2t + behind.i2t, -1), self.t2i + behind.t2i)


def _behind(stages: Stages, lists: _Lists, owners: Integers, own_texts: Integers) -> Ranks:
    """For queries without a listed own item: how many items that are not listed stand before it by the first stage."""
    n, m = len(lists.of_image), len(lists.of_text)
    found = Ranks(np.zeros(n, np.int64), np.zeros(m, np.int64))
    lost = np.setdiff1d(np.arange(m), own_texts)
    height = max(1, max(block.stop - block.start for block in lists.blocks) * m // n)
    for part in (lost[some] for some in _slices(len(lost), height)):
        rough = stages.rough(slice(0, n), part)
        there = (rough >= lists.of_image[:, None]) | (rough >= lists.of_text[part])
        own = (owners[part], np.arange(len(part)))
        others = ~there & (rough >= rough[own])
        others[own] = False
        found.t2i[part] = others.sum(axis=0)
    images = np.setdiff1d(owners[lost], owners[own_texts])
    for image in images:
        rows = slice(int(image), int(image) + 1)
        rough = stages.rough(rows, slice(0, m))[0]
        own_items = owners == image
        others = ~lists.mask(stages, rows)[0] & ~own_items & (rough >= rough[own_items].max())
        found.i2t[image] = others.sum()
    return found


def _kth_largest(scores: Scores, k: int) -> Scores:
    """The k-th largest entry of every row."""
    k = min(k, scores.shape[1])
    return np.asarray(np.partition(scores, -k, axis=1)[:, -k])


def _checked(scores: Scores) -> Scores:
    if np.isnan(scores).any():
        raise TruepairError(
            "A similarity is not a number. Check the features (truepair inspect) and the weights."
        )
    return scores


def _slices(n: int, length: int) -> list[slice]:
    return [slice(start, min(start + max(1, length), n)) for start in range(0, n, max(1, length))]


def _places(rows: Rows, like: Tensor) -> slice | Tensor:
    return rows if isinstance(rows, slice) else _index(rows, like)


def _index(rows: Integers, like: Tensor) -> Tensor:
    return torch.from_numpy(rows).to(like.device)
