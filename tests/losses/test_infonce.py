import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from truepair.losses.infonce import info_nce, matching_probabilities

matrices = st.integers(1, 6).flatmap(
    lambda n: arrays(np.float32, (n, n), elements=st.floats(-1, 1, width=32, allow_subnormal=False))
)


def loops(similarity, temperature, target):
    """Cross-entropy in both directions against an n x n target, term by term."""
    n = len(similarity)
    result = []
    for i in range(n):
        row = sum(math.exp(similarity[i][k] / temperature) for k in range(n))
        column = sum(math.exp(similarity[k][i] / temperature) for k in range(n))
        loss = 0.0
        for j in range(n):
            loss -= target[i][j] * math.log(math.exp(similarity[i][j] / temperature) / row)
            loss -= target[j][i] * math.log(math.exp(similarity[j][i] / temperature) / column)
        result.append(loss)
    return result


@pytest.fixture
def similarity():
    return torch.rand(7, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 2 - 1


@pytest.mark.parametrize("labels", ["none", "vector", "matrix"])
def test_equals_the_cross_entropy_written_as_loops(similarity, labels):
    g = torch.Generator().manual_seed(4)
    given_labels, target = {
        "none": (None, torch.eye(7)),
        "vector": (v := torch.rand(7, generator=g, dtype=torch.float64), torch.diag(v)),
        "matrix": (m := torch.rand(7, 7, generator=g, dtype=torch.float64), m),
    }[labels]
    expected = torch.tensor(loops(similarity.tolist(), 0.1, target.tolist()), dtype=torch.float64)
    torch.testing.assert_close(info_nce(similarity, 0.1, given_labels), expected)


def test_probabilities_equal_the_definition(similarity):
    i2t, t2i = matching_probabilities(similarity, 0.05)
    s = similarity.tolist()
    for i in range(7):
        for j in range(7):
            top = math.exp(s[i][j] / 0.05)
            assert i2t[i, j].item() == pytest.approx(top / sum(math.exp(s[i][k] / 0.05) for k in range(7)))
            assert t2i[i, j].item() == pytest.approx(top / sum(math.exp(s[k][j] / 0.05) for k in range(7)))


def test_published_crcl_positive_term(oracle, oracle_settings):
    z, tau = oracle("crcl"), oracle_settings("crcl")["tau"]
    for schedule, epoch in np.ndindex(2, 4):
        values = info_nce(torch.tensor(z["sims"][schedule, epoch]), tau)
        expected = float(z["mean_positive_term"][schedule, epoch])
        assert values.mean().item() == pytest.approx(expected, rel=1e-5)


def test_published_crcl_labels_at_the_end_of_the_freeze(oracle, oracle_settings):
    """There CRCL stores the plain mean of the two probabilities of every given pair."""
    z, tau = oracle("crcl"), oracle_settings("crcl")["tau"]
    i2t, t2i = matching_probabilities(torch.tensor(z["sims"][0, 1]), tau)
    label = (i2t.diagonal() + t2i.diagonal()) / 2
    torch.testing.assert_close(label, torch.tensor(z["label_store_after"][0, 1]), rtol=1e-5, atol=1e-7)


@given(matrices, st.sampled_from([0.05, 0.1, 1.0]))
def test_probabilities_sum_to_one(matrix, temperature):
    i2t, t2i = matching_probabilities(torch.tensor(matrix), temperature)
    torch.testing.assert_close(i2t.sum(dim=1), torch.ones(len(matrix)))
    torch.testing.assert_close(t2i.sum(dim=0), torch.ones(len(matrix)))


@given(matrices)
def test_order_of_pairs_does_not_matter(matrix):
    similarity = torch.tensor(matrix)
    order = torch.randperm(len(similarity), generator=torch.Generator().manual_seed(1))
    shuffled = info_nce(similarity[order][:, order], 0.1)
    torch.testing.assert_close(shuffled, info_nce(similarity, 0.1)[order], rtol=1e-4, atol=1e-5)


@given(matrices, st.floats(-3, 3))
def test_shifting_every_similarity_changes_nothing(matrix, shift):
    similarity = torch.tensor(matrix, dtype=torch.float64)
    torch.testing.assert_close(info_nce(similarity + shift, 0.05), info_nce(similarity, 0.05))


def test_a_pair_that_is_not_believed_trains_nothing(similarity):
    similarity.requires_grad_()
    labels = torch.tensor([1.0, 0, 0, 0, 0, 0, 0])
    values = info_nce(similarity, 0.1, labels)
    assert values[1:].tolist() == [0] * 6
    assert values[0] > 0
    values.sum().backward()
    assert similarity.grad[1:, 1:].abs().max() == 0


def test_one_pair_costs_nothing():
    values = info_nce(torch.tensor([[0.3]]), 0.05)
    assert values.tolist() == [0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_finite_where_a_softmax_underflows(dtype):
    similarity = (-torch.eye(4) * 2 + 1).to(dtype).requires_grad_()
    values = info_nce(similarity, 0.005)
    assert values.dtype == torch.float32
    assert values.tolist() == pytest.approx([2 * (2 / 0.005 + math.log(3))] * 4, rel=1e-3)
    values.sum().backward()
    assert torch.isfinite(similarity.grad).all()


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(ValueError, match="square"):
        info_nce(torch.zeros(2, 3), 0.1)
    with pytest.raises(ValueError, match="temperature"):
        matching_probabilities(torch.zeros(2, 2), 0.0)
