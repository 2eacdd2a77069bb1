"""Texts of one image vouch for each other: a text that differs from the others was probably never about this image.

Where single texts were moved, a wrong one agrees neither with its image nor with the image's other texts, and a true
one that says little of the picture still agrees with those. Both can be measured on random re-pairings: a text of
another image in the place of one of the image's own. So the re-pairing null holds for both scores as it does for one.

It holds no longer where images were exchanged with all their texts, since these go on agreeing with each other. The
data tells: the share of mismatches must come out alike with and without the other texts, or they are not asked.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from truepair.beliefs.canonical import Agreement
from truepair.beliefs.null import mismatch_probability, normal_scale, rank_in_null
from truepair.beliefs.share import ALLOWANCE, NoiseShare, mismatched_share
from truepair.beliefs.whitening import Vectors, unit
from truepair.beliefs.witness import NULLS, Testimony, text_vectors
from truepair.pairs.core import Pairs

Array = NDArray[np.float64]
Index = NDArray[np.int64]
FEWEST = 50
"""Images with several texts needed to say anything."""
TOGETHER = 20_000
"""Pairs whose texts are held in memory at a time; re-pairings are drawn among them."""
ROUNDS = 3
LEARNT_FROM = 100_000
_TOLERANCE = 0.05


def vouched(
    pairs: Pairs, heard: Testimony, noise: NoiseShare, probability: Array, seed: int = 0
) -> Testimony | None:
    """What the witness and the other texts of each image say together; None where these say nothing or mislead.

    noise: the share of mismatches by what was heard. probability: that each pair is one; a text that is probably
    wrong vouches for little.
    Pairs without another text of their image keep what the witness says, on the scale of the rest.
    """
    if (np.bincount(pairs.image_of, minlength=pairs.n_images) > 1).sum() < FEWEST:
        return None
    wording = _wordings(pairs)
    distinct = np.unique(np.stack([pairs.image_of, wording], axis=1), axis=0)[:, 0]
    several = np.bincount(distinct, minlength=pairs.n_images) > 1
    asked = several[pairs.image_of]
    if several.sum() < FEWEST:
        return None
    generator = np.random.default_rng(seed)
    given, null, null_images = _both_scores(pairs, heard, probability, wording, several, generator)
    alone = normal_scale(given[:, 0], null[:, 0])
    by_texts = normal_scale(given[:, 1], null[:, 1])
    evidence = _evidence(alone, by_texts)
    null_evidence = _evidence(normal_scale(null[:, 0], null[:, 0]), normal_scale(null[:, 1], null[:, 1]))
    together, null_together = _learnt(evidence, null_evidence, seed)
    share, slack = mismatched_share(together, null_together), ALLOWANCE + _TOLERANCE * noise.share
    if not min(noise.low, noise.share - slack) <= share <= max(noise.high, noise.share + slack):
        return None
    scores = np.zeros(len(pairs))
    scores[asked] = together
    others = rank_in_null(heard.scores[~asked], heard.null_scores)
    scores[~asked] = np.quantile(null_together, others)
    return Testimony(scores, null_together, null_images, heard.witness)


def _wordings(pairs: Pairs) -> Index:
    """A number per text, the same for the same text: one that is there twice does not vouch for itself."""
    numbers: dict[str | bytes, int] = {}
    every = pairs.texts if pairs.text_vectors is None else (row.tobytes() for row in pairs.text_vectors)
    return np.array([numbers.setdefault(text, len(numbers)) for text in every], dtype=np.int64)


def _both_scores(
    pairs: Pairs,
    heard: Testimony,
    probability: Array,
    wording: Index,
    several: NDArray[np.bool_],
    rng: np.random.Generator,
) -> tuple[Array, Array, Index]:
    """Agreement with the image and with its other texts: of the pairs whose image has several, n x 2 in their order,
    and of re-pairings, m x 2, with the image of each."""
    asked = np.flatnonzero(several[pairs.image_of])
    given = np.zeros((len(asked), 2))
    nulls: list[Array] = []
    null_images: list[Index] = []
    times = int(np.clip(NULLS // len(asked), 2, 20))
    fold = heard.witness.fold[pairs.image_of[asked]]
    for k in range(len(heard.witness.models)):
        for places in _by_images(np.flatnonzero(fold == k), pairs.image_of[asked]):
            rows = asked[places]
            held, image = np.unique(pairs.image_of[rows], return_inverse=True)
            agreement = Agreement(
                heard.witness.image_codes(pairs, held, k), heard.witness.text_codes(pairs, rows, k)
            )
            texts = unit(heard.witness.texts(text_vectors(pairs, rows, heard.witness.basis)))
            trusted = texts * (1 - probability[rows, None]).astype(np.float32)
            _, same = np.unique(np.stack([image, wording[rows]], axis=1), axis=0, return_inverse=True)
            others = unit(_sums(trusted, image)[image] - _sums(trusted, same)[same])

            part = _Part(agreement, image, texts, others)
            everyone = np.arange(len(rows))
            given[places] = part.scores(everyone, everyone)
            for _ in range(times):
                text = rng.permutation(len(rows))
                moved = np.flatnonzero(image[text] != image)
                nulls.append(part.scores(moved, text[moved]))
                null_images.append(held[image[moved]])
    return given, np.concatenate(nulls), np.concatenate(null_images)


@dataclass(frozen=True, eq=False)
class _Part:
    """Some pairs. image: the place of each one's image. texts: of each. others: what the rest of its image says."""

    agreement: Agreement
    image: Index
    texts: Vectors
    others: Vectors

    def scores(self, places: Index, texts: Index) -> Array:
        """Of these texts in these pairs' places, n x 2."""
        by_texts = np.einsum("nd,nd->n", self.texts[texts], self.others[places])
        return np.stack([self.agreement(self.image[places], texts), by_texts], axis=1)


