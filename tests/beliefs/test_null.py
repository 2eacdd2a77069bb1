"""Mismatch probabilities: against the densities that scores were drawn from, and by properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from truepair.audit.sections import calibration_error
from truepair.beliefs.null import flag, mismatch_probability, rank_in_null
from truepair.errors import TruepairError

number = st.floats(-5, 5)


def drawn(share, n=8000, apart=2.5, spread=1.2, seed=0):
    """Scores of given pairs, of random re-pairings, and which of the given are mismatched."""
    generator = np.random.default_rng(seed)
    wrong = generator.random(n) < share
    scores = np.where(wrong, generator.normal(0, 1, n), generator.normal(apart, spread, n))
    return scores, generator.normal(0, 1, 10 * n), wrong


@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
def test_is_the_posterior_of_known_densities(share):
    scores, null, wrong = drawn(share)
    probability = mismatch_probability(scores, null, share)
    mismatched, matched = stats.norm.pdf(scores), stats.norm.pdf(scores, 2.5, 1.2)
    exact = share * mismatched / (share * mismatched + (1 - share) * matched)
    assert np.abs(probability - exact).mean() < 0.015
    assert calibration_error(probability, wrong) < 0.02
    sure = probability >= 0.95
    assert sure.sum() > 0.02 * wrong.sum()
    assert wrong[sure].mean() > 0.92


def test_scale_and_shape_of_the_scores_do_not_matter():
    scores, null, _ = drawn(0.3, n=2000)
    plain = mismatch_probability(scores, null)
    for bent in (np.exp, lambda x: 7 * x - 3, lambda x: np.arctan(x / 9)):
        np.testing.assert_allclose(mismatch_probability(bent(scores), bent(null)), plain, atol=1e-6)


@given(st.lists(number, min_size=1, max_size=40), st.lists(number, min_size=1, max_size=40), st.floats(0, 1))
def test_never_rises_with_the_score_and_is_a_probability(scores, null, share):
    found = mismatch_probability(np.array(scores), np.array(null), share)
    assert np.isfinite(found).all()
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found[np.argsort(scores)]) <= 1e-9).all()


def test_no_mismatches_and_nothing_but_mismatches():
    scores, null, _ = drawn(0.0)
    assert mismatch_probability(scores, null, 0.0).max() == 0
    assert mismatch_probability(scores, null).mean() < 0.02
    generator = np.random.default_rng(3)
    assert mismatch_probability(generator.normal(size=4000), null).mean() > 0.9


def test_scores_that_are_all_equal_say_no_more_than_the_share():
    np.testing.assert_allclose(mismatch_probability(np.ones(500), np.ones(900), 0.3), 0.3, atol=0.01)


def test_rank_counts_lower_scores_and_half_of_the_equal_ones():
    scores, null = np.array([0.0, 1.0, 1.5, 9.0]), np.array([1.0, 1.0, 2.0, 0.5, 1.5])
    loops = [sum((m < s) + 0.5 * (m == s) for m in null) / len(null) for s in scores]
    np.testing.assert_allclose(rank_in_null(scores, null), loops)


def test_flags_follow_the_error_rate_and_the_kind():
    probability = np.array([0.5, 0.9, 0.95, 0.99])
    assert flag(probability, 0.05).tolist() == [False, False, True, True]
    assert flag(probability, 0.2).tolist() == [False, True, True, True]
    assert flag(probability, 0.05, "structured").sum() == 2
    for kind in ("none", "undecided"):
        assert not flag(probability, 0.5, kind).any()
    for rate in (0.0, 1.0, float("nan")):
        with pytest.raises(TruepairError, match="error rate"):
            flag(probability, rate)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_refused_with_its_row(bad):
    scores = np.array([0.1, 0.2, bad])
    with pytest.raises(TruepairError, match=r"1 of 3 scores.*row 2"):
        mismatch_probability(scores, np.zeros(4))
    with pytest.raises(TruepairError, match="null scores"):
        mismatch_probability(np.zeros(4), scores)
    with pytest.raises(TruepairError, match="at least one"):
        mismatch_probability(np.zeros(0), np.zeros(4))


@pytest.mark.parametrize("gap", [5.0, 10.0])
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_pairs_far_from_the_null_are_matched_for_certain(gap, share):
    rng = np.random.default_rng(0)
    wrong = rng.random(5000) < share
    scores = np.where(wrong, rng.normal(0, 1, 5000), rng.normal(gap, 1, 5000))
    found = mismatch_probability(scores, rng.normal(0, 1, 40_000))
    assert found[wrong].mean() > 0.95
    assert found[~wrong].mean() < 0.02
    assert found.mean() == pytest.approx(share, abs=0.015)
