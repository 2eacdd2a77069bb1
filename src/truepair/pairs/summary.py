"""What is in a data set: counts, texts, features, noise."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from truepair.pairs.core import Pairs
from truepair.pairs.features import check_finite
from truepair.pairs.text import tokenize
from truepair.pairs.vocabulary import Vocabulary


@dataclass(frozen=True)
class TextSummary:
    """The texts of one split.

    repeated: texts that occur more than once, and repeated_pairs the pairs that have one of them.
    vocabulary: numbers that a vocabulary of the words occurring min_count times has, special tokens included.
    """

    distinct: int
    repeated: int
    repeated_pairs: int
    distinct_words: int
    vocabulary: int
    min_count: int
    tokens_mean: float
    tokens_shortest: int
    tokens_longest: int


@dataclass(frozen=True)
class SplitSummary:
    """One split of a data set. feature_shape is images x regions x width; finite: no NaN, no infinity."""

    split: str
    layout: str
    pairs: int
    images: int
    texts_per_image: tuple[int, int]
    set_aside: int
    feature_shape: tuple[int, ...]
    feature_dtype: str
    finite: bool
    text_vectors: tuple[int, ...] | None
    texts: TextSummary | None
    noise: dict[str, Any]
    sources: list[dict[str, str]]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return asdict(self)


def summarize(pairs: Pairs, min_count: int = 4) -> SplitSummary:
    """Look at everything, the features too; NaN or infinity among them is an error that names the row."""
    arrays = [source.path for source in pairs.provenance.sources if source.path.endswith(".npy")]
    check_finite(pairs.images, arrays[0] if arrays else "images")
    if pairs.text_vectors is not None:
        check_finite(pairs.text_vectors, arrays[-1] if arrays else "texts")
    per_image = np.bincount(pairs.image_of, minlength=pairs.n_images)
    provenance = pairs.provenance.describe()
    noise = provenance["noise"]
    if noise["measured"] is None and pairs.mismatched is not None:
        noise["measured"] = float(pairs.mismatched.mean())
    return SplitSummary(
        split=pairs.split,
        layout=pairs.provenance.layout,
        pairs=len(pairs),
        images=pairs.n_images,
        texts_per_image=(int(per_image.min()), int(per_image.max())),
        set_aside=pairs.provenance.set_aside,
        feature_shape=pairs.images.shape,
        feature_dtype=str(pairs.images.dtype),
        finite=True,
        text_vectors=None if pairs.text_vectors is None else pairs.text_vectors.shape,
        texts=_summarize_texts(pairs, min_count) if len(pairs.texts) else None,
        noise=noise,
        sources=provenance["sources"],
    )


def _summarize_texts(pairs: Pairs, min_count: int) -> TextSummary:
    copies = np.array(list(Counter(pairs.texts).values()))
    lengths = np.array([len(tokenize(text)) for text in pairs.texts])
    all_words = {word for text in pairs.texts for word in tokenize(text)}
    return TextSummary(
        distinct=len(copies),
        repeated=int((copies > 1).sum()),
        repeated_pairs=int(copies[copies > 1].sum()),
        distinct_words=len(all_words),
        vocabulary=len(Vocabulary.build(pairs.texts, min_count)),
        min_count=min_count,
        tokens_mean=float(lengths.mean()),
        tokens_shortest=int(lengths.min()),
        tokens_longest=int(lengths.max()),
    )
