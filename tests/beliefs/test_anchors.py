import cmath
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.nn import functional

from truepair.beliefs.anchors import (
    anchor_discrepancy,
    bicro_consistency,
    bicro_labels,
    cosines,
    frequency_representation,
    geometry_labels,
    remember_anchors,
    spectrum,
)
from truepair.beliefs.rectify import adaptive_prediction


def tables(rows, columns=4, low=-1):
    return hnp.arrays(np.float64, (rows, columns), elements=st.floats(low, 1, width=16)).map(torch.as_tensor)


@pytest.fixture
def draw():
    return torch.Generator().manual_seed(11)


def unit(*angles):
    """Unit vectors of the plane at these degrees."""
    radians = torch.tensor(angles, dtype=torch.float64) * math.pi / 180
    return torch.stack([radians.cos(), radians.sin()], 1)


# FoA2


@pytest.mark.parametrize("width", [1, 2, 7, 8])
def test_the_spectrum_equals_the_transform_written_out(draw, width):
    features = torch.randn(3, width, generator=draw, dtype=torch.float64)
    half = width // 2 + 1
    ours = spectrum(features)
    assert ours.shape == (3, 2 * half)
    for row in range(3):
        for k in range(half):
            turns = [cmath.exp(-2j * math.pi * k * t / width) for t in range(width)]
            value = sum(float(x) * turn for x, turn in zip(features[row], turns, strict=True))
            assert float(ours[row, k]) == pytest.approx(abs(value), abs=1e-9)
            # compared on the circle: -pi and pi are the same phase
            assert abs(cmath.exp(1j * float(ours[row, half + k])) - value / abs(value)) < 1e-6


def test_representations_are_centred_on_the_batch_or_on_a_given_center(draw):
    features = torch.randn(6, 9, generator=draw, dtype=torch.float64)
    whole = frequency_representation(features)
    assert whole.mean(0).abs().max() < 1e-12
    center = spectrum(features).mean(0)
    parts = [frequency_representation(features[:2], center), frequency_representation(features[2:], center)]
    torch.testing.assert_close(torch.cat(parts), whole)


def test_the_phase_of_a_component_without_imaginary_part_does_not_flip_with_the_sign_of_a_zero():
    phases = spectrum(-torch.rand(50, 16, generator=torch.Generator().manual_seed(0)) - 0.1)[:, 9]
    torch.testing.assert_close(phases, torch.full((50,), math.pi))


def test_the_representation_belongs_to_the_pair_not_to_its_place(draw):
    features = torch.randn(7, 10, generator=draw)
    order = torch.randperm(7, generator=draw)
    moved = frequency_representation(features[order])
    torch.testing.assert_close(moved, frequency_representation(features)[order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("features", [torch.zeros(3, 8), torch.ones(3, 8), torch.eye(3, 8) * 1e4])
def test_representations_are_finite(features, dtype):
    assert frequency_representation(features.to(dtype)).isfinite().all()


def test_the_discrepancy_compares_every_two_anchors(draw):
    images = torch.randn(4, 5, generator=draw, dtype=torch.float64)
    texts = torch.randn(4, 3, generator=draw, dtype=torch.float64)
    expected = []
    for i in range(4):
        for j in range(i + 1, 4):
            by_image = functional.cosine_similarity(images[i], images[j], dim=0)
            by_text = functional.cosine_similarity(texts[i], texts[j], dim=0)
            expected.append(float((by_image - by_text).abs()))
    assert anchor_discrepancy(images, texts).tolist() == pytest.approx(expected)
    assert anchor_discrepancy(images, images * 3).abs().max() < 1e-12


def test_the_memory_keeps_the_most_recent_anchors():
    memory = torch.empty(0, 1)
    for batch in (torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0]]), torch.tensor([[4.0], [5.0]])):
        memory = remember_anchors(memory, batch.requires_grad_(), capacity=4)
    assert memory[:, 0].tolist() == [2.0, 3.0, 4.0, 5.0]
    assert not memory.requires_grad


# GALC


def label_by_loops(image, text, anchor_images, anchor_texts, form):
    def cosine(a, b):
        return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))

    by_image = [cosine(image, anchor) for anchor in anchor_images]
    by_text = [cosine(text, anchor) for anchor in anchor_texts]
    first, second = sorted(range(len(by_image)), key=lambda a: -by_image[a])[:2]
    if form == "folded" and min(by_image[first], by_image[second], by_text[first], by_text[second]) <= 0:
        return 0.0
    r = (by_image[first] / by_image[second]) / (by_text[first] / by_text[second])
    return (min(r, 1 / r) + min(1 / r, r)) / 2 if form == "folded" else (r + 1 / r) / 2


