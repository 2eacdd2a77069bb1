import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from truepair.losses.triplet import (
    hardest_negatives,
    soft_margin,
    triplet,
    triplet_from_scores,
)

FORMS = {"linear": "linear", "exponential": "exponential", "sin": "sine"}
LABELS = {"soft": "soft_labels", "targetsBxB": "targets_labelled_BxB", "unl": "targets_unlabelled"}

matrices = st.integers(1, 7).flatmap(
    lambda n: arrays(np.float32, (n, n), elements=st.sampled_from([-1, -0.5, 0, 0.1, 0.25, 0.3, 0.5, 1]))
)


def loops(similarity, row_margin, column_margin, negatives, same=None):
    """The definition, entry by entry. row_margin[i][j] is image i's margin against text j, and so on."""
    n = len(similarity)
    result = []
    for i in range(n):
        texts, images = [], []
        for j in range(n):
            if i == j or (same is not None and same[i][j]):
                texts.append(0.0)
            else:
                texts.append(max(0.0, row_margin[i][j] + similarity[i][j] - similarity[i][i]))
            if i == j or (same is not None and same[j][i]):
                images.append(0.0)
            else:
                images.append(max(0.0, column_margin[j][i] + similarity[j][i] - similarity[i][i]))
        if negatives == "hardest":
            result.append(max(texts) + max(images))
        else:
            result.append((sum(texts) + sum(images)) / (n if negatives == "mean" else 1))
    return result


