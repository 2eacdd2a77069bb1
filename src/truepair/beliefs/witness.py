"""The linear witness: how well each pair agrees, judged by a model that knows nothing of the pair.

Canonical correlation between pooled image features and text vectors. Closed form, seconds on a laptop, needs only
sums of outer products, and has too few parameters to memorise. Images are dealt into folds. The pairs of a fold are
judged by the model of the others, *including its weights*: how far each training pair is believed is decided
without the judged fold as well. A weight that had seen the judged pair would choose training pairs that agree with
it, right or wrong; then wrong pairs score above random ones, and the share of noise is underestimated.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truepair.beliefs.canonical import Agreement, Canonical
from truepair.beliefs.moments import CrossMoments
from truepair.beliefs.null import mismatch_probability, rank_in_null
from truepair.beliefs.text_features import TextBasis
from truepair.beliefs.whitening import Axes, Vectors
from truepair.errors import TruepairError
from truepair.pairs.core import Pairs

Array = NDArray[np.float64]
Index = NDArray[np.int64]
FOLDS = 8
ROUNDS = 3
RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
FIT_PAIRS = 50_000
"""Pairs the models are fitted to. More would not change a few hundred axes; all pairs are judged."""
NULLS = 1_000_000
BLOCK = 4096
FEWEST_IMAGES = 12


@dataclass(frozen=True, eq=False)
class Witness:
    """One model per fold of images, none of which has seen its own fold.

    fold: of every image. images, texts: the coordinates; basis: of the texts' words, None where texts came as vectors.
    """

    fold: Index
    images: Axes
    texts: Axes
    basis: TextBasis | None
    models: tuple[Canonical, ...]
    ridge: float

    def image_codes(self, pairs: Pairs, rows: Index, model: int) -> Vectors:
        """Codes of the images in these rows under one model."""
        directions = self.models[model].images
        return _gathered(rows, directions, lambda block: self.images(pooled(pairs, block), directions))

    def text_codes(self, pairs: Pairs, rows: Index, model: int) -> Vectors:
        """Codes of the texts in these rows under one model."""
        directions = self.models[model].texts
        return _gathered(
            rows, directions, lambda block: self.texts(text_vectors(pairs, block, self.basis), directions)
        )


@dataclass(frozen=True, eq=False)
class Testimony:
    """What the witness says. scores: n, of the given pairs. null_scores, null_images: m random re-pairings, and the
    image of each."""

    scores: Array
    null_scores: Array
    null_images: Index
    witness: Witness


def hear(pairs: Pairs, seed: int = 0) -> Testimony:
    """Fit the witness and let it judge every pair and many random re-pairings, fold by fold."""
    rng = np.random.default_rng(seed)
    witness = fit_witness(pairs, rng)
    scores = np.zeros(len(pairs))
    nulls, null_images = [], []
    times = int(np.clip(NULLS // len(pairs), 2, 20))
    fold = witness.fold[pairs.image_of]
    for k in range(len(witness.models)):
        rows = np.flatnonzero(fold == k)
        held, image = np.unique(pairs.image_of[rows], return_inverse=True)
        agreement = Agreement(witness.image_codes(pairs, held, k), witness.text_codes(pairs, rows, k))
        scores[rows] = agreement(image, np.arange(len(rows)))
        repaired, others = agreement.repaired(image, times, rng)
        nulls.append(repaired)
        null_images.append(held[others])
    return Testimony(scores, np.concatenate(nulls), np.concatenate(null_images), witness)


def fit_witness(pairs: Pairs, rng: np.random.Generator) -> Witness:
    """Fit one model per fold of images to the pairs of the other folds, or to a sample of them."""
    paired = rng.permutation(np.unique(pairs.image_of))
    if len(paired) < FEWEST_IMAGES:
        raise TruepairError(
            f"{len(paired)} different images are too few to judge pairs by; at least {FEWEST_IMAGES} are needed, and "
            "some hundreds for a useful answer."
        )
    n_folds = min(FOLDS, len(paired) // 3)
    fold = np.zeros(pairs.n_images, dtype=np.int64)
    fold[paired] = np.arange(len(paired)) % n_folds
    per_image = np.bincount(pairs.image_of, minlength=pairs.n_images)
    enough = max(FEWEST_IMAGES, int(np.searchsorted(np.cumsum(per_image[paired]), FIT_PAIRS)))
    sampled = np.zeros(pairs.n_images, dtype=np.bool_)
    sampled[paired[:enough]] = True
    rows = np.flatnonzero(sampled[pairs.image_of])
    held = np.flatnonzero(sampled)
    basis = None
    if pairs.text_vectors is None:
        basis = TextBasis.fit(_texts(pairs, rows), seed=int(rng.integers(2**31)))
    images, image_vectors = _coordinates(lambda block: pooled(pairs, block), held)
    texts, vectors = _coordinates(lambda block: text_vectors(pairs, block, basis), rows)
    place = np.searchsorted(held, pairs.image_of[rows])
    sample = _Sample(image_vectors, vectors, place, fold[pairs.image_of[rows]], n_folds, images, texts)
    models, ridge = _learn(sample, rng)
    return Witness(fold, images, texts, basis, models, ridge)


def pooled(pairs: Pairs, rows: Index) -> Vectors:
    """The mean of each image's regions, n x d."""
    regions = np.asarray(pairs.images[rows])
    if regions.shape[1] == 1:
        return _checked(regions[:, 0].astype(np.float32), "image", rows)
    if pairs.region_counts is None:
        return _checked(regions.mean(1, dtype=np.float32), "image", rows)
    real = np.arange(regions.shape[1]) < pairs.region_counts[rows, None]
    weights = (real / np.maximum(real.sum(1, keepdims=True), 1)).astype(np.float32)
    return _checked(np.einsum("nk,nkd->nd", weights, regions.astype(np.float32)), "image", rows)


