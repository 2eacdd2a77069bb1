"""An audit of what trained matchers say: the re-pairing null over their scores."""

from collections.abc import Sequence

import numpy as np

from truepair.audit.gallery import Example
from truepair.audit.matcher_scores import Ensemble, Hearing, Rows
from truepair.audit.proposals import Contest, proposal_confidence
from truepair.audit.result import AuditResult, Proposals, diagnostic
from truepair.audit.searches import pool, search_examples
from truepair.beliefs.null import flag, mismatch_probability, rank_in_null
from truepair.beliefs.share import NoiseShare, estimate_share
from truepair.pairs.batch import BatchReader
from truepair.pairs.core import Pairs
from truepair.training.fit import load_networks
from truepair.training.run import Run


def run_audit(
    pairs: Pairs, run: Run, quick: AuditResult, *, seed: int, shown: bool = False
) -> tuple[AuditResult, list[Example], float]:
    """Verdicts about a run's training pairs by its own networks, some searches, and the share by their own scores.

    quick: what the data alone says. The networks have seen the pairs, and a wrong pair that was learnt by heart scores
    like a true one: the share by their scores is too low, perhaps nothing at all. So the share is taken from the data.
    """
    networks, _ = load_networks(run, "best")
    ensemble = Ensemble(networks, BatchReader(pairs, run.vocabulary()))
    everything, images = np.arange(len(pairs)), np.arange(pairs.n_images)
    heard = ensemble.hear(everything, images, np.random.default_rng(seed), shown=shown)
    own = estimate_share(heard.scores, heard.null_scores, pairs.image_of, heard.null_images, seed)
    result = judged(pairs, [heard], quick)
    return result, ensemble_examples(pairs, ensemble, everything, seed), own.share


def judged(
    pairs: Pairs, hearings: Sequence[Hearing], quick: AuditResult, noise: NoiseShare | None = None
) -> AuditResult:
    """The verdicts that follow from what was heard about all pairs and all images, each once.

    quick: what the data alone says, for evidence in words; and for the share of mismatches where noise is None.
    """
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
    own = pairs.image_of
    texts = Contest(of_image.rows[own], of_image.best[own], of_image.others[own], scores)
    images = Contest(of_text.rows, of_text.best, of_text.others, scores)

    share = quick.share if noise is None else noise.share
    kind = quick.diagnostic.kind if noise is None else noise.kind
    probability = mismatch_probability(scores, null_scores, share)
    return AuditResult(
        scores=scores,
        null_scores=null_scores,
        match_score=rank_in_null(scores, null_scores),
        mismatch_probability=probability,
        is_mismatch=flag(probability, quick.error_rate, kind),
        share=share,
        interval=quick.interval if noise is None else (noise.low, noise.high),
        diagnostic=quick.diagnostic if noise is None else diagnostic(noise),
        other_text=Proposals(texts.rows, proposal_confidence(texts, probability)),
        other_image=Proposals(images.rows, proposal_confidence(images, probability)),
        unsupported=quick.unsupported,
        error_rate=quick.error_rate,
    )


def ensemble_examples(pairs: Pairs, ensemble: Ensemble, rows: Rows, seed: int) -> list[Example]:
    """Searches by the networks among some of these pairs."""
    texts, images = pool(pairs, rows, seed)
    return search_examples(pairs, images, texts, ensemble.matrix(images, texts), seed)