def _sums(vectors: Vectors, place: Index) -> Vectors:
    """The sum of the vectors of each place."""
    sums = np.zeros((int(place.max()) + 1, vectors.shape[1]), dtype=np.float32)
    np.add.at(sums, place, vectors)
    return sums


def _by_images(places: Index, image_of: Index) -> Iterator[Index]:
    """The places in parts of about equal size, never an image's in two of them."""
    ordered = places[np.argsort(image_of[places], kind="stable")]
    parts = max(1, round(len(ordered) / TOGETHER))
    edges = np.searchsorted(
        image_of[ordered], image_of[ordered][[len(ordered) * i // parts for i in range(1, parts)]]
    )
    yield from (part for part in np.split(ordered, edges) if len(part))


def _evidence(alone: Array, by_texts: Array) -> Array:
    """What the log-odds of a match are linear in, n x 4: both scores where the null is standard normal, and more of
    them where they stand out, since matched scores are spread differently."""
    high, high_texts = np.maximum(alone, 0), np.maximum(by_texts, 0)
    return np.stack([alone, by_texts, high**2, high_texts**2], axis=1)


def _learnt(evidence: Array, null_evidence: Array, seed: int) -> tuple[Array, Array]:
    """The log-odds of a match, up to a constant: logistic regression of the given pairs against re-pairings.

    Given pairs count as far as they were believed in the round before. No weight is negative: what agrees better is
    never less of a match.
    """
    rng = np.random.default_rng(seed)
    some, few = (
        rng.choice(len(table), min(len(table), LEARNT_FROM), replace=False)
        for table in (evidence, null_evidence)
    )
    table = np.concatenate([evidence[some], null_evidence[few]])
    ours = np.arange(len(table)) < len(some)
    weights = np.zeros(evidence.shape[1])
    belief = np.ones(len(some))
    for _ in range(ROUNDS):
        counts = np.concatenate([belief / belief.sum(), np.full(len(few), 1 / len(few))])

        def loss(parameters: Array, counts: Array = counts) -> tuple[float, Array]:
            odds = parameters[0] + table @ parameters[1:]
            missed = counts * (expit(odds) - ours)
            value = float(counts @ (np.logaddexp(0, odds) - ours * odds))
            return value, np.concatenate([[missed.sum()], missed @ table])

        bounds = [(None, None)] + [(0, None)] * len(weights)
        found = minimize(loss, np.zeros(1 + len(weights)), jac=True, method="L-BFGS-B", bounds=bounds)
        weights = found.x[1:]
        belief = 1 - mismatch_probability(evidence[some] @ weights, null_evidence[few] @ weights)
    return evidence @ weights, null_evidence @ weights
