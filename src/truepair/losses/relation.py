"""Relation consistency of the regions of an image and the words of its text (ReCon: Zha et al., CVPR 2025).

Two regions of an image stand in some relation to each other; so do the two words that describe them. For a
true pair the two relations agree, even though nobody has said which word belongs to which region.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from truepair.beliefs.ledger import Partition
from truepair.losses.precision import full_precision


@dataclass(frozen=True)
class RelationScores:
    """Scores, before any softmax, between the regions (k) and the words (t) of each of n pairs.

    region_region: n x k x k. region_word: n x k x t. word_region: n x t x k. word_word: n x t x t.
    """

    region_region: Tensor
    region_word: Tensor
    word_region: Tensor
    word_word: Tensor

    def swapped(self) -> "RelationScores":
        """The same scores with the parts of regions and words exchanged."""
        return RelationScores(self.word_word, self.word_region, self.region_word, self.region_region)


def cosine_scores(regions: Tensor, words: Tensor, temperature: float = 0.35) -> RelationScores:
    """Scores from the similarities between objects, as the paper's text says.

    regions: n x k x d. words: n x t x d. temperature: divides the cosines; the flatter the relations, the
    less they can disagree.
    """
    regions = functional.normalize(full_precision(regions), dim=-1)
    words = functional.normalize(full_precision(words), dim=-1)
    cross = regions @ words.mT / temperature
    return RelationScores(regions @ regions.mT / temperature, cross, cross.mT, words @ words.mT / temperature)


class RelationProjection(nn.Module):
    """Scores from a learned query and key, shared by both modalities, as in the published fragment."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)

    def forward(self, regions: Tensor, words: Tensor) -> RelationScores:
        """Scaled dot products. regions: n x k x width. words: n x t x width. The loss masks padding."""
        scale = regions.shape[-1] ** -0.5
        region_query, word_query = self.query(regions) * scale, self.query(words) * scale
        region_key, word_key = self.key(regions), self.key(words)
        return RelationScores(
            region_query @ region_key.mT,
            region_query @ word_key.mT,
            word_query @ region_key.mT,
            word_query @ word_key.mT,
        )


def relation_inconsistency(
    scores: RelationScores,
    region_mask: Tensor | None = None,
    word_mask: Tensor | None = None,
    *,
    joint_softmax: bool = False,
) -> Tensor:
    """How much the relations of each pair's regions and words disagree, n, at least 0 (L_IM: Eq. 3-4).

    region_mask: n x k, word_mask: n x t, True where a region or word is real; None when all are. The result
    is 0 exactly when each modality's relations are those of the other modality read at the most similar
    items.

    joint_softmax: as in the published fragment, relations are blocks of one softmax over regions and words
    together that are not normalised again, while their proxy is a softmax over relations that are
    probabilities already. Kept for parity; regions and words that agree perfectly do not get 0 there.
    """
    region_mask = _all_real(scores.region_word, 1) if region_mask is None else region_mask
    word_mask = _all_real(scores.region_word, 2) if word_mask is None else word_mask
    swapped = scores.swapped()
    if joint_softmax:
        regions, words = _joint_relations(scores, region_mask, word_mask)
        region_gap = _divergence_from_proxy(scores.region_word, regions, words.exp(), region_mask, word_mask)
        word_gap = _divergence_from_proxy(swapped.region_word, words, regions.exp(), word_mask, region_mask)
    else:
        regions = _relations(scores.region_region, region_mask)
        words = _relations(scores.word_word, word_mask)
        region_gap = _divergence_from_proxy(
            scores.region_word, regions, scores.word_word, region_mask, word_mask
        )
        word_gap = _divergence_from_proxy(
            swapped.region_word, words, swapped.word_word, word_mask, region_mask
        )
    return region_gap + word_gap


def relation_discrepancy(inconsistency: Tensor) -> Tensor:
    """The inconsistency squeezed into [0, 1), n: near 0 for a true correspondence (y_IM: Eq. 7)."""
    growth = torch.log1p(full_precision(inconsistency))
    return growth / (1 + growth)


def recon_weights(
    partition: Tensor, discrepancy: Tensor, label: Tensor, balance: float = 5.0, scale: float = 0.1
) -> tuple[Tensor, Tensor]:
    """What the cross-modal loss and the relation loss of every pair count, n each (Eq. 9, 11 and 13-15).

    partition: n `Partition` values. discrepancy: n, y_IM. label: n, the pseudo-labels of the noisy pairs.
    balance: xi. scale: alpha, the smaller, the less the relations of a locally associated pair are trusted.
    """
    cross = torch.where(partition == Partition.NOISY, label, balance)
    relation = torch.where(partition == Partition.LOCAL, torch.exp(-discrepancy / scale), 1.0)
    return cross, relation.masked_fill(partition == Partition.NOISY, 0.0)


def _all_real(cross: Tensor, axis: int) -> Tensor:
    return torch.ones(len(cross), cross.shape[axis], dtype=torch.bool, device=cross.device)


def _relations(scores: Tensor, mask: Tensor) -> Tensor:
    """Log relations: rows of a softmax over the real items, n x k x k."""
    scores = full_precision(scores)
    return scores.masked_fill(~mask[:, None, :], torch.finfo(scores.dtype).min).log_softmax(-1)


def _joint_relations(scores: RelationScores, region_mask: Tensor, word_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks of one log softmax over regions and words: region-region n x k x k, word-word n x t x t."""
    regions = region_mask.shape[1]
    mask = torch.cat([region_mask, word_mask], 1)
    upper = _relations(torch.cat([scores.region_region, scores.region_word], 2), mask)
    lower = _relations(torch.cat([scores.word_region, scores.word_word], 2), mask)
    return upper[:, :, :regions], lower[:, :, regions:]


def _divergence_from_proxy(
    cross: Tensor, relations: Tensor, other_scores: Tensor, mask: Tensor, other_mask: Tensor
) -> Tensor:
    """Two-sided divergence of the log relations and their proxy, a mean over the real items, n (Eq. 3-4).

    The proxy is a target: no gradient flows through it, as in the published fragment.

    cross: n x k x t, which item of the other modality is most similar. other_scores: n x t x t, what the
    proxy reads.
    """
    cross = full_precision(cross.detach())
    nearest = cross.masked_fill(~other_mask[:, None, :], -torch.inf).argmax(2)
    rows = nearest[:, :, None].expand(-1, -1, other_scores.shape[2])
    columns = nearest[:, None, :].expand(-1, nearest.shape[1], -1)
    proxy = _relations(other_scores.detach().gather(1, rows).gather(2, columns), mask)
    # KL(p, q) + KL(q, p) = sum of (p - q)(log p - log q)
    gaps = (relations.exp() - proxy.exp()) * (relations - proxy)
    real = mask[:, :, None] & mask[:, None, :]
    return gaps.masked_fill(~real, 0.0).sum((1, 2)) / mask.sum(1).clamp_min(1)
