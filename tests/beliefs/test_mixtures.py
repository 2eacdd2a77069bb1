import dataclasses
import json
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.mixture import GaussianMixture

from truepair.beliefs.mixtures import (
    BetaMixture2,
    GaussianMixture2,
    fit_beta,
    fit_gaussian,
    normalise,
)
from truepair.errors import TruepairError

FITS = [fit_gaussian, fit_beta, partial(fit_beta, start="median")]
CASES = ["a", "b"]

unit_values = st.lists(
    st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0, 1)), min_size=1, max_size=40
)


def published_beta(x):
    """BiCro's fit written out: weighted densities one by one, moments, ten rounds; then its posterior."""
    alpha, beta, weight = [1.0, 2.0], [2.0, 1.0], [0.5, 0.5]
    inside = [min(max(v, 1e-4), 1 - 1e-4) for v in x]
    for _ in range(10):
        shares = []
        for v in inside:
            pair = [max(weight[k] * stats.beta.pdf(v, alpha[k], beta[k]), 1e-12) for k in (0, 1)]
            shares.append([p / sum(pair) for p in pair])
        for k in (0, 1):
            mass = sum(s[k] for s in shares)
            mean = sum(s[k] * v for s, v in zip(shares, inside, strict=True)) / mass
            variance = sum(s[k] * (v - mean) ** 2 for s, v in zip(shares, inside, strict=True)) / mass
            alpha[k] = mean * (mean * (1 - mean) / variance - 1)
            beta[k] = alpha[k] * (1 - mean) / mean
            weight[k] = mass / len(x)
    with np.errstate(invalid="ignore"):
        densities = [weight[k] * stats.beta.pdf(x, alpha[k], beta[k]) for k in (0, 1)]
        posterior = densities[0] / (densities[0] + densities[1] + 1e-12)
    return alpha, beta, weight, posterior


def best_two_groups(x):
    """Which values are in the lower of two groups, every cut tried."""

    def squared_error(cut):
        return sum(np.var(group) * len(group) for group in (x[x <= cut], x[x > cut]))

    return x <= min(np.sort(x)[:-1], key=squared_error)


def plain_gaussian(x, low, iterations=10, tolerance=1e-2):
    """Expectation maximisation over single values, beginning with these values in the lower component."""
    shares = [[1.0, 0.0] if is_low else [0.0, 1.0] for is_low in low]
    before = -math.inf
    for step in range(iterations + 1):
        mass = [sum(s[k] for s in shares) for k in (0, 1)]
        mean = [sum(s[k] * v for s, v in zip(shares, x, strict=True)) / mass[k] for k in (0, 1)]
        variance = [
            sum(s[k] * (v - mean[k]) ** 2 for s, v in zip(shares, x, strict=True)) / mass[k] + 5e-4
            for k in (0, 1)
        ]
        weighted = [
            [mass[k] / len(x) * stats.norm.pdf(v, mean[k], variance[k] ** 0.5) for k in (0, 1)] for v in x
        ]
        if step == iterations:
            break
        likelihood = sum(math.log(sum(w)) for w in weighted) / len(x)
        shares = [[w[k] / sum(w) for k in (0, 1)] for w in weighted]
        if abs(likelihood - before) < tolerance:
            iterations = step + 1
        before = likelihood
    return mean, variance, [w[0] / sum(w) for w in weighted]


