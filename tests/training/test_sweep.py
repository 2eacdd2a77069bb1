import torch

from truepair.training.sweep import NULLS_PER_PAIR, repaired, sweep


class Looked:
    """Scores that are given."""

    def __init__(self, similarity):
        self.constant = similarity


class Losses:
    """A method that takes the diagonal for a loss."""

    def sweep(self, scores):
        return {"loss": -scores.constant.diagonal(), "other": scores.constant.diagonal().double() * 2}


def test_nulls_are_similarities_of_other_pairs_with_other_images():
    n = 20
    similarity = torch.arange(float(n * n)).view(n, n)
    images = torch.arange(n) // 3
    nulls = repaired(similarity, images)
    assert nulls.shape == (n, NULLS_PER_PAIR)
    for i in range(n):
        entries = [divmod(int(value), n) for value in nulls[i] if value.isfinite()]
        assert len(entries) == len(set(entries)) >= NULLS_PER_PAIR - 2
        assert all(row == i and images[column] != images[i] for row, column in entries)


def test_small_batches_never_give_a_pair_itself():
    for n in (1, 2, 5):
        nulls = repaired(torch.eye(n) + 1, torch.arange(n))
        assert not bool((nulls == 2).any())
        assert bool(nulls.isfinite().any()) == (n > 1)


def test_a_sweep_puts_every_pair_in_its_place():
    torch.manual_seed(0)
    order, similarity = torch.randperm(10), torch.randn(10, 10)
    batches = [(rows, rows, Looked(similarity[rows][:, rows])) for rows in order.split(5)]
    found = sweep(Losses(), iter(batches), 10)
    assert torch.equal(found.scores, similarity.diagonal())
    assert torch.equal(found.values["loss"], -similarity.diagonal())
    assert torch.equal(found.values["other"], similarity.diagonal() * 2)
    assert found.null_scores.shape == (10, NULLS_PER_PAIR)
