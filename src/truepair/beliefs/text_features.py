"""Text vectors without a trained encoder: TF-IDF over words and the letter groups inside them, reduced by PCA.

Letter groups bring "dog", "dogs" and "doggy" together in any language, which word pairs do not. The vocabulary and the
axes come from a sample; texts are then turned into vectors block by block.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from truepair.errors import TruepairError

Vectors = NDArray[np.float32]
Sparse = sparse.csr_array[Any, tuple[int, int]]
# A word of one letter ("a", "x") says nothing in English, but may be a whole word elsewhere: frequency decides.
WORD = r"(?u)\b\w+\b"


@dataclass(frozen=True)
class TextBasis:
    """Words and their vectors; a text is the TF-IDF weighted sum of its words' vectors.

    word_vectors: words x width.
    """

    counter: TfidfVectorizer
    word_vectors: Vectors

    @classmethod
    def fit(
        cls, texts: Sequence[str], width: int = 400, seed: int = 0, max_words: int = 50_000
    ) -> "TextBasis":
        """The vocabulary and the principal axes of these texts."""
        counter = TfidfVectorizer(
            sublinear_tf=True, token_pattern=WORD, max_features=max_words, dtype=np.float32
        )
        try:
            counts = counter.fit_transform(texts)
        except ValueError as error:
            raise TruepairError(
                "None of the texts has a word in it. Check which column or file the texts are read from."
            ) from error
        words = list(counter.get_feature_names_out())
        # Texts are rows of (counts @ parts): each word stands for itself and for the letter groups in it.
        parts: Sparse = sparse.csr_array(
            sparse.hstack([sparse.eye_array(len(words), dtype=np.float32), letter_groups(words)])
        )
        axes = _principal_axes(sparse.csr_array(counts.T @ counts), parts, width, seed)
        return cls(counter, np.asarray(parts @ axes, dtype=np.float32))

    @property
    def width(self) -> int:
        """Length of a text vector."""
        return int(self.word_vectors.shape[1])

    @property
    def words(self) -> list[str]:
        """The vocabulary, in the order of word_vectors."""
        return list(self.counter.get_feature_names_out())

    def weights(self, texts: Sequence[str]) -> Sparse:
        """TF-IDF weight of each word in each text, texts x words."""
        return sparse.csr_array(self.counter.transform(texts))

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """One vector per text, zero for a text without a known word."""
        return np.asarray(self.weights(texts) @ self.word_vectors, dtype=np.float32)


def letter_groups(words: Sequence[str], shortest: int = 3, longest: int = 5) -> Sparse:
    """Rows of unit length, words x groups: the groups of 3 to 5 letters that at least two words share.

    The word's borders count as letters, so that beginnings and endings differ from middles.
    """
    groups = [
        [f" {word} "[i : i + n] for n in range(shortest, longest + 1) for i in range(len(word) + 3 - n)]
        for word in words
    ]
    found_in = Counter(group for of_word in groups for group in set(of_word))
    column = {group: i for i, group in enumerate(sorted(g for g, count in found_in.items() if count > 1))}
    rows = [row for row, of_word in enumerate(groups) for group in of_word if group in column]
    columns = [column[group] for of_word in groups for group in of_word if group in column]
    shape = (len(words), len(column))
    counts = sparse.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=shape)
    rarity = np.log(len(words) / np.maximum(np.bincount(columns, minlength=len(column)), 1)) + 1
    weighted = sparse.csr_array(counts @ sparse.diags_array(rarity.astype(np.float32)))
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(1)).ravel())
    return sparse.csr_array(sparse.diags_array((1 / np.maximum(lengths, 1e-9)).astype(np.float32)) @ weighted)


def _principal_axes(together: Sparse, parts: Sparse, width: int, seed: int) -> NDArray[Any]:
    """Leading eigenvectors of parts^T together parts (parts x parts), by subspace iteration.

    together: how often words meet in a text, words x words. It is all that is needed of the texts.
    """
    width = min(width, parts.shape[0])
    back = sparse.csr_array(parts.T)
    spare = min(width + 20, parts.shape[1])
    axes = np.random.default_rng(seed).standard_normal((parts.shape[1], spare)).astype(np.float32)
    for _ in range(3):
        axes = back @ (together @ (parts @ axes))
        values, vectors = np.linalg.eigh(axes.T @ axes)
        axes = axes @ (vectors / np.sqrt(np.maximum(values, values[-1] * 1e-10)))
    _, vectors = np.linalg.eigh(axes.T @ (back @ (together @ (parts @ axes))))
    return np.asarray(axes @ vectors[:, ::-1][:, :width])
