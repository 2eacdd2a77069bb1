import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from truepair.losses.energy import (
    clean_by_energy,
    energies,
    energy_bound,
    entropy_weights,
    swapped_hinge,
)


def logit_matrices():
    sizes = st.integers(1, 7).map(lambda n: (n, n))
    return hnp.arrays(np.float64, sizes, elements=st.floats(-20, 20, width=32)).map(torch.as_tensor)


@pytest.fixture
def logits():
    return torch.randn(5, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 2


def by_loops(logits, margin, threshold):
    """Eq. 1, 2, 4 and 5 of every row, one number at a time."""
    f, n = logits.tolist(), len(logits)
    sigmoid = [[1 / (1 + math.exp(-v)) for v in row] for row in f]
    energy, clean, weight = [], [], []
    for i in range(n):
        total = sum(math.exp(v) for v in f[i])
        energy.append(-math.log(total))
        clean.append(energy[i] < threshold and max(range(n), key=lambda j: f[i][j]) == i)
        p = [math.exp(v) / total for v in f[i]]
        entropy = -sum(q * math.log(q) for q in p) / math.log(n)
        hardest = max(sigmoid[i][j] for j in range(n) if j != i)
        weight.append(1 - entropy * (margin - sigmoid[i][i] + hardest > 0))
    return energy, clean, weight


def test_equals_the_equations_written_as_loops(logits):
    margin, threshold = 0.3, -1.5
    logits = logits + 3 * torch.diag(torch.tensor([1.0, 0, 1, 1, 0], dtype=torch.float64))
    similarity = logits.sigmoid()
    image_energy, image_clean, image_weight = by_loops(logits, margin, threshold)
    text_energy, text_clean, text_weight = by_loops(logits.T, margin, threshold)
    assert any(image_clean)
    assert not all(image_clean)

    ours = energies(logits)
    assert ours[0].tolist() == pytest.approx(image_energy)
    assert ours[1].tolist() == pytest.approx(text_energy)
    clean = clean_by_energy(logits, threshold)
    assert clean[0].tolist() == image_clean
    assert clean[1].tolist() == text_clean
    weights = entropy_weights(logits, similarity, margin)
    assert weights[0].tolist() == pytest.approx(image_weight)
    assert weights[1].tolist() == pytest.approx(text_weight)

    # Eq. 6: the image side takes the text's weight and the other way round; means over the clean pairs only.
    s, n = similarity.tolist(), len(logits)
    image_side = [
        max(0, margin - text_weight[i] * s[i][i] + max(s[i][j] for j in range(n) if j != i))
        for i in range(n)
        if image_clean[i]
    ]
    text_side = [
        max(0, margin - image_weight[i] * s[i][i] + max(s[j][i] for j in range(n) if j != i))
        for i in range(n)
        if text_clean[i]
    ]
    expected = (sum(image_side) / len(image_side) + sum(text_side) / len(text_side)) / 2
    assert float(swapped_hinge(similarity, weights, clean, margin).mean()) == pytest.approx(expected)
    of_batch = swapped_hinge(similarity, weights, clean, margin, "batch").mean()
    assert float(of_batch) == pytest.approx((sum(image_side) + sum(text_side)) / 2 / n)

    # Eq. 3
    low = [max(0, e + 2) ** 2 for e, c in zip(image_energy, image_clean, strict=True) if c]
    high = [max(0, -1 - e) ** 2 for e, c in zip(image_energy, image_clean, strict=True) if not c]
    expected = sum(low) / len(low) + sum(high) / len(high)
    assert float(energy_bound(ours[0], clean[0], -2, -1).mean()) == pytest.approx(expected)


def test_the_example_of_the_paper_is_not_called_clean():
    """Scores 0.85, 0.80 and 0.82: high, but hardly different from the negatives."""
    logits = torch.full((3, 3), -6.0)
    logits[0] = torch.tensor([0.85, 0.80, 0.82]).logit()
    logits[1, 1] = 6.0
    sure, unsure = energies(logits)[0][1], energies(logits)[0][0]
    assert sure < unsure


@given(logit_matrices(), st.floats(-5, 5))
def test_clean_pairs_are_their_rows_best_and_of_low_energy(logits, threshold):
    images, texts = clean_by_energy(logits, threshold)
    image_energy, text_energy = energies(logits)
    assert (image_energy[images] < threshold).all()
    assert (text_energy[texts] < threshold).all()
    assert (logits.diagonal()[images] == logits.amax(1)[images]).all()


@given(logit_matrices())
def test_weights_lie_between_0_and_1(logits):
    for weight in entropy_weights(logits, logits.sigmoid()):
        assert ((weight >= 0) & (weight <= 1)).all()


@given(logit_matrices(), st.integers(0, 100))
def test_nothing_depends_on_the_order_of_the_batch(logits, seed):
    shuffled = torch.randperm(len(logits), generator=torch.Generator().manual_seed(seed))

    def everything(f):
        clean = clean_by_energy(f, 0.0)
        weights = entropy_weights(f, f.sigmoid())
        bound = energy_bound(energies(f)[0], clean[0])
        return torch.stack(
            [*clean, *weights, *energies(f), bound, swapped_hinge(f.sigmoid(), weights, clean)], 1
        )

    torch.testing.assert_close(everything(logits[shuffled][:, shuffled]), everything(logits)[shuffled])


def test_a_settled_pair_keeps_its_whole_weight_and_an_unsure_one_loses_it():
    logits = torch.zeros(4, 4)
    logits[0, 0] = 4.0
    images, _ = entropy_weights(logits, logits.sigmoid(), margin=0.2)
    assert images[0] == 1
    assert images[1:].abs().max() < 1e-6


def test_no_gradient_flows_through_the_weights():
    """Eq. 7: the derivative with respect to the matched score is minus the other side's weight."""
    logits = torch.tensor([[1.0, 0.5], [0.2, 0.9]], dtype=torch.float64)
    similarity = logits.sigmoid().requires_grad_()
    weights = (torch.tensor([0.3, 0.5]), torch.tensor([0.7, 0.9]))
    everyone = torch.ones(2, dtype=torch.bool)
    swapped_hinge(similarity, weights, (everyone, everyone), margin=1.0).mean().backward()
    # half of both directions, a mean over two pairs
    torch.testing.assert_close(similarity.grad.diagonal() * 4, -torch.tensor([1.0, 1.4], dtype=torch.float64))
    assert not any(w.requires_grad for w in entropy_weights(similarity, similarity))


@pytest.mark.parametrize("threshold", [-1e6, -2.0, 1e6])
def test_survives_awkward_similarities(awkward, threshold):
    similarity = awkward.sigmoid()
    clean = clean_by_energy(awkward, threshold)
    weights = entropy_weights(awkward, similarity)
    loss = swapped_hinge(similarity, weights, clean) + sum(
        energy_bound(energy, side) for energy, side in zip(energies(awkward), clean, strict=True)
    )
    loss.mean().backward()
    assert loss.isfinite().all()
    assert awkward.grad.isfinite().all()
