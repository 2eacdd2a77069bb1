"""Texts of one image vouch for each other: a text that differs from the others was probably never about this image.

Where single texts were moved, a wrong one agrees neither with its image nor with the image's other texts, and a true
one that says little of the picture still agrees with those. Both can be measured on random re-pairings: a text of
another image in the place of one of the image's own. So the re-pairing null holds for both scores as it does for one.

It holds no longer where images were exchanged with all their texts, since these go on agreeing with each other. The
data tells: then there are more images none of whose texts suits them than single moves explain, the re-pairing null
once more, with all texts of an image at a time; and the other texts are not asked.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from truepair.beliefs.canonical import Agreement
from truepair.beliefs.null import mismatch_probability, normal_scale, rank_in_null
from truepair.beliefs.share import mismatched_share
from truepair.beliefs.siblings import FEWEST
from truepair.beliefs.whitening import Vectors, unit
from truepair.beliefs.witness import NULLS, Testimony, text_vectors
from truepair.pairs.core import Pairs

Array = NDArray[np.float64]
Index = NDArray[np.int64]
TOGETHER = 20_000
"""Pairs whose texts are held in memory at a time; re-pairings are drawn among them."""
ROUNDS = 3
LEARNT_FROM = 100_000
SLACK, SLACK_OF_SHARE = 0.005, 0.15
"""Images none of whose texts suits them, beyond those that single moves explain: how many there may be, as a share, and
how many more per share of mismatches, since some pictures are hard to judge by any text. One standard error on top."""


def vouched(pairs: Pairs, heard: Testimony, probability: Array, seed: int = 0) -> Testimony | None:
    """What the witness and the other texts of each image say together; None where these say nothing or mislead.

    probability: that each pair is mismatched, by what was heard; a text that is probably wrong vouches for little.
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
    said = _ask(pairs, heard, probability, wording, asked, np.random.default_rng(seed))
    evidence, null_evidence = (
        _evidence(*(normal_scale(side[:, i], said.null[:, i]) for i in (0, 1)))
        for side in (said.given, said.null)
    )
    together, null_together = _learnt(evidence, null_evidence, seed)
    share = mismatched_share(together, null_together)
    by_chance = float((share ** np.bincount(pairs.image_of, minlength=len(several))[several]).mean())
    moved = mismatched_share(said.best, said.null_best)
    by_luck = (moved * (1 - moved) / len(said.best)) ** 0.5
    if moved - by_chance > SLACK + SLACK_OF_SHARE * share + by_luck:
        return None
    scores = np.zeros(len(pairs))
    scores[asked] = together
    others = rank_in_null(heard.scores[~asked], heard.null_scores)
    scores[~asked] = np.quantile(null_together, others)
    return Testimony(scores, null_together, said.null_images, heard.witness)


def _wordings(pairs: Pairs) -> Index:
    """A number per text, the same for the same text: one that is there twice does not vouch for itself."""
    numbers: dict[str | int, int] = {}
    every = pairs.texts if pairs.text_vectors is None else (hash(row.tobytes()) for row in pairs.text_vectors)
    return np.array([numbers.setdefault(text, len(numbers)) for text in every], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _Said:
    """What was measured.

    given: agreement of each pair asked about with its image and with the other texts, n x 2. null: the same of
    re-pairings, m x 2; null_images: of which images. best: the best agreement with its image that any text of an
    image has, one an image; null_best: with another image.
    """

    given: Array
    null: Array
    null_images: Index
    best: Array
    null_best: Array


def _ask(
    pairs: Pairs,
    heard: Testimony,
    probability: Array,
    wording: Index,
    asked: NDArray[np.bool_],
    rng: np.random.Generator,
) -> _Said:
    """Measure the pairs that are asked about, and re-pairings of them, by models that have not seen them."""
    all_rows = np.flatnonzero(asked)
    given = np.zeros((len(all_rows), 2))
    null: list[Array] = []
    null_images: list[Index] = []
    best: list[Array] = []
    null_best: list[Array] = []
    times = int(np.clip(NULLS // len(all_rows), 2, 20))
    fold = heard.witness.fold[pairs.image_of[all_rows]]
    for k in range(len(heard.witness.models)):
        for places in _by_images(np.flatnonzero(fold == k), pairs.image_of[all_rows]):
            rows = all_rows[places]
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
            best.append(part.best(0))
            for _ in range(times):
                text = rng.permutation(len(rows))
                moved = np.flatnonzero(image[text] != image)
                null.append(part.scores(moved, text[moved]))
                null_images.append(held[image[moved]])
                null_best.append(part.best(int(rng.integers(1, max(2, len(held))))))
    return _Said(
        given,
        np.concatenate(null),
        np.concatenate(null_images),
        np.concatenate(best),
        np.concatenate(null_best),
    )


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

    def best(self, further: int) -> Array:
        """The best agreement that a text of each image has with the image so many places further on."""
        images = int(self.image.max()) + 1
        best = np.full(images, -np.inf)
        agreement = self.agreement((self.image + further) % images, np.arange(len(self.image)))
        np.maximum.at(best, self.image, agreement)
        return best


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
