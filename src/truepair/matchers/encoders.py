"""Parts that several matchers share: checks, norms, and the encoders of regions and of words."""

import torch
from torch import Tensor, nn

from truepair.errors import TruepairError
from truepair.losses.precision import full_precision
from truepair.matchers import processes
from truepair.matchers.kernels import Linear, l2norm
from truepair.matchers.recurrent import gru_states


def checked_regions(regions: Tensor, mask: Tensor | None, width: int) -> tuple[Tensor, Tensor | None]:
    """The regions, zero where the mask is False, and the mask; None instead of one that is True everywhere.

    Whatever lies in a masked row, even NaN, is gone after this. An image without any real region is an error:
    there is nothing it could be similar to.
    """
    if regions.dim() != 3 or regions.shape[-1] != width:
        raise TruepairError(
            f"Image features have the shape {tuple(regions.shape)}; "
            f"this matcher needs images x regions x {width}."
        )
    if mask is None:
        return regions, None
    if mask.shape != regions.shape[:2] or mask.dtype != torch.bool:
        raise TruepairError(
            f"The mask of the regions has the shape {tuple(mask.shape)} and type {mask.dtype}; "
            f"it must be {tuple(regions.shape[:2])} of booleans, True where a region is real."
        )
    if mask.all():
        return regions, None
    empty = ~mask.any(dim=1)
    if empty.any():
        raise TruepairError(
            f"Image {int(empty.nonzero()[0])} of the batch has no real region: its mask is False everywhere. "
            "Remove it together with its texts."
        )
    return regions.masked_fill(~mask[..., None], 0), mask


def checked_tokens(tokens: Tensor, lengths: Tensor, vocabulary_size: int) -> None:
    """Refuse word numbers and lengths that cannot be right, with a message that says why."""
    if tokens.dim() != 2 or lengths.shape != tokens.shape[:1]:
        raise TruepairError(
            f"Texts need word numbers of the shape texts x words and one length each; "
            f"got {tuple(tokens.shape)} and {tuple(lengths.shape)}."
        )
    if int(lengths.min()) < 1 or int(lengths.max()) > tokens.shape[1]:
        raise TruepairError(
            f"Lengths of texts run from {int(lengths.min())} to {int(lengths.max())}; "
            f"they must lie between 1 and the {tokens.shape[1]} columns of word numbers."
        )
    if int(tokens.min()) < 0 or int(tokens.max()) >= vocabulary_size:
        raise TruepairError(
            f"Word numbers run from {int(tokens.min())} to {int(tokens.max())}, but this matcher knows "
            f"{vocabulary_size} words. Use the vocabulary the matcher was built or trained with."
        )


class BatchNorm(nn.BatchNorm1d):
    """Batch norm that one row does not break: it has no spread of its own, so running statistics serve it.

    Processes that share a batch share its statistics, with gradient, on any device and back end.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x: rows x channels, or rows x channels x positions."""
        if self.training and processes.count() > 1:
            return self._over_all_processes(x)
        if self.training and x.numel() == x.shape[1]:
            return self._by_running_statistics(x)
        return super().forward(x)

    def _by_running_statistics(self, x: Tensor) -> Tensor:
        return nn.functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )

    def _over_all_processes(self, x: Tensor) -> Tensor:
        values = full_precision(x)
        channels = (1, -1, *[1] * (x.dim() - 2))
        others = [axis for axis in range(x.dim()) if axis != 1]
        own = torch.cat([values.sum(others), values.new_tensor([x.numel() / x.shape[1]])])
        sums = processes.sum_of_all(own)
        size = sums[-1].detach()
        if size <= 1:
            return self._by_running_statistics(x)
        mean = sums[:-1] / size
        centred = values - mean.view(channels)
        variance = processes.sum_of_all(centred.square().sum(others)) / size
        self._remember(mean.detach(), variance.detach() * size / (size - 1))
        scale = (variance + self.eps).rsqrt() * self.weight
        normed: Tensor = centred * scale.view(channels) + self.bias.view(channels)
        return normed.to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), self.momentum)
        self.num_batches_tracked += 1


def with_constant_bias(layer: nn.Linear) -> nn.Linear:
    """The layer before a batch norm: its bias stays as it is, under its name.

    The norm takes the bias away again, so that its gradient is nothing but rounding errors. Adam turns these into
    steps of full size, which show in evaluation mode, where running statistics lag behind.
    """
    bias = layer.bias.detach()
    del layer.bias
    layer.register_buffer("bias", bias)
    return layer


class RegionEncoder(nn.Module):
    """One linear layer to the joint space, unit length per region (SCAN's image encoder)."""

    def __init__(self, image_width: int, embedding: int) -> None:
        super().__init__()
        self.fc = Linear(image_width, embedding)

    def forward(self, regions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """regions: n x k x features. Returns n x k x d, zero where masked, and the mask if it hides any."""
        regions, mask = checked_regions(regions, mask, self.fc.in_features)
        codes = l2norm(self.fc(regions.to(self.fc.weight.dtype)))
        return (codes if mask is None else codes.masked_fill(~mask[..., None], 0)), mask


class WordEncoder(nn.Module):
    """Word embedding and GRU, the mean of both directions; words come out as they are, without a norm."""

    def __init__(
        self,
        vocabulary_size: int,
        word_width: int,
        embedding: int,
        layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary_size, word_width)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        self.dropout = nn.Dropout(dropout)
        self.rnn = nn.GRU(word_width, embedding, layers, batch_first=True, bidirectional=bidirectional)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens: m x t. lengths: m. Returns m x (longest length) x d, zero past each length."""
        checked_tokens(tokens, lengths, self.embed.num_embeddings)
        tokens = tokens[:, : int(lengths.max())]
        return gru_states(self.rnn, self.dropout(self.embed(tokens)), lengths)


def mean_over(x: Tensor, mask: Tensor | None) -> Tensor:
    """Mean over the second axis of the rows that are real; rows that are not must be zero already."""
    if mask is None:
        return x.mean(dim=1)
    return x.sum(dim=1) / mask.sum(dim=1, keepdim=True)
