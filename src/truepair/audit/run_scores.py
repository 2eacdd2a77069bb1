"""An audit of what trained matchers say: the re-pairing null over their scores."""

import numpy as np

from truepair.audit.gallery import Example
from truepair.audit.matcher_scores import REPAIRINGS, Ensemble, Rows, Vector, repairings
from truepair.audit.proposals import Best, proposal_confidence
from truepair.audit.result import AuditResult, Proposals, diagnostic
from truepair.audit.searches import search_examples
from truepair.beliefs.null import flag, mismatch_probability, rank_in_null
from truepair.beliefs.share import estimate_share
from truepair.pairs.batch import BatchReader
from truepair.pairs.core import Pairs
from truepair.training.fit import load_networks
from truepair.training.run import Run


def run_audit(
    pairs: Pairs, run: Run, *, error_rate: float, seed: int, shown: bool = False
) -> tuple[AuditResult, list[Example]]:
    """Verdicts about a run's training pairs by its own networks, which have seen them."""
    networks, _ = load_networks(run, "best")
    ensemble = Ensemble(networks, BatchReader(pairs, run.vocabulary()))
    everything = np.arange(len(pairs))
    scores = ensemble.score(pairs.image_of, everything, label="given pairs", shown=shown)
    images, texts = repairings(pairs.image_of, everything, REPAIRINGS, np.random.default_rng(seed))
    null_scores = ensemble.score(images, texts, label="random re-pairings", shown=shown)
    every_image = np.arange(pairs.n_images)
    of_text = ensemble.best_images(everything, every_image, shown=shown)
    of_image = ensemble.best_texts(every_image, everything, shown=shown)
    result = judged(pairs, scores, null_scores, images, of_text, of_image, error_rate=error_rate, seed=seed)
    return result, search_examples(pairs, ensemble.scorer(), seed)


def judged(
    pairs: Pairs,
    scores: Vector,
    null_scores: Vector,
    null_images: Rows,
    of_text: Best,
    of_image: Best,
    *,
    error_rate: float,
    seed: int,
) -> AuditResult:
    """The verdicts that follow from scores.

    scores: n. null_scores, null_images: m, of random re-pairings and the image of each. of_text: the best other image
    of each text, n. of_image: the best other text of each image.
    """
    noise = estimate_share(scores, null_scores, pairs.image_of, null_images, seed)
    probability = mismatch_probability(scores, null_scores, noise.share)
    of_pair = Best(of_image.rows[pairs.image_of], of_image.scores[pairs.image_of])
    return AuditResult(
        scores=scores,
        null_scores=null_scores,
        match_score=rank_in_null(scores, null_scores),
        mismatch_probability=probability,
        is_mismatch=flag(probability, error_rate, noise.kind),
        share=noise.share,
        interval=(noise.low, noise.high),
        diagnostic=diagnostic(noise),
        other_text=Proposals(of_pair.rows, proposal_confidence(of_pair, probability)),
        other_image=Proposals(of_text.rows, proposal_confidence(of_text, probability)),
        unsupported=[[] for _ in range(len(pairs))],
        error_rate=error_rate,
    )
