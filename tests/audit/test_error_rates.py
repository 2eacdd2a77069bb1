"""What would be flagged at other error rates, against counting by hand."""

import numpy as np
import polars as pl
import pytest

from truepair.audit.error_rates import RATES, advice, at_rate, at_rates

PROBABILITY = [0.995, 0.96, 0.96, 0.91, 0.7, 0.55, 0.2, 0.1, 0.05, 0.0]
WRONG = [True, True, False, True, True, False, True, False, False, False]


def suspects(truth=True):
    table = pl.DataFrame({"mismatch_probability": PROBABILITY})
    return table.with_columns(truly_mismatched=pl.Series(WRONG)) if truth else table


def test_counts_are_those_of_a_loop():
    for found in at_rates(suspects(), "random"):
        flagged = [(p, wrong) for p, wrong in zip(PROBABILITY, WRONG, strict=True) if p >= 1 - found.rate]
        assert found.flagged == len(flagged)
        assert found.wrong == pytest.approx(sum(p for p, _ in flagged) / len(flagged))
        assert found.precision == pytest.approx(sum(wrong for _, wrong in flagged) / len(flagged))
        assert found.recall == pytest.approx(sum(wrong for _, wrong in flagged) / sum(WRONG))
    assert [found.flagged for found in at_rates(suspects(), "random")] == [1, 3, 4, 4, 5, 6]


def test_without_truth_only_the_expectation_is_known():
    found = at_rate(suspects(truth=False), "random", 0.05)
    assert (found.flagged, found.precision, found.recall) == (3, None, None)
    assert found.wrong == pytest.approx(np.mean(PROBABILITY[:3]))


def test_nothing_is_flagged_where_the_data_shows_no_sign():
    assert [found.flagged for found in at_rates(suspects(), "none")] == [0] * len(RATES)
    assert at_rate(suspects(), "none", 0.5).wrong is None
    assert advice(suspects(), "none", 0.5, 0.05) is None


def test_advice_names_the_first_rate_that_finds_half_of_the_wrong_pairs():
    unsure = pl.DataFrame({"mismatch_probability": [0.85] * 20 + [0.72] * 20 + [0.0] * 60})
    # Half of 40 wrong pairs are 20: at 0.2 it would be 17, at 0.3 31.
    said = advice(unsure, "random", 0.4, 0.05)
    assert "--error-rate 0.3" in said
    assert "40 pairs" in said
    assert "78%" in said
    assert advice(unsure, "random", 0.4, 0.2) is None  # 20 pairs are flagged already
    assert "--error-rate 0.5 it would be 40 pairs" in advice(unsure, "random", 0.9, 0.05)
    assert advice(unsure, "random", 0.0, 0.05) is None
