"""An audit of what trained matchers say: the re-pairing null over their scores."""

from collections.abc import Sequence

import numpy as np

from truepair.audit.gallery import Example
from truepair.audit.matcher_scores import Ensemble, Hearing, Rows
from truepair.audit.proposals import Contest, proposal_confidence
from truepair.audit.result import AuditResult, Proposals, diagnostic
from truepair.audit.searches import pool, search_examples
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
    everything, images = np.arange(len(pairs)), np.arange(pairs.n_images)
    heard = ensemble.hear(everything, images, np.random.default_rng(seed), shown=shown)
    result = judged(pairs, [heard], error_rate=error_rate, seed=seed)
    return result, ensemble_examples(pairs, ensemble, everything, seed)


def judged(pairs: Pairs, hearings: Sequence[Hearing], *, error_rate: float, seed: int) -> AuditResult:
    """The verdicts that follow from what was heard about all pairs and all images, each once."""
    scores = np.zeros(len(pairs))
    of_text, of_image = Contest.empty(len(pairs)), Contest.empty(pairs.n_images)
    for heard in hearings:
        scores[heard.rows] = heard.scores
        for contest, places, best in (
            (of_text, heard.rows, heard.of_text),
            (of_image, heard.images, heard.of_image),
        ):
            contest.rows[places], contest.best[places] = best.rows, best.scores
            contest.others[places] = best.others
    null_scores = np.concatenate([heard.null_scores for heard in hearings])
    null_images = np.concatenate([heard.null_images for heard in hearings])
    own = pairs.image_of
    texts = Contest(of_image.rows[own], of_image.best[own], of_image.others[own], scores)
    images = Contest(of_text.rows, of_text.best, of_text.others, scores)

    noise = estimate_share(scores, null_scores, own, null_images, seed)
    probability = mismatch_probability(scores, null_scores, noise.share)
    return AuditResult(
        scores=scores,
        null_scores=null_scores,
        match_score=rank_in_null(scores, null_scores),
        mismatch_probability=probability,
        is_mismatch=flag(probability, error_rate, noise.kind),
        share=noise.share,
        interval=(noise.low, noise.high),
        diagnostic=diagnostic(noise),
        other_text=Proposals(texts.rows, proposal_confidence(texts, probability)),
        other_image=Proposals(images.rows, proposal_confidence(images, probability)),
        unsupported=[[] for _ in range(len(pairs))],
        error_rate=error_rate,
    )


def ensemble_examples(pairs: Pairs, ensemble: Ensemble, rows: Rows, seed: int) -> list[Example]:
    """Searches by the networks among some of these pairs."""
    texts, images = pool(pairs, rows, seed)
    return search_examples(pairs, images, texts, ensemble.matrix(images, texts), seed)
