import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from truepair.beliefs.rectify import (
    SelfRefinement,
    adaptive_prediction,
    frozen_epochs,
    momentum_label,
    ncr_noisy_targets,
    ncr_targets,
    self_refined_label,
)
from truepair.losses.infonce import matching_probabilities


def similarities():
    sizes = st.integers(1, 25).map(lambda n: (n, n))
    return hnp.arrays(np.float32, sizes, elements=st.floats(-1, 1, width=16)).map(torch.as_tensor)


def probabilities(n):
    return hnp.arrays(np.float32, n, elements=st.floats(0, 1, width=16)).map(torch.as_tensor)


# NCR


@pytest.mark.parametrize("batch", ["b8", "b32", "b8_unsat", "b32_unsat"])
def test_the_prediction_equals_the_published_numbers(oracle, batch):
    recorded = {name: torch.as_tensor(value) for name, value in oracle("ncr_loss").items()}
    similarity = recorded[f"{batch}_sims"]
    for clamped, name in ((True, "predict"), (False, "predict_unclamped")):
        ours = adaptive_prediction(similarity, 0.2, clamped=clamped)
        torch.testing.assert_close(ours, recorded[f"{batch}_{name}"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch", ["b8", "b32"])
def test_the_targets_equal_the_published_numbers(oracle, batch):
    recorded = {name: torch.as_tensor(value) for name, value in oracle("ncr_loss").items()}
    own = adaptive_prediction(recorded[f"{batch}_sims"])
    peer = adaptive_prediction(recorded[f"{batch}_sims_peer"])
    weight = recorded[f"{batch}_clean_prob"][:, 0]
    torch.testing.assert_close(peer, recorded[f"{batch}_predict_peer"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ncr_noisy_targets(own, peer), recorded[f"{batch}_targets_unlabelled"][:, 0])
    published = recorded[f"{batch}_targets_labelled_BxB"]
    torch.testing.assert_close(ncr_targets(weight, own, published_broadcast=True), published)
    # The paper's labels are the diagonal of what the published loop forms.
    torch.testing.assert_close(ncr_targets(weight, own), published.diagonal())


def prediction_by_loops(similarity, margin):
    s, n = similarity.tolist(), len(similarity)
    score = []
    for i in range(n):
        to_text = sum(max(0.0, margin + s[i][j] - s[i][i]) for j in range(n) if j != i) / n
        to_image = sum(max(0.0, margin + s[j][i] - s[i][i]) for j in range(n) if j != i) / n
        score.append(min(margin, max(0.0, margin - (to_text + to_image) / 2)))
    best = sorted(score, reverse=True)[: n // 10 + 1]
    mean = sum(best) / len(best)
    return [min(1.0, value / mean) if mean else 0.0 for value in score]


@given(similarities(), st.sampled_from([0.05, 0.2, 1.5]))
def test_the_prediction_equals_the_loops_and_lies_between_0_and_1(similarity, margin):
    ours = adaptive_prediction(similarity, margin)
    assert ours.tolist() == pytest.approx(prediction_by_loops(similarity.double(), margin), abs=2e-4)
    assert ((ours >= 0) & (ours <= 1)).all()


def test_where_the_published_prediction_is_not_a_number_ours_is_0():
    hopeless = 1 - 2 * torch.eye(8)
    matched = hopeless.diagonal()
    by_image = (0.2 + hopeless - matched[:, None]).clamp_min(0).fill_diagonal_(0).mean(1)
    by_text = (0.2 + hopeless - matched).clamp_min(0).fill_diagonal_(0).mean(0)
    score = (0.2 - (by_image + by_text) / 2).clamp(0, 0.2)
    assert (score / score.topk(1).values.mean()).isnan().all()
    assert adaptive_prediction(hopeless).tolist() == [0.0] * 8


@given(similarities(), st.integers(0, 50))
def test_the_prediction_belongs_to_the_pair_not_to_its_place(similarity, seed):
    shuffled = torch.randperm(len(similarity), generator=torch.Generator().manual_seed(seed))
    moved = adaptive_prediction(similarity[shuffled][:, shuffled], 0.5)
    torch.testing.assert_close(moved, adaptive_prediction(similarity, 0.5)[shuffled], rtol=1e-4, atol=1e-5)


@given(probabilities(9), probabilities(9))
def test_targets_lie_between_the_prediction_and_1(weight, prediction):
    labels = ncr_targets(weight, prediction)
    assert (labels >= prediction - 1e-6).all()
    assert (labels <= 1 + 1e-6).all()
    assert torch.equal(ncr_targets(torch.ones(9), prediction), torch.ones(9))


@pytest.mark.parametrize("kind", ["constant", "extreme"])
def test_the_prediction_survives_half_precision(kind):
    similarity = torch.full((12, 12), 0.5) if kind == "constant" else torch.eye(12) * 2e4 - 1e4
    prediction = adaptive_prediction(similarity.bfloat16())
    assert prediction.isfinite().all()
    assert prediction.dtype == torch.float32


# CRCL


def test_self_refinement_equals_the_published_sequence(oracle, oracle_settings):
    recorded, s = oracle("crcl"), oracle_settings("crcl")
    settings = SelfRefinement(s["alpha"], s["warm_epoch"], s["confident_filter"])
    ids = torch.as_tensor(recorded["text_ids"])
    store = torch.ones(s["n_store"])
    for piece in range(2):
        for epoch in range(4):
            i2t, t2i = matching_probabilities(torch.as_tensor(recorded["sims"][piece, epoch]), s["tau"])
            prediction = (i2t.diagonal() + t2i.diagonal()) / 2
            _, store[ids] = self_refined_label(store[ids], prediction, epoch, piece, settings)
            for ours, name in ((store[ids], "label_store_after"), (store, "label_store_full_after")):
                expected = torch.as_tensor(recorded[name][piece, epoch])
                torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)


def refined_by_hand(history, settings, pieces):
    """Labels used and remembered by one pair whose predictions are listed epoch by epoch, written out."""
    used, remembered, label = [], [], 1.0
    predictions = iter(history)
    for piece, epochs in enumerate(pieces):
        for epoch in range(1, epochs + 1):
            p = next(predictions)
            if epoch <= settings.frozen_epochs:
                used.append(0.0 if label < settings.sure_noise_below else label)
                if piece == 0 and epoch == settings.frozen_epochs:
                    label = p
            else:
                label = settings.momentum * label + (1 - settings.momentum) * p
                used.append(0.0 if label < settings.sure_noise_below else label)
                if settings.remember_zeros:
                    label = used[-1]
            remembered.append(label)
    return used, remembered


@given(
    st.lists(st.floats(0, 1), min_size=12, max_size=12),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([(4, 8), (3, 3, 6), (1, 11)]),
)
def test_self_refinement_equals_the_rule_written_out(history, frozen, remember_zeros, pieces):
    settings = SelfRefinement(0.8, frozen, 0.1, remember_zeros)
    used, remembered = refined_by_hand(history, settings, pieces)
    label, step = torch.ones(1, dtype=torch.float64), 0
    for piece, epochs in enumerate(pieces):
        for epoch in range(epochs):
            prediction = torch.tensor([history[step]], dtype=torch.float64)
            now, label = self_refined_label(label, prediction, epoch, piece, settings)
            assert float(now) == pytest.approx(used[step])
            assert float(label) == pytest.approx(remembered[step])
            assert 0 <= float(now) <= 1
            step += 1


def test_a_zero_may_be_remembered_or_forgotten():
    previous, prediction = torch.tensor([0.11]), torch.tensor([0.0])
    used, remembered = self_refined_label(previous, prediction, 5, 0, SelfRefinement())
    assert (float(used), float(remembered)) == (0.0, 0.0)
    used, remembered = self_refined_label(previous, prediction, 5, 0, SelfRefinement(remember_zeros=False))
    assert float(used) == 0.0
    assert float(remembered) == pytest.approx(0.088)


@given(st.integers(0, 5000), st.integers(1, 2000))
def test_frozen_epochs_hold_at_least_the_steps_and_not_an_epoch_more(steps, per_epoch):
    epochs = frozen_epochs(steps, per_epoch)
    assert epochs * per_epoch >= steps
    assert (epochs - 1) * per_epoch < steps


def test_momentum_goes_from_the_old_label_to_the_prediction():
    assert float(momentum_label(torch.tensor(1.0), torch.tensor(0.5), 0.6)) == pytest.approx(0.8)
