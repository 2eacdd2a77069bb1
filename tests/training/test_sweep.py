import torch

from truepair.training.sweep import sweep


class Looked:
    """Scores that are given."""

    def __init__(self, similarity):
        self.constant = similarity


class Losses:
    """A method that takes the diagonal for a loss."""

    def sweep(self, scores):
        return {"loss": -scores.constant.diagonal(), "other": scores.constant.diagonal().double() * 2}


def test_a_sweep_puts_every_pair_in_its_place():
    torch.manual_seed(0)
    order, similarity, decoys = torch.randperm(10), torch.randn(10, 10), torch.arange(10) == 3
    batches = [(rows, Looked(similarity[rows][:, rows])) for rows in order.split(5)]
    found = sweep(Losses(), iter(batches), decoys)
    assert torch.equal(found.scores, similarity.diagonal())
    assert torch.equal(found.values["loss"], -similarity.diagonal())
    assert torch.equal(found.values["other"], similarity.diagonal() * 2)
    assert torch.equal(found.decoys, decoys)
