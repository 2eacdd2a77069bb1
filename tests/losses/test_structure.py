import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from truepair.losses.structure import inter_structure, intra_structure, semantic_constrained


def pairs_of_matrices(square):
    sizes = st.tuples(st.integers(1, 6), st.integers(1, 6)).map(lambda s: (s[0], s[0]) if square else s)
    entries = st.floats(-1, 1, width=32)
    return sizes.flatmap(lambda s: st.tuples(*[hnp.arrays(np.float64, s, elements=entries)] * 2)).map(
        lambda both: tuple(torch.as_tensor(m) for m in both)
    )


@pytest.fixture
def matrices():
    draw = torch.Generator().manual_seed(5)
    return [torch.rand(4, 4, generator=draw, dtype=torch.float64) * 2 - 1 for _ in range(3)]


def test_equals_the_equations_written_as_loops(matrices):
    images, texts, cross = matrices
    n = 4
    intra = inter = 0.0
    for i in range(n):
        for j in range(n):
            intra += float(images[i, j] - texts[i, j]) ** 2
            inter -= float(cross[i, j] - cross[j, i]) ** 2
    assert float(intra_structure(images, texts, "sum").sum()) == pytest.approx(intra)
    assert float(inter_structure(cross, cross.T, "sum").sum()) == pytest.approx(inter)
    assert float(intra_structure(images, texts).mean()) == pytest.approx(intra / n**2)
    assert float(inter_structure(cross, cross.T).mean()) == pytest.approx(inter / n**2)


def test_entries_belong_to_their_pairs(matrices):
    images, texts, cross = matrices
    intra, inter = intra_structure(images, texts), inter_structure(cross, cross.T)
    for i in range(4):
        assert float(intra[i]) == pytest.approx(float(((images[i] - texts[i]) ** 2).sum()) / 4)
        assert float(inter[i]) == pytest.approx(-float(((cross[i] - cross[:, i]) ** 2).sum()) / 4)


def test_the_sum_of_the_parts_is_the_loss_of_the_batch(matrices):
    images, texts, cross = matrices
    triplet = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    loss = semantic_constrained(
        triplet,
        intra_structure(images, texts),
        inter_structure(cross, cross.T),
        intra_weight=2.0,
        inter_weight=0.5,
    ).mean()
    expected = triplet.mean() + 2 * ((images - texts) ** 2).mean() - 0.5 * ((cross - cross.T) ** 2).mean()
    torch.testing.assert_close(loss, expected)


@given(pairs_of_matrices(square=False))
def test_is_bounded_for_cosines_and_may_be_taken_over_anchors(matrices):
    left, right = matrices
    intra, inter = intra_structure(left, right), inter_structure(left, right)
    assert intra.shape == (len(left),)
    assert ((intra >= 0) & (intra <= 4)).all()
    assert ((inter <= 0) & (inter >= -4)).all()


@given(pairs_of_matrices(square=True), st.integers(0, 100))
def test_does_not_depend_on_the_order_of_the_batch(matrices, seed):
    left, right = matrices
    shuffled = torch.randperm(len(left), generator=torch.Generator().manual_seed(seed))
    moved = [m[shuffled][:, shuffled] for m in matrices]
    torch.testing.assert_close(intra_structure(*moved), intra_structure(left, right)[shuffled])
    torch.testing.assert_close(inter_structure(moved[0], moved[0].T), inter_structure(left, left.T)[shuffled])


def test_agreeing_structures_cost_nothing(matrices):
    images = matrices[0]
    symmetric = images + images.T
    assert intra_structure(images, images).abs().max() == 0
    assert inter_structure(symmetric, symmetric.T).abs().max() == 0


def test_survives_awkward_similarities(awkward):
    loss = semantic_constrained(
        torch.zeros(len(awkward)), intra_structure(awkward, awkward.T), inter_structure(awkward, awkward.T)
    )
    loss.mean().backward()
    assert loss.isfinite().all()
    assert awkward.grad.isfinite().all()
    assert loss.dtype == torch.float32
