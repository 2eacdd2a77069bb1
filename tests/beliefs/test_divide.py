import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from truepair.beliefs.divide import split_by_posterior, split_three_ways
from truepair.beliefs.ledger import Partition
from truepair.errors import TruepairError


def posteriors():
    # few different values, so that ties and constant posteriors are common
    entries = st.sampled_from([0.0, 0.2, 0.5, 0.500001, 0.7, 1.0]) | st.floats(0, 1)
    return hnp.arrays(np.float64, st.integers(2, 320), elements=entries).map(torch.as_tensor)


@pytest.mark.parametrize("case", ["mixed", "allclean"])
def test_equals_the_published_split(oracle, case):
    recorded = oracle("ncr_loss")
    clean = split_by_posterior(torch.as_tensor(recorded[f"split_{case}_prob"]), 0.5)
    assert clean.tolist() == recorded[f"split_{case}_pred"].astype(bool).tolist()


@given(posteriors(), st.floats(0, 1))
def test_neither_side_is_ever_empty(posterior, threshold):
    clean = split_by_posterior(posterior, threshold)
    assert clean.any()
    assert not clean.all()


@given(posteriors(), st.floats(0, 1))
def test_is_the_threshold_wherever_the_threshold_divides(posterior, threshold):
    plain = posterior > threshold
    if plain.any() and not plain.all():
        assert torch.equal(split_by_posterior(posterior, threshold), plain)


@given(posteriors())
def test_no_noisy_pair_is_more_probably_clean_than_a_clean_one(posterior):
    clean = split_by_posterior(posterior)
    assert posterior[clean].min() >= posterior[~clean].max()


@pytest.mark.parametrize("n", [2, 99, 100, 250])
def test_a_hundredth_goes_to_the_other_side_when_one_would_be_empty(n):
    posterior = torch.linspace(0.6, 0.9, n)
    clean = split_by_posterior(posterior)
    assert int((~clean).sum()) == n // 100 + 1
    assert not clean[0]
    clean = split_by_posterior(posterior - 0.6)
    assert int(clean.sum()) == n // 100 + 1
    assert clean[-1]


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_equal_posteriors_are_divided_by_the_order_of_the_ids(value):
    clean = split_by_posterior(torch.full((300,), value))
    few = clean if value <= 0.5 else ~clean
    assert few.tolist() == [True] * 4 + [False] * 296


def test_a_posterior_that_is_not_a_number_is_an_error_that_names_the_pair():
    with pytest.raises(TruepairError, match="pair 2 is not a finite number"):
        split_by_posterior(torch.tensor([0.1, 0.9, float("nan")]))


@given(posteriors(), st.integers(0, 50))
def test_a_pairs_side_belongs_to_the_pair_where_posteriors_differ(posterior, seed):
    posterior = posterior + torch.arange(len(posterior)) * 1e-9
    shuffled = torch.randperm(len(posterior), generator=torch.Generator().manual_seed(seed))
    if len(posterior.unique()) == len(posterior):
        assert torch.equal(split_by_posterior(posterior[shuffled]), split_by_posterior(posterior)[shuffled])


def test_three_ways_as_in_eq_8():
    clean = torch.tensor([True, True, True, False, False])
    discrepancy = torch.tensor([0.1, 0.5, 0.9, 0.1, 0.9])
    expected = [Partition.CLEAN, Partition.LOCAL, Partition.LOCAL, Partition.NOISY, Partition.NOISY]
    assert split_three_ways(clean, discrepancy, 0.5).tolist() == expected
