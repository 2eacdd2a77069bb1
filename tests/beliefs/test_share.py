"""The share of mismatched pairs: known shares are recovered, intervals cover them, structure is told apart."""

import numpy as np
import pytest

from truepair.beliefs.share import estimate_share, mismatched_share, share_beside

PER_IMAGE = 5


def drawn(share, seed, images=600, apart=2.5, of_wrong=0.0):
    """Scores of given pairs and re-pairings with their images; wrong pairs lie at of_wrong, re-pairings at 0."""
    generator = np.random.default_rng(seed)
    image = np.repeat(np.arange(images), PER_IMAGE)
    n = len(image)
    wrong = generator.random(n) < share
    scores = generator.normal(np.where(wrong, of_wrong, apart), np.where(wrong, 1.0, 1.1))
    scores += np.repeat(
        generator.normal(0, 0.2, images), PER_IMAGE
    )  # captions of one image have something in common
    null_image = np.tile(image, 8)
    return scores, generator.normal(0, 1.02, 8 * n), image, null_image, wrong.mean()


def test_mostly_covered_and_close():
    covered, errors = [], []
    for share in (0.0, 0.05, 0.2, 0.5, 0.8):
        for seed in range(4):
            *scores, truth = drawn(share, seed)
            found = estimate_share(*scores, seed)
            covered.append(found.low <= truth <= found.high)
            errors.append(abs(found.share - truth))
            assert found.low <= found.share <= found.high
    assert sum(covered) >= 18
    assert np.mean(errors) < 0.02
    assert max(errors) < 0.06


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_found_where_nothing_is(seed):
    *scores, _ = drawn(0.0, seed)
    found = estimate_share(*scores)
    assert found.kind == "none"
    assert found.low == 0
    assert found.share < 0.01


def test_random_mismatches_are_called_random_and_similar_ones_structured():
    *scores, _ = drawn(0.3, 0)
    assert estimate_share(*scores).kind == "random"
    *scores, _ = drawn(0.4, 0, apart=3.5, of_wrong=0.5)
    found = estimate_share(*scores)
    assert found.kind == "structured"
    assert found.slope > 3 * found.slope_error


def test_scores_that_tell_nothing_leave_it_undecided():
    *scores, _ = drawn(0.2, 0, apart=0.0)
    found = estimate_share(*scores)
    assert found.kind == "undecided"
    assert found.separation < 0.6 or found.share > 0.8


def test_more_images_make_the_interval_narrower():
    widths = []
    for images in (100, 1600):
        *scores, _ = drawn(0.3, 0, images=images)
        found = estimate_share(*scores)
        widths.append(found.high - found.low)
    assert widths[1] < 0.6 * widths[0]


def test_names_of_images_and_the_order_of_pairs_do_not_matter():
    scores, null, image, null_image, _ = drawn(0.3, 1)
    before = estimate_share(scores, null, image, null_image)
    order = np.random.default_rng(0).permutation(len(scores))
    after = estimate_share(scores[order], null, 7 * image[order] + 3, 7 * null_image + 3)
    assert after.share == before.share
    assert abs(after.low - before.low) < 0.01
    assert mismatched_share(scores, null) == before.share


def test_a_kind_is_found_beside_a_known_one():
    """Three kinds of scores; the share of the lowest is known, that of the middle one is asked for."""
    for truth in (0.0, 0.15, 0.4):
        generator = np.random.default_rng(5)
        image = np.repeat(np.arange(800), PER_IMAGE)
        kind = generator.choice(3, len(image), p=[0.2, truth, 0.8 - truth])
        given = generator.normal(np.array([-2.5, 0.0, 2.5])[kind])
        null = (generator.normal(size=20_000), generator.integers(0, 800, 20_000))
        known = (generator.normal(-2.5, size=20_000), generator.integers(0, 800, 20_000))
        share, low = share_beside((given, image), null, known, float((kind == 0).mean()))
        assert low <= share
        assert abs(share - truth) < 0.04
        assert (low > 0.03) == (truth > 0)