@pytest.mark.parametrize("case", CASES)
class TestPublished:
    def test_normalised_losses(self, oracle, case):
        z = oracle("mixtures")
        np.testing.assert_allclose(normalise(z[f"{case}_raw_loss"]), z[f"{case}_norm_loss"], atol=1e-6)

    def test_gaussian_from_the_same_start(self, oracle, case):
        z = oracle("mixtures")
        x = z[f"{case}_norm_loss"]
        mixture = fit_gaussian(x)
        np.testing.assert_allclose(mixture.posterior(x), z[f"{case}_gmm_posterior_clean"], atol=1e-4)
        np.testing.assert_allclose(mixture.means, z[f"{case}_gmm_means"], rtol=1e-4)
        np.testing.assert_allclose(mixture.variances, z[f"{case}_gmm_vars"], rtol=1e-4)
        np.testing.assert_allclose(mixture.weights, z[f"{case}_gmm_weights"], rtol=1e-4)
        assert mixture.iterations == z[f"{case}_gmm_n_iter"]
        np.testing.assert_array_equal(mixture.posterior(x) > 0.5, z[f"{case}_gmm_pred"] == 1)

    def test_beta(self, oracle, case):
        z = oracle("mixtures")
        x = z[f"{case}_norm_loss"].astype(np.float64)
        mixture = fit_beta(x)
        known = z[f"{case}_bmm_posterior0_isnan"] == 0
        expected = z[f"{case}_bmm_posterior0"][known]
        np.testing.assert_allclose(mixture.posterior(x)[known], expected, rtol=0, atol=1e-6)
        np.testing.assert_allclose(mixture.alpha, z[f"{case}_bmm_alpha"], rtol=1e-5)
        np.testing.assert_allclose(mixture.beta, z[f"{case}_bmm_beta"], rtol=1e-5)
        np.testing.assert_allclose(mixture.weights, z[f"{case}_bmm_weight"], rtol=1e-5)

    def test_both_tell_the_components_apart_as_well_as_published(self, oracle, case):
        z = oracle("mixtures")
        x, truth = z[f"{case}_norm_loss"], z[f"{case}_is_clean"] == 1
        for fit, name in ((fit_gaussian, "gmm"), (fit_beta, "bmm")):
            ours = np.mean((fit(x).posterior(x) > 0.5) == truth)
            assert ours >= np.mean((z[f"{case}_{name}_pred"] == 1) == truth)
            assert ours > 0.9

    def test_the_pair_of_the_smallest_loss_is_clean_here_and_noisy_as_published(self, oracle, case):
        """Published: infinity over infinity at a loss of 0. Ours: the limit, as beside it."""
        z = oracle("mixtures")
        x = z[f"{case}_norm_loss"].astype(np.float64)
        smallest = z[f"{case}_bmm_posterior0_isnan"] == 1
        assert x[smallest].tolist() == [0.0]
        a, b, w = z[f"{case}_bmm_alpha"], z[f"{case}_bmm_beta"], z[f"{case}_bmm_weight"]
        with np.errstate(invalid="ignore"):
            low, high = (w[k] * stats.beta.pdf(0.0, a[k], b[k]) for k in (0, 1))
            as_published = low / (low + high + 1e-12)
        assert np.isnan(as_published)
        assert not z[f"{case}_bmm_pred"][smallest].any()
        ours = fit_beta(x).posterior(x)
        assert ours[smallest] > 0.999
        np.testing.assert_allclose(ours[smallest], fit_beta(x).posterior([1e-15]), atol=1e-2)
        np.testing.assert_array_equal((ours > 0.5)[~smallest], z[f"{case}_bmm_pred"][~smallest] == 1)


def test_gaussian_equals_expectation_maximisation_over_single_values():
    rng = np.random.default_rng(1)
    x = normalise(np.concatenate([rng.normal(0, 1, 40), rng.normal(4, 1.5, 25)]))
    mean, variance, posterior = plain_gaussian(x.tolist(), best_two_groups(x).tolist())
    mixture = fit_gaussian(x)
    np.testing.assert_allclose(mixture.means, mean, rtol=1e-9)
    np.testing.assert_allclose(mixture.variances, variance, rtol=1e-9)
    np.testing.assert_allclose(mixture.posterior(x), posterior, atol=1e-9)


