import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from truepair.errors import TruepairError
from truepair.evaluation.identification import identification

beliefs_and_truths = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.booleans()), min_size=1, max_size=40
)


def test_equals_the_definitions_written_as_loops():
    rng = np.random.default_rng(0)
    truth = rng.random(60) < 0.4
    scores = np.round(np.clip(truth * 0.3 + rng.random(60) * 0.8, 0, 1), 1)
    result = identification(scores, truth, threshold=0.6)
    flagged = [s > 0.6 for s in scores]
    hits = sum(f and t for f, t in zip(flagged, truth, strict=True))
    assert result.mismatched.precision == hits / sum(flagged)
    assert result.mismatched.recall == hits / truth.sum()
    p, r = result.mismatched.precision, result.mismatched.recall
    assert result.mismatched.f1 == pytest.approx(2 * p * r / (p + r))
    rest = sum(not f and not t for f, t in zip(flagged, truth, strict=True))
    assert result.matched.precision == rest / (60 - sum(flagged))
    assert result.matched.recall == rest / (60 - truth.sum())
    wins = [(a > b) + (a == b) / 2 for a in scores[truth] for b in scores[~truth]]
    assert result.auc == pytest.approx(np.mean(wins))
    precisions = [truth[scores >= s].mean() for s in scores[truth]]
    assert result.average_precision == pytest.approx(np.mean(precisions))
    counts = (result.pairs, result.mismatched_pairs, result.flagged_pairs, result.rightly_flagged_pairs)
    assert counts == (60, truth.sum(), sum(flagged), hits)


@given(beliefs_and_truths)
def test_equals_scikit_learn(rows):
    scores, truth = (np.array(column) for column in zip(*rows, strict=True))
    result = identification(scores, truth)
    flags = scores > 0.5
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        truth, flags, labels=[False, True], zero_division=np.nan
    )
    for k, ours in enumerate((result.matched, result.mismatched)):
        for value, expected in zip((ours.precision, ours.recall), (precision[k], recall[k]), strict=True):
            assert (value is None) == math.isnan(expected)
            assert value is None or value == pytest.approx(expected)
        if ours.f1 is not None:
            assert ours.f1 == pytest.approx(f1[k])
    if truth.any() and not truth.all():
        assert result.auc == pytest.approx(metrics.roc_auc_score(truth, scores))
        assert result.average_precision == pytest.approx(metrics.average_precision_score(truth, scores))
    else:
        assert result.auc is result.average_precision is None


@given(beliefs_and_truths)
def test_what_is_undefined_is_none_and_everything_is_json(rows):
    scores, truth = (np.array(column) for column in zip(*rows, strict=True))
    words = json.dumps(dataclasses.asdict(identification(scores, truth)), allow_nan=False)
    assert json.loads(words)["pairs"] == len(rows)


def test_no_mismatched_pair_and_none_flagged():
    result = identification([0.1, 0.2], [False, False])
    assert dataclasses.astuple(result.mismatched) == (None, None, None)
    assert dataclasses.astuple(result.matched) == (1, 1, 1)
    missed = identification([0.1, 0.2], [False, True])
    assert dataclasses.astuple(missed.mismatched) == (None, 0, 0)


def test_flags_alone_have_no_ranking():
    result = identification(np.array([True, False, True]), [True, False, False])
    assert (result.auc, result.average_precision, result.threshold) == (None, None, None)
    assert result.mismatched.precision == 0.5
    assert result.mismatched.recall == 1


def test_order_of_pairs_and_rising_maps_of_scores_do_not_matter():
    rng = np.random.default_rng(1)
    scores, truth = rng.random(50), rng.random(50) < 0.3
    order = rng.permutation(50)
    assert identification(scores[order], truth[order]) == identification(scores, truth)
    cubed = identification(scores**3, truth, threshold=0.5**3)
    assert cubed.auc == identification(scores, truth).auc
    assert cubed.mismatched == identification(scores, truth).mismatched


def test_beliefs_that_do_not_fit_are_errors():
    with pytest.raises(TruepairError, match="for every pair"):
        identification([0.1, 0.2], [True])
    with pytest.raises(TruepairError, match="not a finite"):
        identification([0.1, math.nan], [True, False])