@pytest.mark.parametrize("size", ["b8", "b32"])
class TestPublishedNcr:
    def test_losses_without_labels(self, oracle, size):
        z = oracle("ncr_loss")
        similarity = torch.tensor(z[f"{size}_sims"])
        per_pair = triplet(similarity, 0.2, "mean")
        torch.testing.assert_close(per_pair, torch.tensor(z[f"{size}_eval_loss"]), rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(per_pair.sum(), torch.tensor(z[f"{size}_warmup"]), rtol=1e-5, atol=0)
        expected = torch.tensor(z[f"{size}_train_mean_nolabel"])
        torch.testing.assert_close(per_pair.sum(), expected, rtol=1e-5, atol=0)
        expected = torch.tensor(z[f"{size}_train_hard_nolabel"])
        torch.testing.assert_close(triplet(similarity).sum(), expected, rtol=1e-5, atol=0)

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("labels", LABELS)
    def test_soft_margins_and_their_gradients(self, oracle, size, form, labels):
        z = oracle("ncr_loss")
        similarity = torch.tensor(z[f"{size}_sims"], requires_grad=True)
        margin = soft_margin(torch.tensor(z[f"{size}_{LABELS[labels]}"]), 0.2, FORMS[form])
        mean = triplet(similarity, margin, "mean").sum()
        expected = torch.tensor(z[f"{size}_train_mean_{form}_{labels}"])
        torch.testing.assert_close(mean.detach(), expected, rtol=1e-5, atol=0)
        hardest = triplet(similarity, margin).sum()
        expected = torch.tensor(z[f"{size}_train_hard_{form}_{labels}"])
        torch.testing.assert_close(hardest.detach(), expected, rtol=1e-5, atol=0)
        hardest.backward()
        expected = torch.tensor(z[f"{size}_train_hard_{form}_{labels}_grad"])
        torch.testing.assert_close(similarity.grad, expected, rtol=0, atol=1e-6)

    def test_one_margin_per_pair_as_printed_and_as_published(self, oracle, size):
        """In print pair i keeps its margin in both directions; the code takes the negative image's."""
        z = oracle("ncr_loss")
        similarity = torch.tensor(z[f"{size}_sims"])
        margin = soft_margin(torch.tensor(z[f"{size}_soft_labels"]), 0.2, "linear")
        as_published = triplet(similarity, margin)
        as_printed = triplet(similarity, margin[:, 0])
        m = margin.expand(len(margin), len(margin)).tolist()
        transposed = margin.T.expand(len(margin), len(margin)).tolist()
        s = similarity.tolist()
        torch.testing.assert_close(as_published, torch.tensor(loops(s, m, m, "hardest")))
        torch.testing.assert_close(as_printed, torch.tensor(loops(s, m, transposed, "hardest")))
        published_sum = float(z[f"{size}_train_hard_linear_soft"])
        assert as_published.sum().item() == pytest.approx(published_sum, rel=1e-5)
        assert as_printed.sum().item() != pytest.approx(published_sum, rel=1e-3)


class TestPublishedBiCro:
    """Labels of one dimension: the margin follows the text in both directions, printed as each pair's own."""

    @pytest.fixture
    def recorded(self, oracle):
        return {name: torch.as_tensor(value) for name, value in oracle("bicro").items()}

    def test_losses_without_labels(self, recorded):
        per_pair = triplet(recorded["sims_l"], 0.2, "mean")
        torch.testing.assert_close(per_pair, recorded["eval_loss"], rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(per_pair.sum(), recorded["warmup"], rtol=1e-5, atol=0)

    @pytest.mark.parametrize("form", FORMS)
    def test_labels_of_one_dimension_and_their_gradients(self, recorded, form):
        similarity = recorded["sims_l"].requires_grad_()
        margin = soft_margin(recorded["labels_l_train"], 0.2, FORMS[form])
        loss = triplet(similarity, margin[None]).sum()
        loss.backward()
        torch.testing.assert_close(loss.detach(), recorded[f"train_hard_{form}_1d"], rtol=1e-5, atol=0)
        torch.testing.assert_close(similarity.grad, recorded[f"train_hard_{form}_1d_grad"], rtol=0, atol=1e-6)
        as_printed = triplet(similarity, margin).sum()
        assert as_printed.item() != pytest.approx(loss.item(), rel=1e-3)

    def test_labels_as_a_column(self, recorded):
        loss = triplet(recorded["sims_l"], soft_margin(recorded["labels_l_train"], 0.2, "linear")[:, None])
        torch.testing.assert_close(loss.sum(), recorded["train_hard_linear_col"], rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("name", "scores", "hardest", "every"),
    [
        ("scan", "t2i_Mean", "loss_t2i_Mean_maxviolation1", "loss_t2i_Mean_maxviolation0"),
        ("vse_infty", "sims", "loss_maxviolation", "loss_sum"),
    ],
)
def test_published_scan_and_vse_infinity_losses(oracle, name, scores, hardest, every):
    z = oracle(name)
    n = min(z[scores].shape)
    similarity = torch.tensor(z[scores][:n, :n])
    assert triplet(similarity).sum().item() == pytest.approx(float(z[hardest]), rel=1e-5)
    assert triplet(similarity, negatives="sum").sum().item() == pytest.approx(float(z[every]), rel=1e-5)


@pytest.mark.parametrize("negatives", ["hardest", "mean", "sum"])
@pytest.mark.parametrize("shape", ["number", "vector", "column", "row", "matrix"])
def test_equals_the_definition_written_as_loops(negatives, shape):
    g = torch.Generator().manual_seed(3)
    n = 6
    similarity = torch.rand(n, n, generator=g) * 0.5
    same = torch.rand(n, n, generator=g) > 0.7
    margin = {
        "number": 0.2,
        "vector": torch.rand(n, generator=g) / 3,
        "column": torch.rand(n, 1, generator=g) / 3,
        "row": torch.rand(1, n, generator=g) / 3,
        "matrix": torch.rand(n, n, generator=g) / 3,
    }[shape]
    if shape == "number":
        row = column = [[0.2] * n] * n
    elif shape == "vector":
        row = [[float(margin[i])] * n for i in range(n)]
        column = [[float(margin[j]) for j in range(n)] for _ in range(n)]
    else:
        row = column = margin.expand(n, n).tolist()
    for mask in (None, same):
        expected = torch.tensor(
            loops(similarity.tolist(), row, column, negatives, None if mask is None else mask.tolist())
        )
        torch.testing.assert_close(triplet(similarity, margin, negatives, mask), expected)


@pytest.mark.parametrize("shape", ["number", "vector", "matrix"])
def test_three_scores_a_pair_give_the_same_loss_and_gradient(shape):
    g = torch.Generator().manual_seed(5)
    n = 9
    same = torch.rand(n, n, generator=g) > 0.7
    same[2] = True  # an image without any negative text
    margins = {"number": 0.3, "vector": torch.rand(n, generator=g), "matrix": torch.rand(n, n, generator=g)}
    margin = margins[shape]
    full = torch.rand(n, n, generator=g, requires_grad=True)
    expected = triplet(full, margin, same=same)
    expected.sum().backward()

    listed = full.detach().clone().requires_grad_()
    picked = hardest_negatives(listed.detach(), margin if shape == "matrix" else 0.0, same)
    own = torch.arange(n)
    values = triplet_from_scores(
        listed.diagonal(), listed[own, picked.columns], listed[picked.rows, own], margin, picked
    )
    values.sum().backward()
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(listed.grad, full.grad)


def test_hardest_negatives_take_the_first_of_tied_ones():
    similarity = torch.zeros(4, 4)
    picked = hardest_negatives(similarity)
    assert picked.columns.tolist() == [1, 0, 0, 0]
    assert picked.rows.tolist() == [1, 0, 0, 0]


def test_a_matrix_of_margins_needs_the_places():
    with pytest.raises(ValueError, match="picked"):
        triplet_from_scores(torch.ones(2), torch.ones(2), torch.ones(2), torch.ones(2, 2))


@given(matrices, st.sampled_from(["hardest", "mean", "sum"]))
def test_order_of_pairs_does_not_matter(matrix, negatives):
    similarity = torch.tensor(matrix)
    order = torch.randperm(len(similarity), generator=torch.Generator().manual_seed(1))
    shuffled = triplet(similarity[order][:, order], 0.2, negatives)
    torch.testing.assert_close(shuffled, triplet(similarity, 0.2, negatives)[order])


@given(matrices)
def test_the_directions_are_alike(matrix):
    similarity = torch.tensor(matrix)
    torch.testing.assert_close(triplet(similarity), triplet(similarity.T))


@given(matrices, st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
def test_always_finite_never_negative_and_gradients_sum_to_zero(matrix, dtype):
    similarity = torch.tensor(matrix).to(dtype).requires_grad_()
    for negatives in ("hardest", "mean", "sum"):
        similarity.grad = None
        values = triplet(similarity, 0.2, negatives)
        assert values.dtype == torch.float32
        assert torch.isfinite(values).all()
        assert (values >= 0).all()
        values.sum().backward()
        assert torch.isfinite(similarity.grad).all()
        # A hinge only compares: shifting every similarity changes nothing.
        gradient = similarity.grad.float()
        assert gradient.sum().abs() <= 1e-2 * gradient.abs().sum()


def test_one_pair_has_no_negatives():
    similarity = torch.tensor([[0.3]], requires_grad=True)
    for negatives in ("hardest", "mean", "sum"):
        values = triplet(similarity, 0.2, negatives)
        assert values.tolist() == [0.0]
        values.sum().backward()
        assert similarity.grad.tolist() == [[0.0]]
    picked = hardest_negatives(similarity)
    assert (picked.columns.tolist(), picked.rows.tolist()) == ([0], [0])
    assert triplet_from_scores(*[similarity[0]] * 3, 0.2, picked).tolist() == [0.0]


def test_not_a_number_is_not_hidden():
    similarity = torch.eye(3)
    similarity[0, 1] = math.nan
    assert triplet(similarity).isnan().tolist() == [True, True, False]


def test_a_matrix_that_is_not_square_is_refused():
    with pytest.raises(ValueError, match="square"):
        triplet(torch.zeros(3, 4))


@pytest.mark.parametrize("form", ["linear", "exponential", "sine"])
def test_soft_margins_run_from_nothing_to_the_whole_margin(form):
    label = torch.linspace(0, 1, 11)
    margin = soft_margin(label, 0.2, form)
    assert margin[0].item() == pytest.approx(0, abs=1e-7)
    assert margin[-1].item() == pytest.approx(0.2)
    assert (margin.diff() > 0).all()
    written = {
        "linear": lambda y: 0.2 * y,
        "exponential": lambda y: 0.2 * (10**y - 1) / 9,
        "sine": lambda y: 0.2 * (1 - math.cos(math.pi * y)) / 2,
    }[form]
    torch.testing.assert_close(margin, torch.tensor([written(float(y)) for y in label]))


def test_a_hard_margin_ignores_the_label():
    assert soft_margin(torch.tensor([0.0, 0.5, 1.0]), 0.2, "hard").tolist() == pytest.approx([0.2] * 3)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="negatives"):
        triplet(torch.eye(2), negatives="all")
    with pytest.raises(ValueError, match="form"):
        soft_margin(torch.ones(1), form="cubic")