def test_gaussian_equals_scikit_learn_from_the_same_start():
    x = normalise(np.random.default_rng(2).gamma(1.5, 1, 500))
    ours = fit_gaussian(x, iterations=7, tolerance=0)
    low = best_two_groups(x)
    theirs = GaussianMixture(
        2,
        max_iter=7,
        tol=0,
        reg_covar=5e-4,
        weights_init=[low.mean(), 1 - low.mean()],
        means_init=[[x[low].mean()], [x[~low].mean()]],
        precisions_init=[[[1 / (x[g].var() + 5e-4)]] for g in (low, ~low)],
    )
    with pytest.warns(UserWarning, match="did not converge"):
        theirs.fit(x[:, None])
    np.testing.assert_allclose(ours.posterior(x), theirs.predict_proba(x[:, None])[:, 0], atol=1e-6)


def test_beta_equals_the_published_fit_over_single_values():
    x = normalise(np.random.default_rng(3).beta(0.7, 2, 60)).tolist()
    alpha, beta, weight, posterior = published_beta(x)
    mixture = fit_beta(x)
    np.testing.assert_allclose(mixture.alpha, alpha, rtol=1e-8)
    np.testing.assert_allclose(mixture.beta, beta, rtol=1e-8)
    np.testing.assert_allclose(mixture.weights, weight, rtol=1e-8)
    known = ~np.isnan(posterior)
    assert known.sum() >= 59
    np.testing.assert_allclose(mixture.posterior(x)[known], posterior[known], atol=1e-8)


def test_clean_is_the_lower_component_though_the_published_code_takes_the_first():
    x = [0.0, 0.58, 0.91, 0.58, 0.56, 0.58, 1.0]
    alpha, beta, _, posterior = published_beta(x)
    first, second = (alpha[k] / (alpha[k] + beta[k]) for k in (0, 1))
    assert first > second  # the components have changed places during the fit
    mixture = fit_beta(x)
    np.testing.assert_allclose(mixture.means, (second, first))
    assert posterior[1] < 0.5 < mixture.posterior(x)[1]


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("share", [0.0, 0.2, 0.6])
def test_counting_into_bins_changes_little(fit, share):
    rng = np.random.default_rng(4)
    wrong = rng.random(30_000) < share
    x = normalise(np.where(wrong, rng.normal(1, 0.25, 30_000), rng.gamma(1.2, 0.1, 30_000)))
    exact = fit(x, bins=None).posterior(x)
    np.testing.assert_allclose(fit(x).posterior(x), exact, atol=1e-3)


@pytest.mark.parametrize("fit", FITS)
@given(values=unit_values)
def test_posteriors_are_probabilities_and_order_does_not_matter(fit, values):
    x = np.array(values)
    mixture = fit(x)
    posterior = mixture.posterior(x)
    assert posterior.shape == x.shape
    assert ((posterior >= 0) & (posterior <= 1)).all()
    assert mixture.means[0] <= mixture.means[1]
    assert sum(mixture.weights) == pytest.approx(1)
    assert np.isfinite(dataclasses.astuple(mixture)[0]).all()
    assert fit(x[::-1]) == mixture


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("values", [[0.0], [1.0], [0.3] * 50, [0.0] * 9000, [1.0] * 9000])
def test_equal_values_cannot_be_divided(fit, values):
    mixture = fit(values)
    assert mixture.weights == (1.0, 0.0)
    assert mixture.posterior(values).tolist() == [1.0] * len(values)
    assert np.isfinite(mixture.density(np.linspace(0, 1, 11))).all()


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("values", [[0, 1], [0] * 70 + [1] * 30, [0.2] * 9000 + [0.9] * 900, [0] * 999 + [1]])
def test_two_values_are_told_apart(fit, values):
    posterior = fit(values).posterior(values)
    smaller = np.array(values) == min(values)
    assert (posterior[smaller] > 0.9).all()
    assert (posterior[~smaller] < 0.1).all()


@pytest.mark.parametrize("fit", FITS)
def test_a_single_hump_breaks_nothing(fit):
    x = np.random.default_rng(5).beta(30, 30, 2000)
    mixture = fit(x)
    posterior = mixture.posterior(x)
    assert np.isfinite(posterior).all()
    assert posterior.mean() == pytest.approx(mixture.weights[0], abs=0.1)


