"""A few searches both ways, to show what a matcher finds."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from truepair.audit.gallery import Example, Item
from truepair.evaluation.recall import as_array
from truepair.evaluation.similarity import Scorer
from truepair.pairs.core import Pairs

Rows = NDArray[np.int64]


def search_examples(
    pairs: Pairs, scorer: Scorer, seed: int = 0, *, queries: int = 4, found: int = 5, pool: int = 1000
) -> list[Example]:
    """Some images and some texts drawn at random, with what is found for them among up to `pool` pairs.

    scorer: scores of all images with all texts of the pairs.
    """
    if not len(pairs.texts):
        return []
    rows = np.sort(np.random.default_rng(seed).choice(len(pairs), min(pool, len(pairs)), replace=False))
    images = np.unique(pairs.image_of[rows])
    asked = np.random.default_rng(seed).choice(len(rows), min(queries, len(rows)), replace=False)
    examples = []
    for row in rows[asked]:
        image = int(pairs.image_of[row])
        scores = as_array(scorer.block(np.array([image]), rows))[0]
        examples.append(Example(_image(pairs, image), _best(scores, found, pairs, rows, image)))
    for row in rows[asked][::-1]:
        scores = as_array(scorer.block(images, np.array([row])))[:, 0]
        best = np.argsort(-scores, kind="stable")[:found]
        items = [_image(pairs, int(images[i]), float(scores[i]), row) for i in best]
        examples.append(Example(Item(pairs.ids[row], text=pairs.texts[row]), items))
    return examples


def _best(scores: NDArray[np.float32], found: int, pairs: Pairs, rows: Rows, image: int) -> Sequence[Item]:
    best = np.argsort(-scores, kind="stable")[:found]
    return [
        Item(
            pairs.ids[rows[i]],
            text=pairs.texts[rows[i]],
            score=float(scores[i]),
            note="paired with it" if pairs.image_of[rows[i]] == image else "",
        )
        for i in best
    ]


def _image(pairs: Pairs, image: int, score: float | None = None, row: int | None = None) -> Item:
    paths = pairs.picture_paths
    paired = row is not None and pairs.image_of[row] == image
    return Item(
        pairs.image_ids[image],
        picture=None if paths is None else paths[image] or None,
        score=score,
        note="paired with it" if paired else "",
    )
