"""What trained matchers say about given pairs, random re-pairings and the best other partners of each pair."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from torch import Tensor

from truepair.evaluation.encoding import encode_split, evaluating
from truepair.matchers.base import ImageCodes, Matcher, TextCodes
from truepair.pairs.batch import BatchReader
from truepair.progress import track

Rows = NDArray[np.int64]
Vector = NDArray[np.float64]
Scale = tuple[float, float]

REPAIRINGS = 8
"""Random re-pairings of each pair."""
SHORTLIST = 20
"""Partners found by global vectors that are then scored in full."""
_LISTED = 4096
_BLOCK = 512


@dataclass(frozen=True, eq=False)
class Best:
    """The best other partner of each item. rows: -1 where there is none. scores: minus infinity there. others: the log
    of the sum of the exponentials of the scores of all on the shortlist but the item's own."""

    rows: Rows
    scores: Vector
    others: Vector


@dataclass(frozen=True, eq=False)
class Hearing:
    """What an ensemble says about the pairs `rows` and the images `images`, in spreads of its re-pairings' scores
    above their mean, so that ensembles can be compared.

    scores: of the rows. null_scores, null_images: of random re-pairings, and the image of each. of_text, of_image: the
    best other image of the text of each row, and the best other text of each image.
    """

    rows: Rows
    images: Rows
    scores: Vector
    null_scores: Vector
    null_images: Rows
    of_text: Best
    of_image: Best


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

    def matrix(self, images: Rows, texts: Rows) -> Vector:
        """The scores of all these images with all these texts, images x texts."""
        listed = self.score(np.repeat(images, len(texts)), np.tile(texts, len(images)))
        return listed.reshape(len(images), len(texts))

    def hear(self, rows: Rows, images: Rows, rng: np.random.Generator, *, shown: bool = False) -> Hearing:
        """Scores of these pairs and of random re-pairings among them, and their best partners among everything."""
        null_images, null_texts = repairings(self.pairs.image_of, rows, REPAIRINGS, rng)
        null_scores = self.score(null_images, null_texts, label="random re-pairings", shown=shown)
        scale = (float(null_scores.mean()), max(float(null_scores.std()), 1e-12))
        every_image, every_text = np.arange(self.pairs.n_images), np.arange(len(self.pairs))
        return Hearing(
            rows,
            images,
            _scaled(self.score(self.pairs.image_of[rows], rows, label="given pairs", shown=shown), scale),
            _scaled(null_scores, scale),
            null_images,
            self.best_images(rows, every_image, scale, shown=shown),
            self.best_texts(images, every_text, scale, shown=shown),
        )

    def best_images(self, texts: Rows, images: Rows, scale: Scale = (0, 1), *, shown: bool = False) -> Best:
        """For each of these texts the best of the images but its own. scale: mean and spread to take off."""
        near, _ = self._shortlists(texts, images, shown=shown)
        rows = images[near]
        return self._best(rows, np.repeat(texts, rows.shape[1]).reshape(rows.shape), 0, scale)

    def best_texts(self, images: Rows, texts: Rows, scale: Scale = (0, 1), *, shown: bool = False) -> Best:
        """For each of these images the best of the texts that are not its own."""
        _, near = self._shortlists(texts, images, shown=shown)
        rows = texts[near]
        return self._best(np.repeat(images, rows.shape[1]).reshape(rows.shape), rows, 1, scale)

    def _best(self, images: Rows, texts: Rows, side: int, scale: Scale) -> Best:
        scores = _scaled(self.score(images.ravel(), texts.ravel()), scale).reshape(images.shape)
        scores[self.pairs.image_of[texts] == images] = -np.inf
        best = scores.argmax(1)[:, None]
        found = np.take_along_axis(scores, best, 1)[:, 0]
        rows = np.take_along_axis((images, texts)[side], best, 1)[:, 0]
        there = np.isfinite(found)
        others = np.full(len(found), -np.inf)
        others[there] = logsumexp(scores[there], axis=1)
        return Best(np.where(there, rows, -1), found, others)

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


def _scaled(scores: Vector, scale: Scale) -> Vector:
    return (scores - scale[0]) / scale[1]