@pytest.mark.parametrize(
    ("fit", "values"), [(fit_gaussian, [1.0, 1.0, 0.99, 0.99, 1.0, 1.0, 0.93]), (fit_beta, [0.9, 0.9, 0.83])]
)
def test_a_component_left_without_pairs_does_not_make_everything_noisy(fit, values):
    """Here the fit explains all values by one component, and the empty one has the lower mean."""
    mixture = fit(values, iterations=30, **({"tolerance": 0} if fit is fit_gaussian else {}))
    assert mixture.weights == (1.0, 0.0)
    assert mixture.means[0] == mixture.means[1] == pytest.approx(np.mean(values), abs=5e-3)
    assert mixture.posterior(values).tolist() == [1.0] * len(values)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_an_error(fit, bad):
    with pytest.raises(TruepairError, match="1 of 4 values are not finite, the first at position 2"):
        fit([0.1, 0.2, bad, 0.3])
    with pytest.raises(TruepairError, match="not finite"):
        fit([0.1, 0.2, 0.8]).posterior([bad])


def test_values_outside_the_interval_and_none_at_all_are_errors():
    with pytest.raises(TruepairError, match=r"from 0\.5 to 2"):
        fit_beta([0.5, 2.0])
    for fit in FITS:
        with pytest.raises(TruepairError, match="no values"):
            fit([])


@pytest.mark.parametrize("fit", FITS)
def test_densities_integrate_to_the_weights(fit):
    x = np.random.default_rng(6).beta(2, 5, 3000)
    mixture = fit(x)
    grid = np.linspace(-1, 2, 60_001) if fit is fit_gaussian else np.linspace(0, 1, 20_001)
    mass = np.trapezoid(mixture.densities(grid), grid)
    np.testing.assert_allclose(mass, mixture.weights, atol=2e-3)
    np.testing.assert_allclose(mixture.density(grid), mixture.densities(grid).sum(axis=0))


@pytest.mark.parametrize("fit", FITS)
def test_a_mixture_can_be_written_as_json_and_read_again(fit):
    mixture = fit([0.1, 0.12, 0.5, 0.7, 0.9])
    words = json.loads(json.dumps(dataclasses.asdict(mixture)))
    kind = type(mixture)
    again = kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in words.items()})
    assert again == mixture
    assert isinstance(again, GaussianMixture2 | BetaMixture2)


def test_normalise():
    assert normalise([2, 4, 3]).tolist() == [0, 1, 0.5]
    assert normalise([5, 5]).tolist() == [0, 0]
    assert normalise([]).tolist() == []
    with pytest.raises(TruepairError, match="not finite"):
        normalise([1, math.nan])


def test_the_median_start_finds_both_kinds_where_few_losses_are_large():
    """As many rows as columns crowd near 0, one tail is long: from the fixed start the tail becomes a component."""
    rng = np.random.default_rng(0)
    clean, noisy = rng.beta(3, 60, 6000), rng.beta(1.4, 3.4, 4000)
    losses = normalise(np.concatenate([clean, noisy]))
    low = {start: fit_beta(losses, start=start).posterior(losses) > 0.5 for start in ("fixed", "median")}
    assert abs(low["median"].mean() - 0.6) < 0.08
    assert abs(low["fixed"].mean() - 0.6) > 0.2


def test_the_median_start_does_not_depend_on_the_order_or_on_ties():
    rng = np.random.default_rng(1)
    losses = np.round(np.concatenate([rng.beta(2, 20, 300), rng.beta(6, 4, 200)]), 2)
    fitted = fit_beta(losses, start="median", bins=None)
    shuffled = fit_beta(rng.permutation(losses), start="median", bins=None)
    assert fitted == shuffled
    assert fit_beta(np.full(9, 0.25), start="median").posterior([0.25]) == 1
