"""The linear witness: what it says of a pair comes from the others, and the null is made of other images."""

from dataclasses import replace

import numpy as np
import pytest

from truepair.audit.quick import quick_audit
from truepair.beliefs import witness as room
from truepair.beliefs.share import estimate_share
from truepair.beliefs.siblings import hear_siblings, swapped_share
from truepair.beliefs.witness import hear, pooled
from truepair.errors import TruepairError
from truepair.evaluation.identification import auc
from truepair.pairs.readers import load_pairs


@pytest.fixture(scope="module")
def clean(scenes):
    return load_pairs(scenes)


def test_finds_what_was_put_in(noisy, heard):
    found = estimate_share(heard.scores, heard.null_scores, noisy.image_of, heard.null_images)
    assert auc(-heard.scores, noisy.mismatched) > 0.93
    assert found.low <= noisy.mismatched.mean() <= found.high
    # The wrong pairs are distributed as the random re-pairings are: neither learnt by heart nor pushed away.
    wrong, null = heard.scores[noisy.mismatched], heard.null_scores
    assert abs(wrong.mean() - null.mean()) < 3.5 * wrong.std() / np.sqrt(len(wrong)) + 0.05 * null.std()


def test_a_model_has_not_seen_its_fold(noisy, monkeypatch):
    """Whatever the texts of one fold say, the model that judges this fold stays the same, but for the ridge, one number
    that is chosen for all folds together."""
    monkeypatch.setattr(room, "RIDGES", (3.0,))
    heard = hear(noisy)
    fold = heard.witness.fold[noisy.image_of]
    rows = np.flatnonzero(fold == 0)
    garbled = np.array(noisy.texts, dtype=object)
    garbled[rows] = garbled[np.random.default_rng(0).permutation(rows)]
    again = hear(replace(noisy, texts=tuple(garbled)))
    np.testing.assert_array_equal(again.witness.fold, heard.witness.fold)
    for model, same in ((0, True), (1, False)):
        before, after = (_words_in_pictures(said.witness, model) for said in (heard, again))
        assert (np.abs(before - after).max() < 0.01 * np.abs(before).max()) == same


def _words_in_pictures(witness, model):
    """What each word says about each image feature; does not depend on the directions of any axes."""
    fitted = witness.models[model]
    words = witness.basis.word_vectors @ witness.texts.vectors @ fitted.texts
    return witness.images.vectors @ fitted.images @ words.T


def test_re_pairings_are_of_other_images_of_the_same_fold(noisy, heard):
    counts = np.bincount(heard.null_images, minlength=noisy.n_images)
    given = np.bincount(noisy.image_of, minlength=noisy.n_images)
    assert len(heard.null_scores) == len(heard.null_images)
    assert (counts[given == 0] == 0).all()
    used = given > 0
    times = counts[used] / given[used]
    assert 0.6 * times.mean() < times.min() <= times.max() < 1.4 * times.mean()


def test_blocks_equal_the_whole(noisy, heard, monkeypatch):
    monkeypatch.setattr(room, "BLOCK", 97)
    in_blocks = hear(noisy)
    assert np.corrcoef(in_blocks.scores, heard.scores)[0, 1] > 0.99999


def test_the_same_seed_says_the_same(noisy, heard):
    np.testing.assert_array_equal(hear(noisy).scores, heard.scores)
    assert not np.array_equal(hear(noisy, seed=1).scores, heard.scores)


def test_pooling_leaves_padding_out(noisy):
    rows = np.array([3, 0, 7])
    plain = np.stack([np.mean(noisy.images[row], axis=0, dtype=np.float64) for row in rows])
    np.testing.assert_allclose(pooled(noisy, rows), plain, rtol=1e-3, atol=1e-4)
    counts = np.ones(noisy.n_images, dtype=np.int64)
    first = pooled(replace(noisy, region_counts=counts), rows)
    np.testing.assert_allclose(first, noisy.images[rows][:, 0].astype(np.float32), rtol=1e-6)


def test_what_cannot_be_judged_is_refused(noisy):
    few = noisy.subset(np.isin(noisy.image_of, np.arange(5)))
    with pytest.raises(TruepairError, match="too few"):
        hear(few)
    broken = np.array(noisy.images)
    broken[11] = np.nan
    with pytest.raises(TruepairError, match=r"image row 11 are not finite"):
        hear(replace(noisy, images=broken))
    with pytest.raises(TruepairError, match="has a word"):
        hear(replace(noisy, texts=tuple("..." for _ in noisy.texts)))


def test_features_that_say_nothing_flag_nothing(noisy):
    dull = replace(noisy, images=np.ones_like(noisy.images))
    result = quick_audit(dull)
    assert not result.is_mismatch.any()
    assert result.diagnostic.kind == "undecided"
    assert np.isfinite(result.mismatch_probability).all()


def swapped(pairs, share, seed):
    """Texts move to one of the images that are most similar to their own."""
    generator = np.random.default_rng(seed)
    vectors = pooled(pairs, np.arange(pairs.n_images))
    vectors = vectors - vectors.mean(0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    image_of = pairs.image_of.copy()
    for row in generator.permutation(len(pairs))[: int(share * len(pairs))]:
        order = np.argsort(-(vectors @ vectors[image_of[row]]))
        image_of[row] = generator.choice(order[1 : 1 + pairs.n_images // 20])
    return replace(pairs, image_of=image_of, true_image_of=pairs.image_of)


def test_swaps_among_similar_pictures_are_told_by_the_other_texts(clean):
    result = quick_audit(swapped(clean, 0.25, 3))
    assert result.diagnostic.kind == "structured"
    assert 0.1 < result.diagnostic.swapped_share < 0.4
    assert "similar pictures" in result.diagnostic.says


def test_neither_true_pairs_nor_random_mismatches_look_swapped(clean, noisy, heard):
    assert quick_audit(clean).diagnostic.kind == "none"
    assert quick_audit(noisy, heard=heard).diagnostic.kind == "random"


def test_texts_of_one_image_against_loops(noisy, heard):
    siblings = hear_siblings(noisy, heard.witness)
    texts = heard.witness.texts(room.text_vectors(noisy, np.arange(len(noisy)), heard.witness.basis))
    texts = texts / np.linalg.norm(texts, axis=1, keepdims=True)
    rows = np.flatnonzero(np.bincount(noisy.image_of)[noisy.image_of] > 1)
    assert len(siblings.given) == len(rows)
    for place in range(0, len(rows), 37):
        row = rows[place]
        others = [t for t in range(len(noisy)) if noisy.image_of[t] == noisy.image_of[row] and t != row]
        mean = texts[others].sum(0)
        np.testing.assert_allclose(
            siblings.given[place], texts[row] @ mean / np.linalg.norm(mean), rtol=1e-3, atol=1e-4
        )
    assert siblings.random.mean() < siblings.near.mean() < siblings.given.mean()


def test_one_text_an_image_cannot_be_asked(noisy, heard):
    single = noisy.subset(np.isin(np.arange(len(noisy)), np.unique(noisy.image_of, return_index=True)[1]))
    noise = estimate_share(heard.scores, heard.null_scores, noisy.image_of, heard.null_images)
    assert swapped_share(single, heard.witness, noise) is None
