"""What is compared: steps of training, similarities, recall, mixtures, words; reduced sizes, for a processor."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from nltk.tokenize import NLTKWordTokenizer
from sklearn.mixture import GaussianMixture
from torch import Tensor

from speed import reference
from speed.measure import Item
from truepair.beliefs.ledger import Ledger
from truepair.beliefs.mixtures import fit_beta, fit_gaussian
from truepair.evaluation.recall import recall
from truepair.evaluation.two_stage import Size, matcher_stages, two_stage_ranks
from truepair.losses.triplet import Negatives
from truepair.matchers.base import lengths_to_mask
from truepair.matchers.registry import build_matcher
from truepair.methods.base import Step
from truepair.methods.crcl import CRCL
from truepair.pairs.text import tokenize_all
from truepair.training.schedule import Clock
from truepair.training.scores import Scores

BATCH, REGIONS, WIDTH, EMBEDDING, SIMILARITY, WORDS = 128, 36, 256, 256, 64, 2000
MARGIN = 0.2
SCORED = {"sgr": 0.109, "saf": 0.109}
"""Shares of all pairs that shortlists hold, as `python -m speed.trained` measures them: 0.109 for an SGR of two epochs.
An SAF of one epoch asked for 0.337; a longer trained one has not been measured, so its entry is an assumption."""


def all_items() -> dict[str, Callable[[], Item]]:
    """Items by name; making one draws its data."""
    return {
        "SGR step, hardest negatives": lambda: alignment_step("sgr", "hardest", 4.0),
        "SGR step, all negatives": lambda: alignment_step("sgr", "mean", 2.5),
        "SAF step": lambda: alignment_step("saf", "hardest", 2.2),
        "SGR similarity": lambda: alignment_similarity("sgr"),
        "SAF similarity": lambda: alignment_similarity("saf"),
        "SGR similarity two-stage": lambda: two_stage_similarity("sgr"),
        "SAF similarity two-stage": lambda: two_stage_similarity("saf"),
        "VSE-infinity + CRCL step": vse_step,
        "recall, 5,000 x 25,000": recalls,
        "Gaussian mixture, 145,000 values": gaussian,
        "Beta mixture, 145,000 values": beta,
        "tokenising 20,000 captions": tokens,
    }


def matcher_of(kind: str, **options: Any) -> Any:
    """A matcher of the reduced sizes with the same weights every time."""
    torch.manual_seed(0)
    return build_matcher(
        kind,
        image_width=WIDTH,
        vocabulary_size=WORDS,
        embedding=EMBEDDING,
        word_width=128,
        **options,
    )


def batch_of(images: int, texts: int, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Regions, words and lengths as long as captions are: about twelve words."""
    torch.manual_seed(seed)
    lengths = (12 + 4 * torch.randn(texts)).round().clamp(5, 25).long()
    words = torch.randint(4, WORDS, (texts, int(lengths.max())))
    return (
        torch.randn(images, REGIONS, WIDTH),
        words * lengths_to_mask(lengths, words.shape[1]),
        lengths,
    )


def trained(matcher: Any, loss: Callable[[], Tensor]) -> Callable[[], tuple[float, Tensor]]:
    """A whole step: loss, gradients, clipping, Adam with rate 0 (the same work, but the weights stay comparable)."""
    optimiser = torch.optim.Adam(matcher.parameters(), lr=0.0)

    def step() -> tuple[float, Tensor]:
        value = loss()
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        gradient = torch.cat([p.grad.flatten() for p in matcher.parameters() if p.grad is not None])
        torch.nn.utils.clip_grad_norm_(matcher.parameters(), 2.0)
        optimiser.step()
        return value.item(), gradient

    return step


def steps_differ(ours: tuple[float, Tensor], plain: tuple[float, Tensor]) -> float:
    """The larger of the relative differences of loss and gradient."""
    loss = abs(ours[0] - plain[0]) / max(abs(plain[0]), 1e-12)
    return max(loss, float((ours[1] - plain[1]).norm() / plain[1].norm()))


