"""A few searches both ways, to show what is found for an image and for a text."""

import numpy as np
from numpy.typing import NDArray

from truepair.audit.gallery import Example, Item
from truepair.beliefs.canonical import Agreement
from truepair.beliefs.witness import Witness
from truepair.pairs.core import Pairs

Rows = NDArray[np.int64]
POOL = 300
"""Pairs to search among: enough to see what is found, and few enough for any matcher."""


def pool(pairs: Pairs, rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """Some of these pairs drawn at random, and their images, each once."""
    drawn = np.sort(np.random.default_rng(seed).choice(rows, min(POOL, len(rows)), replace=False))
    return drawn, np.unique(pairs.image_of[drawn])


def witness_examples(pairs: Pairs, witness: Witness, seed: int) -> list[Example]:
    """Searches by the linear witness, among pairs that the searching model has not seen."""
    texts, images = pool(pairs, np.flatnonzero(witness.fold[pairs.image_of] == 0), seed)
    agreement = Agreement(witness.image_codes(pairs, images, 0), witness.text_codes(pairs, texts, 0))
    return search_examples(pairs, images, texts, agreement.all(np.arange(len(texts))).T, seed)


def search_examples(
    pairs: Pairs,
    images: Rows,
    texts: Rows,
    scores: NDArray[np.floating],
    seed: int,
    *,
    queries: int = 4,
    found: int = 5,
) -> list[Example]:
    """Some of these images and some of these texts drawn at random, each with the best of the other side.

    images, texts: rows in the data. scores: images x texts.
    """
    if not len(pairs.texts):
        return []
    generator = np.random.default_rng(seed)
    examples = []
    for place in generator.choice(len(images), min(queries, len(images)), replace=False):
        best = np.argsort(-scores[place], kind="stable")[:found]
        items = [_text(pairs, int(texts[i]), float(scores[place, i]), int(images[place])) for i in best]
        examples.append(Example(_image(pairs, int(images[place])), items))
    for place in generator.choice(len(texts), min(queries, len(texts)), replace=False):
        row = int(texts[place])
        best = np.argsort(-scores[:, place], kind="stable")[:found]
        items = [_image(pairs, int(images[i]), float(scores[i, place]), row) for i in best]
        examples.append(Example(Item(pairs.ids[row], text=pairs.texts[row]), items))
    return examples


def _text(pairs: Pairs, row: int, score: float, image: int) -> Item:
    note = "paired with it" if pairs.image_of[row] == image else ""
    return Item(pairs.ids[row], text=pairs.texts[row], score=score, note=note)


def _image(pairs: Pairs, image: int, score: float | None = None, row: int | None = None) -> Item:
    paths = pairs.picture_paths
    note = "paired with it" if row is not None and pairs.image_of[row] == image else ""
    picture = None if paths is None else paths[image] or None
    return Item(pairs.image_ids[image], picture=picture, score=score, note=note)
