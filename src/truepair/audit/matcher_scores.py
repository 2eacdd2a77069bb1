"""What trained matchers say about given pairs, random re-pairings and the best other partners of each pair."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from truepair.audit.proposals import Best
from truepair.evaluation.encoding import encode_split, evaluating
from truepair.evaluation.similarity import Scorer, matcher_scorer, mean_scorer
from truepair.matchers.base import ImageCodes, Matcher, TextCodes
from truepair.pairs.batch import BatchReader
from truepair.progress import track

Rows = NDArray[np.int64]
Vector = NDArray[np.float64]

REPAIRINGS = 8
"""Random re-pairings of each pair."""
SHORTLIST = 20
"""Best found by global vectors that are then scored in full."""
_LISTED = 4096
_BLOCK = 512


class Ensemble:
    """Networks over the items of one set of pairs; a score is the mean of theirs."""

    def __init__(self, networks: Sequence[Matcher], reader: BatchReader) -> None:
        self.networks, self.pairs = list(networks), reader.pairs
        with evaluating(*self.networks):
            self.codes: list[tuple[ImageCodes, TextCodes]] = [
                encode_split(network, reader, next(network.parameters()).device) for network in self.networks
            ]

    def score(self, images: Rows, texts: Rows, *, label: str = "scores", shown: bool = False) -> Vector:
        """The scores of listed pairs: image images[p] with text texts[p]."""
        total = np.zeros(len(images))
        starts = range(0, len(images), _LISTED)
        with evaluating(*self.networks):
            for start in track(starts, label, len(starts), shown=shown):
                part = slice(start, start + _LISTED)
                rows, columns = (torch.from_numpy(which[part]) for which in (images, texts))
                for network, (image_codes, text_codes) in zip(self.networks, self.codes, strict=True):
                    device = image_codes.vectors.device
                    found = network.pair_similarity(
                        image_codes, text_codes, rows.to(device), columns.to(device)
                    )
                    total[part] += found.double().cpu().numpy()
        return total / len(self.networks)

    def scorer(self) -> Scorer:
        """The same scores by blocks."""
        with evaluating(*self.networks):
            scorers = [matcher_scorer(n, *codes) for n, codes in zip(self.networks, self.codes, strict=True)]
        return mean_scorer(scorers)

    def best_images(self, texts: Rows, images: Rows, *, shown: bool = False) -> Best:
        """For each of these texts the best of the images but its own."""
        near, _ = self._shortlists(texts, images, shown=shown)
        rows = images[near]
        return self._best(rows, np.repeat(texts, rows.shape[1]).reshape(rows.shape), side=0)

    def best_texts(self, images: Rows, texts: Rows, *, shown: bool = False) -> Best:
        """For each of these images the best of the texts that are not its own."""
        _, near = self._shortlists(texts, images, shown=shown)
        rows = texts[near]
        return self._best(np.repeat(images, rows.shape[1]).reshape(rows.shape), rows, side=1)

    def _best(self, images: Rows, texts: Rows, side: int) -> Best:
        scores = self.score(images.ravel(), texts.ravel()).reshape(images.shape)
        scores[self.pairs.image_of[texts] == images] = -np.inf
        best = scores.argmax(1)[:, None]
        found = np.take_along_axis(scores, best, 1)[:, 0]
        rows = np.take_along_axis((images, texts)[side], best, 1)[:, 0]
        return Best(np.where(np.isfinite(found), rows, -1), found)

    def _shortlists(self, texts: Rows, images: Rows, *, shown: bool) -> tuple[Rows, Rows]:
        """Places in `images` of those nearest to each text, and in `texts` of those nearest to each image."""
        # An own partner may be among them and is taken out later, hence one more.
        of_text, of_image = (min(SHORTLIST + 1, len(side)) for side in (images, texts))
        owners = torch.from_numpy(self.pairs.image_of[texts])
        places = torch.from_numpy(images)
        vectors = self._vectors(texts, images)
        near_images = torch.empty(len(texts), of_text, dtype=torch.int64)
        best = torch.full((len(images), of_image), -torch.inf)
        near_texts = torch.zeros(len(images), of_image, dtype=torch.int64)
        starts = range(0, len(texts), _BLOCK)
        for start in track(starts, "best partners", len(starts), shown=shown):
            part = slice(start, min(start + _BLOCK, len(texts)))
            similarity = sum(i @ t[part].T for i, t in vectors)
            assert isinstance(similarity, Tensor)
            near_images[part] = similarity.topk(of_text, 0).indices.T.cpu()
            # Unlike a text, an image may have more own partners than the list is long: never list them.
            own = places[:, None] == owners[None, part]
            both = torch.cat([best, similarity.cpu().masked_fill(own, -torch.inf)], 1)
            best, chosen = both.topk(of_image, 1)
            where = torch.arange(part.start, part.stop).expand(len(images), -1)
            near_texts = torch.cat([near_texts, where], 1).gather(1, chosen)
        return near_images.numpy(), near_texts.numpy()

    def _vectors(self, texts: Rows, images: Rows) -> list[tuple[Tensor, Tensor]]:
        with evaluating(*self.networks):
            return [
                (network.image_vectors(image_codes)[images], network.text_vectors(text_codes)[texts])
                for network, (image_codes, text_codes) in zip(self.networks, self.codes, strict=True)
            ]


def repairings(image_of: Rows, rows: Rows, times: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Images and texts of random re-pairings among the pairs `rows`: other images, `times` of each pair or less."""
    images, texts = [], []
    for _ in range(times):
        other = image_of[rng.permutation(rows)]
        differs = other != image_of[rows]
        images.append(other[differs])
        texts.append(rows[differs])
    return np.concatenate(images), np.concatenate(texts)