def alignment_step(kind: str, negatives: Negatives, wanted: float) -> Item:
    """SGR or SAF with the triplet loss on a batch of 128."""
    matcher = matcher_of(kind, similarity=SIMILARITY, dropout=0.0).train()
    regions, words, lengths = batch_of(BATCH, BATCH)
    plain_loss = reference.hardest_triplet if negatives == "hardest" else reference.mean_triplet

    def ours() -> Tensor:
        images, texts = matcher.encode_images(regions), matcher.encode_texts(words, lengths)
        return Scores(matcher, images, texts).triplet(MARGIN, negatives).sum()

    def plain() -> Tensor:
        images = matcher.encode_images(regions)
        texts = reference.alignment_texts(matcher, words, lengths)
        return plain_loss(reference.similarity(matcher, images, texts), MARGIN)

    name = f"{kind.upper()} step" + (", all negatives" if negatives == "mean" else "")
    name += ", hardest negatives" if kind == "sgr" and negatives == "hardest" else ""
    return Item(name, trained(matcher, ours), trained(matcher, plain), steps_differ, wanted, counted=True)


def alignment_similarity(kind: str, images: int = 200, texts: int = 1000) -> Item:
    """The similarities of a test set, the encoders left out on both sides."""
    matcher = matcher_of(kind, similarity=SIMILARITY).eval()
    regions, words, lengths = batch_of(images, texts)
    with torch.no_grad():
        codes = matcher.encode_images(regions), matcher.encode_texts(words, lengths)

    @torch.inference_mode()
    def ours() -> Tensor:
        return matcher.similarity(*codes)

    @torch.inference_mode()
    def plain() -> Tensor:
        return reference.similarity(matcher, *codes)

    return Item(
        f"{kind.upper()} similarity",
        ours,
        plain,
        lambda a, b: float((a - b).abs().max()),
        2.5,
        3,
        counted=True,
    )


def two_stage_similarity(kind: str, images: int = 1000, texts: int = 5000, loops: int = 250) -> Item:
    """Ranks of a test set from shortlists of a trained matcher's length, against the loop over a part of the texts."""
    matcher = matcher_of(kind, similarity=SIMILARITY).eval()
    regions, words, lengths = batch_of(images, texts)
    with torch.no_grad():
        codes = matcher.encode_images(regions), matcher.encode_texts(words, lengths)
    stages = matcher_stages([matcher], [codes])
    owners = np.arange(texts) // (texts // images)
    # Without training the lists of both directions have nothing in common: shorter ones hold as many pairs.
    size = Size.of_share(1 - (1 - SCORED[kind]) ** 0.5, images, texts)
    some = codes[0], codes[1].take(slice(0, loops))

    def ours() -> list[Any]:
        scored: list[Any] = []

        def listed(rows: Any, columns: Any) -> Any:
            scores = stages.listed(rows, columns)
            scored.append((rows, columns, scores[0]))
            return scores

        two_stage_ranks(replace(stages, listed=listed), owners, size, shown=False)
        return scored

    @torch.inference_mode()
    def plain() -> Tensor:
        return reference.similarity(matcher, *some)

    def difference(found: list[Any], whole: Tensor) -> float:
        rows, columns, scores = (np.concatenate(parts) for parts in zip(*found, strict=True))
        there = columns < loops
        return float(np.abs(whole.numpy()[rows[there], columns[there]] - scores[there]).max())

    name = f"{kind.upper()} similarity two-stage, {images:,} x {texts:,}"
    return Item(name, ours, plain, difference, 15.0, 3, part=loops / texts)