@pytest.mark.parametrize("form", ["folded", "raw"])
def test_labels_equal_the_equations_written_as_loops(draw, form):
    # shifted, so that most cosines are positive
    images, texts = torch.randn(9, 6, generator=draw) + 0.8, torch.randn(9, 4, generator=draw) + 0.8
    anchors = torch.randn(5, 6, generator=draw) + 0.8, torch.randn(5, 4, generator=draw) + 0.8
    images, texts, anchors = images.double(), texts.double(), tuple(side.double() for side in anchors)
    ours = geometry_labels(images, texts, *anchors, form=form)
    expected = [label_by_loops(images[i], texts[i], *anchors, form) for i in range(9)]
    assert ours.tolist() == pytest.approx(expected)
    assert len({round(value, 6) for value in expected}) > 3


@given(tables(5), tables(5), tables(6), tables(6))
def test_folded_labels_lie_between_0_and_1(images, texts, anchor_images, anchor_texts):
    labels = geometry_labels(images, texts, anchor_images, anchor_texts)
    assert ((labels >= 0) & (labels <= 1)).all()


@given(tables(5, 3, low=0.125), tables(6, 3, low=0.125), st.integers(0, 20))
def test_a_text_that_stands_as_its_image_does_has_the_label_1(images, anchors, seed):
    """Any rotation and scaling of the whole text side keeps every angle."""
    spin = torch.linalg.qr(
        torch.randn(3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ).Q
    labels = geometry_labels(images, 2.5 * images @ spin, anchors, anchors @ spin)
    torch.testing.assert_close(labels, torch.ones_like(labels), rtol=1e-6, atol=1e-6)


@given(st.floats(5, 40), st.floats(5, 40), st.booleans())
def test_the_label_falls_as_the_text_turns_away(first, second, clockwise):
    """The image lies between two anchors; its text turns away from where the image is, further and further."""
    anchors = unit(-first, second)
    distortions = torch.linspace(0, 130, 27).tolist()
    texts = unit(*[-d if clockwise else d for d in distortions])
    labels = geometry_labels(unit(0).expand(27, 2), texts, anchors, anchors)
    assert float(labels[0]) == pytest.approx(1)
    positive = labels > 0
    assert (labels.diff() <= 1e-12).all()
    assert (labels.diff()[positive[:-1]] < 0).all()
    assert float(labels[-1]) == 0


def test_the_raw_form_grows_with_the_distortion_and_is_at_least_1():
    """Why the folded form is the default."""
    anchors, distortions = unit(-20, 30), [0, 10, 20, 30, 40]
    labels = geometry_labels(unit(0).expand(5, 2), unit(*distortions), anchors, anchors, form="raw")
    assert float(labels[0]) == pytest.approx(1)
    assert (labels.diff() > 0).all()


@given(tables(5), tables(5), tables(6), tables(6), st.integers(0, 50))
def test_labels_belong_to_the_pair_and_do_not_depend_on_the_order_of_the_anchors(
    images, texts, anchor_images, anchor_texts, seed
):
    draw = torch.Generator().manual_seed(seed)
    # anchors that are captions of one image: exact ties among the nearest
    anchor_images = anchor_images[[0, 0, 1, 1, 2, 3]]
    pairs, anchors = torch.randperm(5, generator=draw), torch.randperm(6, generator=draw)
    straight = geometry_labels(images, texts, anchor_images, anchor_texts)
    moved = geometry_labels(images[pairs], texts[pairs], anchor_images[anchors], anchor_texts[anchors])
    by_image = cosines(images, anchor_images)
    # a matrix product may round equal columns differently, which would decide a tie
    assume(torch.equal(by_image[:, 0], by_image[:, 1]))
    assume(torch.equal(cosines(images[pairs], anchor_images[anchors]), by_image[pairs][:, anchors]))
    torch.testing.assert_close(moved, straight[pairs])


def test_among_anchors_of_one_image_those_with_the_nearest_texts_are_taken():
    anchor_images, anchor_texts = unit(10, 10, 10, 90), unit(-60, 20, 30, 0)
    image, text = unit(0), unit(0)
    label = geometry_labels(image, text, anchor_images, anchor_texts)
    assert float(label) == pytest.approx(math.cos(math.radians(30)) / math.cos(math.radians(20)))


@pytest.mark.parametrize("anchors", [0, 1])
def test_without_two_anchors_the_label_is_the_fallback(draw, anchors):
    images, texts = torch.randn(3, 4, generator=draw), torch.randn(3, 2, generator=draw)
    few = torch.randn(anchors, 4, generator=draw), torch.randn(anchors, 2, generator=draw)
    assert geometry_labels(images, texts, *few).tolist() == [0.0, 0.0, 0.0]
    given = torch.tensor([0.1, 0.2, 0.3])
    assert torch.equal(geometry_labels(images, texts, *few, fallback=given), given)


def test_a_barred_anchor_is_not_used(draw):
    images, texts = torch.randn(4, 5, generator=draw).double(), torch.randn(4, 3, generator=draw).double()
    labels = geometry_labels(images, texts, images, texts, barred=torch.eye(4, dtype=torch.bool))
    for i in range(4):
        others = [j for j in range(4) if j != i]
        alone = geometry_labels(images[i : i + 1], texts[i : i + 1], images[others], texts[others])
        assert float(labels[i]) == pytest.approx(float(alone))
    barred = torch.ones(4, 4, dtype=torch.bool)
    barred[0, :2] = False
    assert geometry_labels(images, texts, images, texts, barred=barred, fallback=0.4).tolist()[
        1:
    ] == pytest.approx([0.4] * 3)


@pytest.mark.parametrize("form", ["folded", "raw"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("value", [0.0, 1.0, 1e4, 1e-30])
def test_labels_are_finite_for_constant_representations(form, dtype, value):
    same = torch.full((4, 6), value, dtype=dtype)
    assert geometry_labels(same, same, same, same, form=form).isfinite().all()


def test_labels_carry_no_gradient(draw):
    images, texts = torch.randn(4, 5, generator=draw), torch.randn(4, 3, generator=draw)
    labels = geometry_labels(images.requires_grad_(), texts.requires_grad_(), images, texts)
    assert not labels.requires_grad


# BiCro


@pytest.fixture
def recorded(oracle):
    return {name: torch.as_tensor(value) for name, value in oracle("bicro").items()}


def test_bicro_cosines_and_consistency_equal_the_published_numbers(recorded):
    anchors = recorded["anchor_index"]
    by_image = cosines(recorded["img_global_l"], recorded["img_global_l"][anchors])
    by_text = cosines(recorded["txt_global_l"], recorded["txt_global_l"][anchors])
    torch.testing.assert_close(by_image, recorded["sim_pair_img"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(by_text, recorded["sim_pair_txt"], rtol=1e-5, atol=1e-6)
    img2text, text2img = bicro_consistency(recorded["sim_pair_img"], recorded["sim_pair_txt"])
    torch.testing.assert_close(img2text, recorded["consistency_img2text"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(text2img, recorded["consistency_text2img"], rtol=1e-5, atol=1e-6)


def test_bicro_anchors_are_the_best_predicted_pairs(recorded):
    prediction = adaptive_prediction(recorded["sims_l"])
    ascending = prediction.argsort()
    best = len(prediction) // 10 + 1
    assert set(ascending[-best:].tolist()) == set(recorded["anchor_index"].tolist())
    assert sorted(recorded["other_index"].tolist()) == sorted(ascending[:-best].tolist())


def test_bicro_labels_equal_the_published_numbers(recorded):
    anchors = recorded["anchor_index"]
    n = len(recorded["sim_pair_img"])
    labelled = bicro_labels(
        recorded["sim_pair_img"], recorded["sim_pair_txt"], torch.ones(n, dtype=torch.bool)
    )
    torch.testing.assert_close(labelled, recorded["labels_l_if_scatter_were_aligned"], rtol=1e-5, atol=1e-6)
    # What the published code makes of them: the k-th of the others gets the label of batch entry k.
    scattered = torch.ones(n)
    scattered[recorded["other_index"]] = labelled[: n - len(anchors)]
    torch.testing.assert_close(scattered, recorded["labels_l_train"], rtol=1e-5, atol=1e-6)
    by_image = cosines(recorded["img_global_u"], recorded["img_global_l"][anchors])
    by_text = cosines(recorded["txt_global_u"], recorded["txt_global_l"][anchors])
    unlabelled = bicro_labels(by_image, by_text, torch.zeros(len(by_image), dtype=torch.bool))
    torch.testing.assert_close(unlabelled, recorded["labels_u_train"], rtol=1e-5, atol=1e-6)
    kept = unlabelled * (unlabelled > 0.9)
    torch.testing.assert_close(kept, recorded["labels_u_noise_soft"].abs(), rtol=1e-5, atol=1e-6)
