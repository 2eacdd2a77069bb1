"""What holds for every matcher in the registry."""

import pytest
import torch

from truepair.errors import TruepairError
from truepair.matchers.registry import MATCHERS, build_matcher

EXACT = {"atol": 1e-6, "rtol": 0}


@pytest.fixture
def matcher(name, make_matcher):
    return make_matcher(name)


@pytest.fixture
def batch(name, make_batch):
    return make_batch(name)


@pytest.fixture
def similarity(matcher, batch):
    with torch.no_grad():
        return matcher.similarity(*batch.codes(matcher))


def test_scores_are_finite_and_differ(batch, similarity):
    assert similarity.shape == (len(batch.regions), len(batch.tokens))
    assert similarity.isfinite().all()
    assert similarity.std() > 1e-4  # a constant matrix would pass every test of invariance


def test_score_of_logits_is_the_similarity(matcher, batch, similarity):
    torch.testing.assert_close(matcher.score(matcher.logits(*batch.codes(matcher))), similarity, **EXACT)


def test_sigmoid_is_declared(name, matcher):
    is_sigmoid = bool((matcher.score(torch.zeros(1)) == 0.5).item())
    assert is_sigmoid == MATCHERS[name].sigmoid


def test_order_of_images_and_texts(matcher, batch, similarity):
    rows, columns = torch.randperm(len(batch.regions)), torch.randperm(len(batch.tokens))
    images = matcher.encode_images(batch.regions[rows], batch.mask[rows])
    texts = matcher.encode_texts(batch.tokens[columns], batch.lengths[columns])
    torch.testing.assert_close(matcher.similarity(images, texts), similarity[rows][:, columns], **EXACT)


def test_order_of_regions(matcher, batch, similarity):
    order = torch.randperm(batch.regions.shape[1])
    images = matcher.encode_images(batch.regions[:, order], batch.mask[:, order])
    texts = matcher.encode_texts(batch.tokens, batch.lengths)
    torch.testing.assert_close(matcher.similarity(images, texts), similarity, **EXACT)


@pytest.mark.parametrize("rubbish", [0.0, 1e3, float("nan")])
def test_padding_of_images_has_no_influence(matcher, batch, similarity, rubbish):
    n, _, width = batch.regions.shape
    regions = batch.regions.masked_fill(~batch.mask[..., None], rubbish)
    regions = torch.cat([regions, torch.full((n, 3, width), rubbish)], dim=1)
    mask = torch.cat([batch.mask, torch.zeros(n, 3, dtype=torch.bool)], dim=1)
    images = matcher.encode_images(regions, mask)
    texts = matcher.encode_texts(batch.tokens, batch.lengths)
    torch.testing.assert_close(matcher.similarity(images, texts), similarity, **EXACT)


def test_padding_of_texts_has_no_influence(name, matcher, batch, similarity):
    if MATCHERS[name].texts == "vectors":
        pytest.skip("vectors have no padding")
    past = torch.arange(batch.tokens.shape[1])[None] >= batch.lengths[:, None]
    tokens = torch.nn.functional.pad(batch.tokens.masked_fill(past, 3), (0, 4), value=5)
    texts = matcher.encode_texts(tokens, batch.lengths)
    images = matcher.encode_images(batch.regions, batch.mask)
    torch.testing.assert_close(matcher.similarity(images, texts), similarity, **EXACT)


def test_company_in_the_batch_has_no_influence(matcher, batch, similarity):
    for i in range(len(batch.regions)):
        image = matcher.encode_images(batch.regions[i : i + 1], batch.mask[i : i + 1])
        for j in range(len(batch.tokens)):
            text = matcher.encode_texts(batch.tokens[j : j + 1], batch.lengths[j : j + 1])
            torch.testing.assert_close(matcher.similarity(image, text)[0, 0], similarity[i, j], **EXACT)


def test_a_mask_that_is_true_everywhere_is_no_mask(matcher, batch):
    everything = torch.ones_like(batch.mask)
    masked, plain = matcher.encode_images(batch.regions, everything), matcher.encode_images(batch.regions)
    torch.testing.assert_close(masked.vectors, plain.vectors, **EXACT)
    assert masked.mask is None


def test_taken_codes_give_the_same_similarities(matcher, batch, similarity):
    images, texts = batch.codes(matcher)
    rows, columns = torch.tensor([4, 0, 4]), torch.tensor([0, 3])
    part = matcher.similarity(images.take(rows), texts.take(columns))
    torch.testing.assert_close(part, similarity[rows][:, columns], **EXACT)


@pytest.mark.parametrize("exact", [False, True])
def test_listed_pairs_equal_the_matrix_with_equal_gradients(matcher, batch, exact):
    """In single precision as used, and in double precision without the noise of nearly flat gradients."""
    if exact:
        matcher.double()
        batch.regions = batch.regions.double()
    generator = torch.Generator().manual_seed(3)
    rows = torch.randint(0, len(batch.regions), (25,), generator=generator)
    columns = torch.randint(0, len(batch.tokens), (25,), generator=generator)
    weights = torch.randn(25, generator=generator)

    def run(listed):
        matcher.zero_grad()
        images, texts = batch.codes(matcher)
        if listed:
            values = matcher.pair_logits(images, texts, rows, columns)
        else:
            values = matcher.logits(images, texts)[rows, columns]
        (values * weights).sum().backward()
        return values.detach(), {label: p.grad.clone() for label, p in matcher.named_parameters()}

    (pairs, ours), (matrix, theirs) = run(True), run(False)
    torch.testing.assert_close(pairs, matrix, atol=1e-12 if exact else 1e-6, rtol=0)
    scale = max(gradient.abs().max().item() for gradient in theirs.values())
    assert scale > 1e-3
    for label, gradient in theirs.items():
        difference = (ours[label] - gradient).abs().max().item()
        assert difference < scale * (1e-9 if exact else 1e-4), label