def vse_step() -> Item:
    """VSE-infinity with CRCL's loss; a fifth of the regions is missing."""
    matcher = matcher_of("vse_infty").train()
    regions, words, lengths = batch_of(BATCH, BATCH)
    counts = torch.randint(22, REGIONS + 1, (BATCH,))
    mask = lengths_to_mask(counts, REGIONS)
    regions = regions * mask[..., None]
    labels = torch.linspace(0.1, 1.0, BATCH)
    method, clock = CRCL(correction=False), Clock(0, 0, 5, (10,))
    ledger = Ledger.blank(1, BATCH, labels)

    def ours() -> Tensor:
        scores = Scores(matcher, matcher.encode_images(regions, mask), matcher.encode_texts(words, lengths))
        step = Step(torch.arange(BATCH), 0, scores, list, lambda: scores, "all", clock, lambda: regions)
        return method.loss(step, ledger).mean()

    def plain() -> Tensor:
        images = reference.vse_images(matcher, regions, counts)
        texts = reference.vse_texts(matcher, words, lengths)
        return reference.crcl_loss(images @ texts.T, labels, method.temperature, method.complement_weight)

    return Item(
        "VSE-infinity + CRCL step",
        trained(matcher, ours),
        trained(matcher, plain),
        steps_differ,
        1.3,
        11,
        counted=True,
    )


def recalls() -> Item:
    """MS-COCO's 5K protocol on a matrix of scores."""
    rng = np.random.default_rng(0)
    image_of = np.arange(25_000) // 5
    scores = rng.standard_normal((5000, 25_000), dtype=np.float32)
    scores[image_of, np.arange(25_000)] += 4

    def ours() -> list[float]:
        both = recall(scores, image_of)
        return [getattr(side, k) for side in (both.i2t, both.t2i) for k in ("r1", "r5", "r10")]

    def plain() -> list[float]:
        i2t, t2i = reference.recalls(scores, 5)
        return [*i2t, *t2i]

    return Item(
        "recall, 5,000 x 25,000",
        ours,
        plain,
        lambda a, b: max(abs(x - y) for x, y in zip(a, b, strict=True)),
        30.0,
        3,
    )


def losses(count: int = 145_000) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Normalised losses of clean and noisy pairs, as many as Flickr30K has pairs."""
    rng = np.random.default_rng(0)
    drawn = np.where(rng.random(count) < 0.4, rng.normal(0.6, 0.12, count), rng.gamma(2.0, 0.06, count))
    return np.asarray((drawn - drawn.min()) / (drawn.max() - drawn.min()))


def gaussian() -> Item:
    """Against scikit-learn as the published codes call it."""
    values = losses()

    def ours() -> Any:
        return fit_gaussian(values).posterior(values)

    def plain() -> Any:
        mixture = GaussianMixture(n_components=2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=0)
        posterior = mixture.fit(values[:, None]).predict_proba(values[:, None])
        return posterior[:, mixture.means_.argmin()]

    return Item(
        "Gaussian mixture, 145,000 values", ours, plain, lambda a, b: float(np.abs(a - b).max()), 50.0
    )


def beta() -> Item:
    """Against expectation maximisation over single values, as BiCro publishes it."""
    values = losses()

    def ours() -> Any:
        return fit_beta(values).posterior(values)

    def difference(a: Any, b: Any) -> float:
        return float(np.abs(a - b)[values > 0].max())  # the published value at 0 is not a number

    return Item(
        "Beta mixture, 145,000 values", ours, lambda: reference.beta_posterior(values), difference, 50.0
    )


def tokens() -> Item:
    """Common words, in every fourth caption one that needs a rule; our memory of words is warm, as it is in use."""
    rng = np.random.default_rng(0)
    common = [
        f"{a}{b}" for a in ("man", "dog", "red", "tree", "walk", "beach") for b in ("", "s", "ing", "ed")
    ]
    rare = ["don't", "girl's", "(left)", "t-shirt,", '"stop"', "3.5", "cannot", "it's"]
    captions = []
    for i in range(20_000):
        words = list(rng.choice(common, rng.integers(7, 16)))
        if i % 4 == 0:
            words.insert(int(rng.integers(len(words))), str(rng.choice(rare)))
        captions.append(" ".join(words).capitalize() + " .")
    nltk = NLTKWordTokenizer()

    def plain() -> list[list[str]]:
        return [nltk.tokenize(caption.lower()) for caption in captions]

    return Item(
        "tokenising 20,000 captions",
        lambda: list(tokenize_all(captions)),
        plain,
        lambda a, b: float(sum(x != y for x, y in zip(a, b, strict=True))),
        20.0,
    )
