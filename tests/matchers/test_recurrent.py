"""Our GRU against torch's, which the tests of the published matchers also rely on."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from truepair.matchers.recurrent import Packing, gru_states

LENGTHS = {
    "mixed": [3, 7, 1, 7, 2, 5],
    "equal": [4, 4, 4],
    "one word each": [1, 1],
    "a single sequence": [6],
}


def by_torch(rnn, inputs, lengths):
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(rnn(packed)[0], batch_first=True, total_length=inputs.shape[1])
    return sum(states.chunk(2, dim=-1)) / 2 if rnn.bidirectional else states


def make(kind, bidirectional=True, dtype=torch.float64):
    torch.manual_seed(3)
    lengths = torch.tensor(LENGTHS[kind])
    rnn = nn.GRU(5, 4, batch_first=True, bidirectional=bidirectional).to(dtype)
    return rnn, torch.randn(len(lengths), 8, 5, dtype=dtype, requires_grad=True), lengths


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("bidirectional", [True, False])
def test_states_and_all_gradients_are_torchs(kind, bidirectional):
    rnn, inputs, lengths = make(kind, bidirectional)
    leaves = [inputs, *rnn.parameters()]
    results = []
    for states_of in (gru_states, by_torch):
        states = states_of(rnn, inputs, lengths)
        weights = torch.sin(torch.arange(states.numel(), dtype=states.dtype)).view_as(states)
        results.append((states, torch.autograd.grad((states * weights).sum(), leaves)))
    (ours, our_gradients), (theirs, their_gradients) = results
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(our_gradients, their_gradients, strict=True):
        torch.testing.assert_close(mine, other)


def test_finite_differences_agree():
    rnn, inputs, lengths = make("mixed")
    assert torch.autograd.gradcheck(lambda x: gru_states(rnn, x, lengths), inputs)


def test_what_lies_past_a_length_is_never_read_and_comes_out_as_zero():
    rnn, inputs, lengths = make("mixed")
    padded = inputs.detach().clone()
    beyond = torch.arange(8)[None, :] >= lengths[:, None]
    padded[beyond] = torch.nan
    states = gru_states(rnn, padded, lengths)
    assert torch.equal(states, gru_states(rnn, inputs, lengths))
    assert not bool(states[beyond].any())


def test_mixed_precision_multiplies_in_bf16_and_adds_up_in_fp32():
    rnn, inputs, lengths = make("mixed", dtype=torch.float32)
    exact = gru_states(rnn, inputs, lengths)
    with torch.autocast("cpu", torch.bfloat16):
        states = gru_states(rnn, inputs, lengths)
    states.sum().backward()
    assert states.dtype == torch.float32
    torch.testing.assert_close(states, exact, atol=0.02, rtol=0.02)
    assert all(bool(p.grad.isfinite().all()) and p.grad.dtype == torch.float32 for p in rnn.parameters())


def test_several_layers_are_left_to_torch():
    torch.manual_seed(0)
    rnn = nn.GRU(5, 4, num_layers=2, batch_first=True, bidirectional=True)
    inputs, lengths = torch.randn(3, 6, 5), torch.tensor([2, 6, 3])
    torch.testing.assert_close(gru_states(rnn, inputs, lengths), by_torch(rnn, inputs, lengths))


def test_a_packing_lays_sequences_step_by_step_and_reads_them_from_the_end():
    packing = Packing.of(torch.tensor([1, 3, 2]), width=4)
    assert packing.counts == [3, 2, 1]
    # Longest first: texts 1, 2, 0 at step 0, then 1 and 2, then 1 alone.
    assert packing.places.tolist() == [4, 8, 0, 5, 9, 6]
    assert packing.mirrored.tolist() == [5, 4, 2, 3, 1, 0]
    assert torch.equal(packing.mirrored[packing.mirrored], torch.arange(6))
