"""GRUs over sequences of different lengths, both directions in one loop, with a handwritten backward on processors."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from truepair.losses.precision import full_precision
from truepair.matchers.kernels import product


def gru_states(rnn: nn.GRU, inputs: Tensor, lengths: Tensor) -> Tensor:
    """States of a GRU over sequences of these lengths, the mean of both directions if there are two.

    inputs: m x t x w, batch first. lengths: m, each from 1 to t. Returns m x t x h, zero past each length.
    """
    if inputs.device.type == "cpu" and rnn.num_layers == 1 and rnn.bias:
        return _states(rnn, inputs, lengths)
    packed = pack_padded_sequence(inputs, lengths.cpu(), batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(rnn(packed)[0], batch_first=True, total_length=inputs.shape[1])
    if not rnn.bidirectional:
        return states
    forward, backward = states.chunk(2, dim=-1)
    return (forward + backward) / 2


class Packing(NamedTuple):
    """Sequences laid step by step, longest first: all first items, all second items, and so on; p in all.

    counts: how many sequences are that long, one number per step. places: p, where each item lies in the m x t it
    came from. mirrored: p, the row of the same sequence's item counted from its end; its own inverse.
    """

    counts: list[int]
    places: Tensor
    mirrored: Tensor

    @classmethod
    def of(cls, lengths: Tensor, width: int) -> "Packing":
        """lengths: m, of the sequences. width: t, the items each of them has room for."""
        ordered, order = lengths.cpu().sort(descending=True, stable=True)
        steps = torch.arange(int(ordered[0]))
        counts = (ordered[None, :] > steps[:, None]).sum(1)
        starts = counts.cumsum(0) - counts
        step = steps.repeat_interleave(counts)
        sequence = torch.arange(len(step)) - starts[step]
        mirrored = starts[ordered[sequence] - 1 - step] + sequence
        return cls(counts.tolist(), order[sequence] * width + step, mirrored)


def _states(rnn: nn.GRU, inputs: Tensor, lengths: Tensor) -> Tensor:
    packing = Packing.of(lengths, inputs.shape[1])
    items = [inputs.flatten(0, 1).index_select(0, packing.places)]
    ends = ["l0"]
    if rnn.bidirectional:
        # The other direction reads every sequence from its end, so that both take the same steps.
        items.append(items[0].index_select(0, packing.mirrored))
        ends.append("l0_reverse")
    parameters = [
        torch.stack([getattr(rnn, f"{kind}_{end}") for end in ends])
        for kind in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
    ]
    lower = torch.is_autocast_enabled("cpu")
    precision = torch.get_autocast_dtype("cpu") if lower else inputs.dtype
    with torch.autocast("cpu", enabled=False):
        states: Tensor = _Recurrence.apply(  # type: ignore[no-untyped-call]
            torch.stack(items), *parameters, packing.counts, precision
        )
        mean = states[0]
        if rnn.bidirectional:
            mean = (mean + states[1].index_select(0, packing.mirrored)) / 2
    room = mean.new_zeros(inputs.shape[0] * inputs.shape[1], mean.shape[1])
    return room.index_copy(0, packing.places, mean).view(*inputs.shape[:2], -1)


class _Recurrence(torch.autograd.Function):
    """A GRU layer over packed sequences, all directions (e) at once.

    items: e x p x w. weights, biases: of the inputs, e x 3h x w and e x 3h, and of the states, e x 3h x h and
    e x 3h; reset, update, new. counts: sequences per step. precision: of the matrix products; all else is full
    precision. Returns the states, e x p x h.
    """

    @staticmethod
    def forward(
        ctx: Any,
        items: Tensor,
        in_weights: Tensor,
        in_biases: Tensor,
        weights: Tensor,
        biases: Tensor,
        counts: list[int],
        precision: torch.dtype,
    ) -> Tensor:
        width = weights.shape[2]
        # Becomes what the gates say, step by step.
        gates = _products(items, in_weights.mT.to(precision), in_biases)
        states, before, recurrent_part = (torch.empty_like(gates[..., :width]) for _ in range(3))
        before[:, : counts[0]] = 0
        across = weights.mT.to(precision).contiguous()  # small products are faster so
        start = 0
        for step, count in enumerate(counts):
            here = slice(start, start + count)
            if step:
                before[:, here] = states[:, start - counts[step - 1] : start - counts[step - 1] + count]
                recurrent = _products(before[:, here], across, biases)
            else:
                recurrent = biases[:, None].expand(-1, count, -1)
            switches, new = gates[:, here, : 2 * width], gates[:, here, 2 * width :]
            switches.add_(recurrent[..., : 2 * width]).sigmoid_()
            reset, update = switches.chunk(2, dim=-1)
            recurrent_part[:, here] = recurrent[..., 2 * width :]
            new.addcmul_(reset, recurrent[..., 2 * width :]).tanh_()
            torch.lerp(new, before[:, here], update, out=states[:, here])
            start += count
        ctx.save_for_backward(items, in_weights, weights, gates, before, recurrent_part)
        ctx.counts, ctx.precision = counts, precision
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_states: Tensor) -> tuple[Tensor | None, ...]:
        items, in_weights, weights, gates, before, recurrent_part = ctx.saved_tensors
        precision, width = ctx.precision, weights.shape[2]
        of_states, of_gates, of_recurrent = (
            of_states.clone(),
            torch.empty_like(gates),
            torch.empty_like(gates),
        )
        across, stop = weights.to(precision), gates.shape[1]
        for step in range(len(ctx.counts) - 1, -1, -1):
            start = stop - ctx.counts[step]
            here = slice(start, stop)
            reset, update, new = gates[:, here].chunk(3, dim=-1)
            of_state = of_states[:, here]
            of_new = (of_state * (1 - update)).mul_(1 - new.square())
            of_reset = of_gates[:, here, :width]
            torch.mul(of_new, recurrent_part[:, here], out=of_reset).mul_(reset).mul_(1 - reset)
            of_update = of_gates[:, here, width : 2 * width]
            torch.sub(before[:, here], new, out=of_update).mul_(of_state).mul_(update).mul_(1 - update)
            of_gates[:, here, 2 * width :] = of_new
            of_recurrent[:, here, : 2 * width] = of_gates[:, here, : 2 * width]
            # The reset gate acts on the recurrent part of the new state, not on the input's.
            torch.mul(of_new, reset, out=of_recurrent[:, here, 2 * width :])
            if step:
                earlier = start - ctx.counts[step - 1]
                there = of_states[:, earlier : earlier + ctx.counts[step]]
                there.addcmul_(of_state, update).add_(_products(of_recurrent[:, here], across))
            stop = start
        return (
            _products(of_gates, in_weights.to(precision)) if ctx.needs_input_grad[0] else None,
            _products(items.mT, of_gates.to(precision)).mT,
            of_gates.sum(dim=1),
            _products(before.mT, of_recurrent.to(precision)).mT,
            of_recurrent.sum(dim=1),
            None,
            None,
        )


def _products(x: Tensor, weights: Tensor, biases: Tensor | None = None) -> Tensor:
    """x @ weights + biases for every direction, in the precision of the weights; full precision comes out.

    x: e x p x w. weights: e x w x o. biases: e x o.
    """
    if weights.dtype == torch.float32:
        every = biases if biases is not None else [None] * len(x)
        return torch.stack([product(*one) for one in zip(x, weights.mT, every, strict=True)])
    result = full_precision(torch.bmm(x.to(weights.dtype), weights))
    return result if biases is None else result.add_(biases[:, None])
