"""What the quick audit says must not hang on names, nor break on data that repeat themselves."""

from dataclasses import replace

import numpy as np
import pytest

from truepair.audit.quick import quick_audit


@pytest.fixture(scope="module")
def result(noisy, heard):
    return quick_audit(noisy, heard=heard)


def test_verdicts_are_of_every_pair_and_in_range(noisy, result):
    n = len(noisy)
    assert {
        len(x) for x in (result.scores, result.is_mismatch, result.unsupported, result.other_text.rows)
    } == {n}
    for values in (result.match_score, result.mismatch_probability, result.other_image.confidence):
        assert ((values >= 0) & (values <= 1)).all()
    assert (result.mismatch_probability[result.is_mismatch] >= 0.95).all()
    assert (noisy.image_of[result.other_text.rows] != noisy.image_of).all()
    assert (result.other_image.rows != noisy.image_of).all()


def test_names_and_the_truth_are_not_looked_at(noisy, result):
    generator = np.random.default_rng(5)
    renamed = replace(
        noisy,
        ids=[f"{name:03}" for name in generator.permutation(len(noisy))],
        image_ids=[f"p{name}" for name in generator.permutation(noisy.n_images)],
        true_image_of=None,
    )
    again = quick_audit(renamed)
    np.testing.assert_array_equal(again.mismatch_probability, result.mismatch_probability)
    np.testing.assert_array_equal(again.other_image.rows, result.other_image.rows)
    assert again.unsupported == result.unsupported


def test_a_higher_error_rate_flags_more_of_the_same(noisy, heard, result):
    more = quick_audit(noisy, error_rate=0.3, heard=heard)
    np.testing.assert_array_equal(more.mismatch_probability, result.mismatch_probability)
    assert more.is_mismatch.sum() > result.is_mismatch.sum()
    assert more.is_mismatch[result.is_mismatch].all()


def test_pairs_that_are_there_twice_are_judged_alike(noisy):
    """The same text twice with the same image: equal scores, and no text of the own image as a proposal."""
    twice = replace(
        noisy,
        image_of=np.concatenate([noisy.image_of, noisy.image_of]),
        true_image_of=np.concatenate([noisy.true_image_of, noisy.true_image_of]),
        texts=tuple(noisy.texts) * 2,
        ids=[f"{name}#{copy}" for copy in range(2) for name in noisy.ids],
    )
    result = quick_audit(twice)
    n = len(noisy)
    np.testing.assert_allclose(result.scores[:n], result.scores[n:], atol=1e-4)
    assert (twice.image_of[result.other_text.rows] != twice.image_of).all()
    assert result.interval[0] <= noisy.mismatched.mean() <= result.interval[1]
    assert result.is_mismatch.sum() > 0.5 * 2 * noisy.mismatched.sum()
