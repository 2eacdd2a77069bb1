"""The quick audit: which pairs are wrong, from the data alone, in seconds."""

from truepair.audit.evidence import unsupported_words
from truepair.audit.proposals import contests, proposal_confidence
from truepair.audit.result import AuditResult, Proposals, diagnostic
from truepair.beliefs.judgement import judge
from truepair.beliefs.null import flag, rank_in_null
from truepair.beliefs.siblings import swapped_share
from truepair.beliefs.witness import Testimony
from truepair.pairs.core import Pairs


def quick_audit(
    pairs: Pairs, *, error_rate: float = 0.05, seed: int = 0, heard: Testimony | None = None
) -> AuditResult:
    """Let the linear witness and the other texts of each image judge the pairs, against random re-pairings.

    error_rate: each flagged pair may be a true one with this probability. The same seed gives the same answer.
    heard: what the witness has said already, if it was asked.
    """
    judgement = judge(pairs, seed, heard)
    testimony, noise, probability = judgement.testimony, judgement.noise, judgement.probability
    witness = testimony.witness
    swapped = swapped_share(pairs, witness, judgement.by_witness, seed)
    is_mismatch = flag(probability, error_rate, noise.kind)
    texts, images = contests(pairs, witness, probability)
    return AuditResult(
        scores=testimony.scores,
        null_scores=testimony.null_scores,
        match_score=rank_in_null(testimony.scores, testimony.null_scores),
        mismatch_probability=probability,
        is_mismatch=is_mismatch,
        share=noise.share,
        interval=(noise.low, noise.high),
        diagnostic=diagnostic(noise, swapped),
        other_text=Proposals(texts.rows, proposal_confidence(texts, probability)),
        other_image=Proposals(images.rows, proposal_confidence(images, probability)),
        unsupported=unsupported_words(pairs, witness),
        error_rate=error_rate,
        share_alone=judgement.by_witness.share if judgement.with_texts else None,
    )
