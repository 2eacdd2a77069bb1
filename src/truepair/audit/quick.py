"""The quick audit: which pairs are wrong, from the data alone, in seconds."""

from truepair.audit.evidence import unsupported_words
from truepair.audit.proposals import contests, proposal_confidence
from truepair.audit.result import AuditResult, Proposals, diagnostic
from truepair.beliefs.null import flag, mismatch_probability, rank_in_null
from truepair.beliefs.share import estimate_share
from truepair.beliefs.siblings import swapped_share
from truepair.beliefs.witness import Testimony, hear
from truepair.pairs.core import Pairs


def quick_audit(
    pairs: Pairs, *, error_rate: float = 0.05, seed: int = 0, heard: Testimony | None = None
) -> AuditResult:
    """Let the linear witness judge the pairs and compare them with random re-pairings.

    error_rate: each flagged pair may be a true one with this probability. The same seed gives the same answer.
    heard: what the witness has said already, if it was asked.
    """
    heard = heard or hear(pairs, seed)
    noise = estimate_share(heard.scores, heard.null_scores, pairs.image_of, heard.null_images, seed)
    probability = mismatch_probability(heard.scores, heard.null_scores, noise.share)
    swapped = swapped_share(pairs, heard.witness, noise, seed)
    is_mismatch = flag(probability, error_rate, noise.kind)
    texts, images = contests(pairs, heard.witness, probability)
    return AuditResult(
        scores=heard.scores,
        null_scores=heard.null_scores,
        match_score=rank_in_null(heard.scores, heard.null_scores),
        mismatch_probability=probability,
        is_mismatch=is_mismatch,
        share=noise.share,
        interval=(noise.low, noise.high),
        diagnostic=diagnostic(noise, swapped),
        other_text=Proposals(texts.rows, proposal_confidence(texts, probability)),
        other_image=Proposals(images.rows, proposal_confidence(images, probability)),
        unsupported=unsupported_words(pairs, heard.witness),
        error_rate=error_rate,
    )
