"""One batch of pairs as tensors, read from the feature files when it is needed."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from truepair.errors import TruepairError
from truepair.pairs.core import Pairs
from truepair.pairs.features import not_finite
from truepair.pairs.vocabulary import EncodedTexts, Vocabulary

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class PairBatch:
    """Some pairs. Entry i of every tensor belongs to pair pairs[i]; images are repeated as often as they occur.

    pairs: row numbers in Pairs, n. images: image rows in Pairs, n. regions: n x k x width, float32.
    mask: n x k, True where a region is real; None when all are. tokens: n x t word numbers, zero past the
    length; for data of embeddings the text vectors, n x width. lengths: n.
    """

    pairs: Tensor
    images: Tensor
    regions: Tensor
    mask: Tensor | None
    tokens: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.pairs)

    def to(self, device: torch.device | str) -> "PairBatch":
        """The same batch on a device."""
        return PairBatch(
            pairs=self.pairs.to(device),
            images=self.images.to(device),
            regions=self.regions.to(device),
            mask=None if self.mask is None else self.mask.to(device),
            tokens=self.tokens.to(device),
            lengths=self.lengths.to(device),
        )


class BatchReader:
    """Turns row numbers into tensors. Texts are encoded once, features are read batch by batch.

    vocabulary: numbers of the words; None if the data has text vectors, which are used instead.
    """

    def __init__(self, pairs: Pairs, vocabulary: Vocabulary | None) -> None:
        self.pairs = pairs
        if vocabulary is None and pairs.text_vectors is None:
            raise TruepairError("These pairs have texts but no text vectors: a vocabulary is needed.")
        if vocabulary is not None and not len(pairs.texts):
            raise TruepairError(
                "These pairs have text vectors but no texts: use a matcher over embeddings (projection)."
            )
        self._encoded: EncodedTexts | None = None if vocabulary is None else vocabulary.encode(pairs.texts)

    def __call__(self, rows: Rows) -> PairBatch:
        """The batch of these pairs."""
        rows = np.asarray(rows, dtype=np.int64)
        images = self.pairs.image_of[rows]
        regions, mask = self.images(images)
        tokens, lengths = self.texts(rows)
        return PairBatch(torch.from_numpy(rows), torch.from_numpy(images), regions, mask, tokens, lengths)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of every text, start and end included; 1 for text vectors."""
        return np.ones(len(self.pairs), np.int64) if self._encoded is None else self._encoded.lengths

    def images(self, rows: Rows) -> tuple[Tensor, Tensor | None]:
        """The regions of these images, n x k x width in float32, and which are real, n x k, None when all are."""
        regions = torch.from_numpy(np.asarray(self.pairs.images[rows], dtype=np.float32))
        _check_finite(regions, rows, self.pairs, "images")
        counts = self.pairs.region_counts
        if counts is None:
            return regions, None
        return regions, torch.from_numpy(np.arange(regions.shape[1]) < counts[rows][:, None])

    def texts(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Tokens of these texts, n x t (text vectors, n x width, in data of embeddings), and their lengths, n."""
        if self._encoded is not None:
            return self._encoded.padded(rows)
        assert self.pairs.text_vectors is not None
        vectors = torch.from_numpy(np.asarray(self.pairs.text_vectors[rows], dtype=np.float32))
        _check_finite(vectors, rows, self.pairs, "texts")
        return vectors, torch.ones(len(rows), dtype=torch.int64)


def _check_finite(values: Tensor, rows: Rows, pairs: Pairs, kind: Literal["images", "texts"]) -> None:
    # One sum instead of a comparison of every value: NaN and infinity survive it.
    if torch.isfinite(values.sum()):
        return
    wrong = ~torch.isfinite(values).flatten(1)
    if not wrong.any():
        return
    entry = int(wrong.any(dim=1).nonzero()[0])
    value = float(values[entry].flatten()[wrong[entry]][0])
    paths = [source.path for source in pairs.provenance.sources if source.path.endswith(".npy")]
    array, path = (pairs.images, paths[:1]) if kind == "images" else (pairs.text_vectors, paths[1:])
    assert array is not None
    raise not_finite(array, int(rows[entry]), value, path[0] if path else kind)
