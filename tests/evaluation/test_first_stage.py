import numpy as np
import pytest
import torch

from truepair.evaluation.first_stage import FirstStage, crossed, features, logits
from truepair.evaluation.two_stage import global_vectors
from truepair.matchers.base import lengths_to_mask
from truepair.matchers.registry import MATCHERS, build_matcher

OWNERS = np.arange(180) // 3


def predictable(noise=0.1, seed=0):
    """Features, and scores that are a bilinear form of them, with a few items that score high with everything."""
    rng = np.random.default_rng(seed)
    images, texts = rng.standard_normal((60, 8)) / 8**0.5, rng.standard_normal((180, 6)) / 6**0.5
    form = 5 * rng.standard_normal((8, 6))
    target = images @ form @ texts.T + (images[:, :1] + texts[:, 0]) * 2
    return images, texts, target + noise * rng.standard_normal(target.shape)


def agreement(found, target):
    return np.corrcoef(found.ravel(), target.ravel())[0, 1]


def test_the_fit_is_the_ridge_regression_on_all_products():
    """The closed form against the normal equations of every product of two features, written out."""
    images, texts, target = predictable()
    fitted = FirstStage.fit(images, texts, target)
    left, right = fitted.vectors(images, texts)
    a, b = (np.concatenate([x - x.mean(0), np.full((len(x), 1), 0.3)], axis=1) for x in (images, texts))
    cost_a = 0.03 * 10 * np.trace(a.T @ a) / 9 * np.eye(9)
    cost_b = 0.03 * np.trace(b.T @ b) / 7 * np.eye(7)
    products = np.einsum("ia,jb->ijab", a, b).reshape(-1, 63)
    cost = np.kron(a.T @ a + cost_a, b.T @ b + cost_b)
    weights = np.linalg.solve(cost, products.T @ target.ravel())
    np.testing.assert_allclose((left @ right.T).ravel(), products @ weights, atol=1e-8)


def test_what_is_a_bilinear_form_is_predicted_for_other_data():
    images, texts, target = predictable()
    fitted = FirstStage.fit(images[:40], texts[:120], target[:40, :120])
    left, right = fitted.vectors(images[40:], texts[120:])
    assert agreement(left @ right.T, target[40:, 120:]) > 0.95


def test_crossed_predictions_have_not_seen_what_they_predict():
    images, texts, target = predictable()
    assert agreement(crossed(images, texts, target, OWNERS), target) > 0.95
    noise = np.random.default_rng(1).standard_normal(target.shape)
    assert abs(agreement(crossed(images, texts, noise, OWNERS), noise)) < 0.1
    own = np.arange(180)
    changed = target.copy()
    changed[OWNERS, own] += 10
    # Own scores that no other data explains are not found by a fit that has not seen them.
    found = crossed(images, texts, changed, OWNERS) - crossed(images, texts, target, OWNERS)
    assert abs(found[OWNERS, own].mean() - found.mean()) < 0.5


def test_two_images_can_be_crossed():
    images, texts, target = predictable()
    assert np.isfinite(crossed(images[:2], texts[:6], target[:2, :6], OWNERS[:6])).all()


@pytest.mark.parametrize("name", MATCHERS)
def test_features_are_global_vectors_and_unit_means(name):
    torch.manual_seed(0)
    sizes = {"vocabulary_size": 30} if MATCHERS[name].texts == "words" else {"text_width": 12}
    matcher = build_matcher(name, image_width=12, embedding=16, **sizes).eval()
    lengths = torch.tensor([3, 1, 6, 2])
    tokens = torch.randint(1, 30, (4, 6)) if MATCHERS[name].texts == "words" else torch.rand(4, 12)
    mask = lengths_to_mask(torch.tensor([2, 5, 1]), 5)
    with torch.no_grad():
        codes = matcher.encode_images(torch.rand(3, 5, 12), mask), matcher.encode_texts(tokens, lengths)
    images, texts = features([matcher, matcher], [codes, codes])
    vectors = global_vectors([matcher], [codes])
    width = vectors[0].shape[1]
    assert len(images) == 3
    assert len(texts) == 4
    np.testing.assert_allclose(images[:, :width], vectors[0].numpy(), rtol=1e-6)
    if matcher.has_parts:
        mean = codes[0].regions[1].mean(0)  # all of its regions are real
        np.testing.assert_allclose(images[1, width : 2 * width], (mean / mean.norm()).numpy(), atol=1e-6)
        mean = codes[1].words[3, :2].mean(0)
        np.testing.assert_allclose(texts[3, width : 2 * width], (mean / mean.norm()).numpy(), atol=1e-6)
    half = images.shape[1] // 2
    np.testing.assert_array_equal(images[:, :half], images[:, half:])


def test_logits_are_finite():
    np.testing.assert_allclose(logits(np.array([0.5, 0.9])), [0, np.log(9)])
    assert np.isfinite(logits(np.array([0.0, 1.0], np.float32))).all()
