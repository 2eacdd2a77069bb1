"""The arithmetic of sharing, seen by one process that plays all; test_two_processes.py starts real ones."""

import pytest
import torch

from truepair.matchers import processes as basic
from truepair.matchers.base import ImageCodes, TextCodes
from truepair.training import processes


@pytest.fixture
def play(monkeypatch):
    """play(count, rank): from now on this process takes itself for that one."""

    def as_process(count, rank):
        for module in (basic, processes):
            monkeypatch.setattr(module, "count", lambda: count)
            monkeypatch.setattr(module, "rank", lambda: rank)

    return as_process


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [5, 6, 7, 33, 128])
def test_shares_cover_a_batch_without_overlap(play, count, size):
    rows = []
    for rank in range(count):
        play(count, rank)
        own = range(size)[processes.share(size)]
        assert abs(len(own) - size / count) < 1
        rows += own
    assert rows == list(range(size))


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_batch_too_small_to_share_is_everybodys(play, rank):
    play(3, rank)
    assert processes.share(2) == slice(0, 2)
    rows = torch.randn(2, 4)
    assert processes.gather_rows(rows, 2) is rows


@pytest.mark.parametrize("size", [5, 6])
def test_gathered_rows_come_in_their_order(play, size, monkeypatch):
    whole, parts = torch.randn(size, 3), []
    for rank in (0, 1):
        play(2, rank)
        monkeypatch.setattr(processes, "stacked", lambda own: parts.append(own) or torch.stack([own, own]))
        processes.gather_rows(whole[processes.share(size)], size)
    assert parts[0].shape == parts[1].shape
    monkeypatch.setattr(processes, "stacked", lambda _: torch.stack(parts))
    torch.testing.assert_close(processes.gather_rows(whole[processes.share(size)], size), whole)


def test_one_process_gathers_nothing():
    images = ImageCodes(torch.randn(2, 3, 4), torch.randn(2, 4))
    texts = TextCodes(torch.randn(2, 3, 4), torch.randn(2, 4), torch.tensor([3, 1]))
    assert processes.gather_images(images, 2) is images
    assert processes.gather_texts(texts, texts.lengths) is texts


def test_a_share_without_padding_takes_part_in_gathering_masks(play, monkeypatch):
    play(2, 0)
    monkeypatch.setattr(processes, "stacked", lambda own: torch.stack([own, own]))
    codes = ImageCodes(torch.randn(2, 3, 4), torch.randn(2, 4))
    assert processes.gather_images(codes, 4).mask is None
    mask = torch.tensor([[True, False, True], [True, True, True]])
    gathered = processes.gather_images(ImageCodes(codes.regions, codes.vectors, mask), 4).mask
    assert torch.equal(gathered, mask.repeat(2, 1))


def test_only_the_first_process_speaks(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert processes.speaks()
    monkeypatch.setenv("RANK", "0")
    assert processes.speaks()
    monkeypatch.setenv("RANK", "1")
    assert not processes.speaks()
