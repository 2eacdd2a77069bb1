"""Evidence: the words of a caption that nothing in its picture supports."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from truepair.beliefs.moments import Moments
from truepair.beliefs.text_features import Sparse
from truepair.beliefs.whitening import unit
from truepair.beliefs.witness import Witness
from truepair.pairs.core import Pairs

TELLING = 0.3
"""Words that move the score by less than this share of the text's strongest word say too little either way."""
_BLOCK = 4096


def unsupported_words(pairs: Pairs, witness: Witness) -> list[list[str]]:
    """For every pair the telling words that suit its picture less than the average picture, the worst first.

    A text's code is linear in its words, so each word has its own part in the agreement. Empty where texts came as
    vectors.
    """
    found: list[list[str]] = [[] for _ in range(len(pairs))]
    if witness.basis is None:
        return found
    words = witness.basis.words
    fold = witness.fold[pairs.image_of]
    for k, model in enumerate(witness.models):
        rows = np.flatnonzero(fold == k)
        held, image = np.unique(pairs.image_of[rows], return_inverse=True)
        pictures = unit(witness.image_codes(pairs, held, k))
        moments = Moments.of(pictures)
        codes = (witness.basis.word_vectors @ witness.texts.vectors) @ model.texts
        spread = np.sqrt(np.maximum(np.einsum("wd,wd->w", codes @ moments.covariance, codes), 1e-12))
        centred = pictures - moments.mean.astype(np.float32)
        for start in range(0, len(rows), _BLOCK):
            part = rows[start : start + _BLOCK]
            weights = witness.basis.weights([pairs.texts[int(row)] for row in part])
            support, strength = _parts(weights, codes, spread, centred[image[start : start + _BLOCK]])
            for line, row in enumerate(part):
                here = slice(weights.indptr[line], weights.indptr[line + 1])
                found[row] = _against(words, weights.indices[here], support[here], strength[here])
    return found


def _parts(
    weights: Sparse, codes: NDArray[np.floating], spread: NDArray[np.floating], pictures: NDArray[np.floating]
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """For every word in every text: what it adds to the agreement, and how much it could add or take away."""
    line = sparse.coo_array(weights).row
    word = weights.indices
    return weights.data * np.einsum("pd,pd->p", codes[word], pictures[line]), weights.data * spread[word]


def _against(
    words: list[str],
    index: NDArray[np.integer],
    support: NDArray[np.floating],
    strength: NDArray[np.floating],
) -> list[str]:
    telling = strength >= TELLING * strength.max(initial=0.0)
    worst = np.argsort(support, kind="stable")
    return [words[index[i]] for i in worst if telling[i] and support[i] < 0]