def text_vectors(pairs: Pairs, rows: Index, basis: TextBasis | None) -> Vectors:
    """The given vectors of the texts, or those made of their words, n x d."""
    if pairs.text_vectors is not None:
        return _checked(np.asarray(pairs.text_vectors[rows], dtype=np.float32), "text", rows)
    if basis is None:
        raise TruepairError("Texts without vectors need a basis of words.")
    return basis(_texts(pairs, rows))


@dataclass(frozen=True, eq=False)
class _Sample:
    """The pairs the models are fitted to, in memory: coordinates, the place of each text's image, folds."""

    image_vectors: Vectors
    text_vectors: Vectors
    image: Index
    fold: Index
    n_folds: int
    images: Axes
    texts: Axes

    def rows(self, fold: int) -> Index:
        return np.flatnonzero(self.fold == fold)

    def cross(self, rows: Index, weights: Array) -> CrossMoments:
        starts = range(0, len(rows), BLOCK)
        return reduce(
            add,
            (
                CrossMoments.of(
                    self.image_vectors[self.image[rows[i : i + BLOCK]]],
                    self.text_vectors[rows[i : i + BLOCK]],
                    weights[i : i + BLOCK],
                )
                for i in starts
            ),
        )

    def model(self, parts: list[CrossMoments], ridge: float) -> Canonical:
        return Canonical.fit(reduce(add, parts), self.images, self.texts, ridge)

    def judge(self, fold: int, model: Canonical, times: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Scores of the pairs of a fold, and of random re-pairings of it."""
        rows = self.rows(fold)
        held, image = np.unique(self.image[rows], return_inverse=True)
        agreement = Agreement(self.image_vectors[held] @ model.images, self.text_vectors[rows] @ model.texts)
        return agreement(image, np.arange(len(rows))), agreement.repaired(image, times, rng)[0]


def _learn(sample: _Sample, rng: np.random.Generator) -> tuple[tuple[Canonical, ...], float]:
    """Rounds of judging and weighting, for each fold without any use of that fold."""
    folds = range(sample.n_folds)
    equal = [sample.cross(sample.rows(k), np.ones(len(sample.rows(k)))) for k in folds]
    # parts[out][k]: the sums of fold k, weighted by models that know neither fold k nor fold out.
    parts = [list(equal) for _ in folds]
    place = RIDGES.index(3.0)
    for turn in range(ROUNDS):
        place = _best_ridge(sample, parts, place, rng)
        if turn == ROUNDS - 1:
            break
        for out in folds:
            others = [k for k in folds if k != out]
            blind = {
                k: sample.model([parts[out][j] for j in others if j != k], RIDGES[place]) for k in others
            }
            judged = {k: sample.judge(k, blind[k], 5, rng) for k in others}
            wrong = mismatch_probability(
                np.concatenate([judged[k][0] for k in others]), np.concatenate([judged[k][1] for k in others])
            )
            ends = np.cumsum([len(judged[k][0]) for k in others])[:-1]
            for k, of_fold in zip(others, np.split(wrong, ends), strict=True):
                # Never zero: where nothing agrees the witness must still have something to stand on.
                parts[out][k] = sample.cross(sample.rows(k), np.maximum(1 - of_fold, 1e-3))
    models = tuple(sample.model([parts[out][k] for k in folds if k != out], RIDGES[place]) for out in folds)
    return models, RIDGES[place]


def _best_ridge(
    sample: _Sample, parts: list[list[CrossMoments]], place: int, rng: np.random.Generator
) -> int:
    """The ridge under which given pairs rank highest among re-pairings in a fold left out; climbs from the last one.

    For mismatched pairs that rank is one half on average whatever the model, so it needs no labels.
    """
    seed = int(rng.integers(2**31))
    known: dict[int, float] = {}

    def rank(at: int) -> float:
        if at not in known:
            draws = np.random.default_rng(seed)
            ranks = []
            for out in range(sample.n_folds):
                test = (out + 1) % sample.n_folds
                rest = [parts[out][k] for k in range(sample.n_folds) if k not in (out, test)]
                scores, nulls = sample.judge(test, sample.model(rest, RIDGES[at]), 2, draws)
                ranks.append(rank_in_null(scores, nulls))
            known[at] = float(np.concatenate(ranks).mean())
        return known[at]

    while True:
        near = [at for at in (place - 1, place, place + 1) if 0 <= at < len(RIDGES)]
        best = max(near, key=rank)
        if best == place or rank(best) <= rank(place):
            return place
        place = best


def _coordinates(read: Callable[[Index], Vectors], rows: Index) -> tuple[Axes, Vectors]:
    axes = Axes.of(map(read, _blocks(rows)), map(read, _blocks(rows)))
    return axes, np.concatenate([axes(read(block)) for block in _blocks(rows)])


def _gathered(rows: Index, directions: Vectors, codes_of: Callable[[Index], Vectors]) -> Vectors:
    """Codes of the rows along these directions (w x r), written block by block where they stay: n x r."""
    codes = np.empty((len(rows), directions.shape[1]), dtype=np.float32)
    for start, block in zip(range(0, len(rows), BLOCK), _blocks(rows), strict=True):
        codes[start : start + BLOCK] = codes_of(block)
    return codes


def _texts(pairs: Pairs, rows: Index) -> list[str]:
    return [pairs.texts[int(i)] for i in rows]


def _blocks(rows: Index) -> Iterator[Index]:
    return (rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK))


def _checked(vectors: NDArray[Any], name: str, rows: Index) -> Vectors:
    finite = np.isfinite(vectors).all(1)
    if not finite.all():
        raise TruepairError(
            f"The features of {name} row {int(rows[int(np.argmin(finite))]):,} are not finite. Compute them again, or "
            "remove the row."
        )
    return np.asarray(vectors, dtype=np.float32)
