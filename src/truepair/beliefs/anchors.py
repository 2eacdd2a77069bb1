"""Labels from clean anchors: does a text stand to the anchors' texts as its image does to their images?

GSL (CVPR 2026): Fourier anchor alignment (FoA2) and geometry-aware label correction (GALC).
BiCro (Yang et al., CVPR 2023): similarity consistency with the nearest anchor, which GSL is compared with.
Similarities stay within a modality, so that images and texts may have features of different widths.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from truepair.losses.precision import full_precision

Form = Literal["folded", "raw"]


def spectrum(features: Tensor) -> Tensor:
    """Amplitudes, then phases, of every feature vector's Fourier transform, n x 2 (d // 2 + 1) (GSL, Eq. 7).

    features: n x d, real: the second half of the transform mirrors the first and is left out. No gradient:
    spectra are made for labels.
    """
    if not len(features):  # a transform of nothing is an error of the library on some processors
        return full_precision(features.new_zeros(0, 2 * (features.shape[1] // 2 + 1)))
    transform = torch.fft.rfft(full_precision(features.detach()), dim=-1)
    # A component without an imaginary part has a zero of either sign there; adding 0 keeps its phase at +pi.
    phase = torch.atan2(transform.imag + 0.0, transform.real)
    return torch.cat([transform.abs(), phase], -1)


def frequency_representation(features: Tensor, center: Tensor | None = None) -> Tensor:
    """The spectra of a batch around their mean, n x 2 (d // 2 + 1) (GSL, FoA2).

    features: n x d. center: the mean to use instead of this batch's own, so that pairs and anchors that come
    in separate tensors are centred alike.
    """
    spectra = spectrum(features)
    return spectra - (spectra.mean(0) if center is None else center)


def remember_anchors(memory: Tensor, anchors: Tensor, capacity: int) -> Tensor:
    """The most recent anchors, at most so many rows: a rolling memory, oldest first, without gradient."""
    return torch.cat([memory, anchors.detach()])[-capacity:]


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """Cosine of every row with every row, n x m; 0 where a row is all zero."""
    left, right = full_precision(left), full_precision(right)
    return functional.normalize(left, dim=-1) @ functional.normalize(right, dim=-1).T


def anchor_discrepancy(images: Tensor, texts: Tensor) -> Tensor:
    """|S_V - S_T| of every two different anchors, n (n - 1) / 2 values (the paper's figure).

    images: n x d, texts: n x e: representations of clean pairs, before or after `frequency_representation`.
    The paper prints the share above 0.3.
    """
    gaps = (cosines(images, images) - cosines(texts, texts)).abs()
    row, column = torch.triu_indices(len(gaps), len(gaps), offset=1, device=gaps.device)
    return gaps[row, column]


def geometry_labels(
    images: Tensor,
    texts: Tensor,
    anchor_images: Tensor,
    anchor_texts: Tensor,
    *,
    form: Form = "folded",
    barred: Tensor | None = None,
    fallback: Tensor | float = 0.0,
) -> Tensor:
    """Geometry-aware labels of n pairs from the two clean anchors of the nearest images, n (GALC, Eq. 8-11).

    images: n x d, texts: n x e, anchor_images: m x d, anchor_texts: m x e: representations. barred: n x m,
    True where an anchor may not be used (the pair itself). fallback: the label of a pair that has fewer than
    two anchors, one number or n; 0 by default, because nothing speaks for a pair that was judged noisy.

    With R = S(pair, first anchor) / S(pair, second anchor) in either modality, the raw form is the printed
    (R_I / R_T + R_T / R_I) / 2, which is never below 1 where all cosines are positive and grows with the
    distortion. The folded form takes the smaller of R_I / R_T and its inverse, and 0 if a cosine is not
    positive: 1 exactly when the geometries agree, falling to 0 as they part.
    """
    by_image = cosines(images.detach(), anchor_images.detach())
    by_text = cosines(texts.detach(), anchor_texts.detach())
    usable = torch.ones_like(by_image, dtype=torch.bool) if barred is None else ~barred
    fallback = torch.as_tensor(fallback, dtype=by_image.dtype, device=by_image.device).expand(len(by_image))
    if by_image.shape[1] < 2:
        return fallback.clone()
    nearest = _nearest_two(by_image.masked_fill(~usable, -torch.inf), by_text)
    images_first, images_second = by_image.gather(1, nearest).unbind(1)
    texts_first, texts_second = by_text.gather(1, nearest).unbind(1)
    # R_I / R_T without dividing twice
    straight, crossed = images_first * texts_second, images_second * texts_first
    if form == "folded":
        positive = torch.stack([images_first, images_second, texts_first, texts_second]).amin(0) > 0
        label = torch.where(positive, _folded(straight, crossed), 0.0)
    else:
        label = (_ratio(straight, crossed) + _ratio(crossed, straight)) / 2
    return torch.where(usable.sum(1) >= 2, label, fallback)


def bicro_consistency(by_image: Tensor, by_text: Tensor) -> tuple[Tensor, Tensor]:
    """Consistency with the anchor of the nearest image and with that of the nearest text, n each (BiCro).

    by_image, by_text: n x m, cosines with the anchors within each modality. The smaller of the two cosines'
    ratio and its inverse: at most 1, and below -1 if one cosine is negative and small.
    """

    def with_nearest(of: Tensor) -> Tensor:
        nearest = of.argmax(1, keepdim=True)
        image, text = by_image.gather(1, nearest)[:, 0], by_text.gather(1, nearest)[:, 0]
        return torch.minimum(_ratio(image, text), _ratio(text, image))

    return with_nearest(by_image), with_nearest(by_text)


def bicro_labels(by_image: Tensor, by_text: Tensor, clean: Tensor) -> Tensor:
    """BiCro's labels, n, in [0, 1]: the mean consistency, for a clean pair the mean of that and 1."""
    mean = sum(bicro_consistency(by_image, by_text)) / 2
    return torch.where(clean, (1 + mean) / 2, mean).clamp(0, 1)


def _nearest_two(by_image: Tensor, by_text: Tensor) -> Tensor:
    """Columns of the two largest entries of by_image in each row, n x 2; equal images by their texts.

    The captions of one image make equal cosines; which of them is taken must not depend on the order of the
    batch.
    """
    order = by_text.argsort(dim=1, descending=True, stable=True)
    order = order.gather(1, by_image.gather(1, order).argsort(dim=1, descending=True, stable=True))
    return order[:, :2]


def _ratio(top: Tensor, bottom: Tensor) -> Tensor:
    """top / bottom, finite where bottom vanishes."""
    tiny = torch.finfo(bottom.dtype).eps ** 2
    return top / torch.where(bottom.abs() < tiny, torch.copysign(bottom.new_tensor(tiny), bottom), bottom)


def _folded(left: Tensor, right: Tensor) -> Tensor:
    return torch.minimum(left, right) / torch.maximum(left, right).clamp_min(torch.finfo(left.dtype).tiny)