def test_pair_similarity_is_the_score_of_pair_logits(matcher, batch, similarity):
    rows, columns = torch.tensor([0, 1, 5]), torch.tensor([2, 8, 0])
    pairs = matcher.pair_similarity(*batch.codes(matcher), rows, columns)
    torch.testing.assert_close(pairs, similarity[rows, columns], **EXACT)


def test_no_pairs_give_no_numbers(matcher, batch):
    nothing = torch.zeros(0, dtype=torch.int64)
    assert matcher.pair_logits(*batch.codes(matcher), nothing, nothing).shape == (0,)


def test_global_vectors_have_unit_length(matcher, batch):
    images, texts = batch.codes(matcher)
    for vectors, count in (
        (matcher.image_vectors(images), len(images)),
        (matcher.text_vectors(texts), len(texts)),
    ):
        assert vectors.dim() == 2
        torch.testing.assert_close(vectors.norm(dim=1), torch.ones(count), atol=1e-5, rtol=0)


def test_every_parameter_learns(matcher, batch):
    matcher.train()
    matcher.logits(*batch.codes(matcher)).tanh().sum().backward()
    idle = [label for label, p in matcher.named_parameters() if p.grad is None]
    assert not idle
    assert all(p.grad.isfinite().all() for p in matcher.parameters())


def test_training_on_a_batch_of_one_is_finite(matcher, batch):
    matcher.train()
    image = matcher.encode_images(batch.regions[:1], batch.mask[:1])
    text = matcher.encode_texts(batch.tokens[:1], batch.lengths[:1])
    value = matcher.logits(image, text)
    value.sum().backward()
    assert value.isfinite().all()
    assert all(p.grad.isfinite().all() for p in matcher.parameters() if p.grad is not None)


def test_half_precision_features_are_accepted(matcher, batch):
    half = matcher.encode_images(batch.regions.half(), batch.mask)
    full = matcher.encode_images(batch.regions.half().float(), batch.mask)
    torch.testing.assert_close(half.vectors, full.vectors, **EXACT)


def test_mixed_precision_is_close_and_learns(matcher, batch, similarity):
    rows, columns = torch.tensor([0, 1, 5]), torch.tensor([2, 8, 0])
    with torch.autocast("cpu", torch.bfloat16):
        codes = batch.codes(matcher.train(False))
        matrix, pairs = matcher.similarity(*codes), matcher.pair_similarity(*codes, rows, columns)
    assert (matrix.float() - similarity).abs().mean() < 0.02
    assert (pairs.float() - similarity[rows, columns]).abs().mean() < 0.02
    with torch.autocast("cpu", torch.bfloat16):
        matrix = matcher.train().logits(*batch.codes(matcher))
    matrix.float().tanh().sum().backward()
    assert all(p.grad.isfinite().all() for p in matcher.parameters())


def test_an_image_without_regions_is_an_error(matcher, batch):
    mask = batch.mask.clone()
    mask[3] = False
    with pytest.raises(TruepairError, match="Image 3 of the batch has no real region"):
        matcher.encode_images(batch.regions, mask)


def test_wrong_shapes_are_errors_that_name_the_right_one(name, matcher, batch):
    with pytest.raises(TruepairError, match="images x regions x 20"):
        matcher.encode_images(batch.regions[..., :-1])
    with pytest.raises(TruepairError, match="True where a region is real"):
        matcher.encode_images(batch.regions, batch.mask[:, :-1])
    if MATCHERS[name].texts == "vectors":
        with pytest.raises(TruepairError, match="one vector of 20"):
            matcher.encode_texts(batch.tokens[:, :-1], batch.lengths)
        return
    with pytest.raises(TruepairError, match="between 1 and the 10 columns"):
        matcher.encode_texts(batch.tokens, torch.zeros_like(batch.lengths))
    with pytest.raises(TruepairError, match="knows 40 words"):
        matcher.encode_texts(batch.tokens + 40, batch.lengths)


def test_the_state_survives_a_round_trip(name, matcher, batch, similarity, make_matcher):
    other = make_matcher(name, seed=9)
    assert not torch.allclose(other.similarity(*batch.codes(other)), similarity, atol=1e-4)
    other.load_state_dict(matcher.state_dict())
    torch.testing.assert_close(other.similarity(*batch.codes(other)), similarity, **EXACT)


def test_building_names_what_is_missing_or_unknown(name):
    needed = "vocabulary_size" if MATCHERS[name].texts == "words" else "text_width"
    with pytest.raises(TruepairError, match=f"it needs {needed}"):
        build_matcher(name, image_width=8)
    with pytest.raises(TruepairError, match="has no option colour"):
        build_matcher(name, image_width=8, vocabulary_size=5, text_width=5, colour="red")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(TruepairError, match="vse_infty"):
        build_matcher("clip", image_width=8)
