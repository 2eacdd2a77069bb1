import numpy as np
import pytest
import torch

from truepair.beliefs.ledger import Ledger, Partition, without_decoys
from truepair.errors import DataError

IDS = [f"pair-{i}" for i in range(6)]
TEXTS = [f"text {i}" for i in range(6)]


@pytest.fixture
def ledger() -> Ledger:
    torch.manual_seed(0)
    ledger = Ledger.blank(2, 6)
    ledger.loss = torch.randn(2, 6)
    ledger.clean = torch.rand(2, 6)
    ledger.correspondence = torch.rand(2, 6)
    ledger.partition = torch.tensor([[0, 1, 2, 3, 1, 2], [1, 1, 1, 2, 2, 2]], dtype=torch.uint8)
    return ledger


def test_a_blank_ledger_believes_every_pair():
    ledger = Ledger.blank(2, 4)
    assert ledger.clean.tolist() == ledger.correspondence.tolist() == [[1.0] * 4] * 2
    assert ledger.partition.tolist() == [[Partition.UNDIVIDED] * 4] * 2
    assert ledger.prior.tolist() == [1.0] * 4


def test_a_prior_is_where_beliefs_begin_and_stays_what_it_was():
    prior = torch.tensor([0.1, 0.9, 0.5], dtype=torch.float64)
    ledger = Ledger.blank(2, 3, prior)
    ledger.clean[0, 0] = 1
    assert ledger.clean[1].tolist() == pytest.approx([0.1, 0.9, 0.5])
    assert ledger.prior.tolist() == pytest.approx([0.1, 0.9, 0.5])


def test_beliefs_survive_a_checkpoint(ledger):
    ledger.notes["anchors"] = torch.randn(3, 2)
    saved = {name: column.clone() for name, column in ledger.columns().items()}
    other = Ledger.blank(2, 6)
    other.notes["stale"] = torch.ones(1)
    other.restore(saved)
    assert other.columns().keys() == saved.keys()
    assert all(torch.equal(column, saved[name]) for name, column in other.columns().items())
    other.clean[0] = 0
    assert torch.equal(saved["clean"], ledger.clean), "a restored ledger has columns of its own"


def test_history_is_compact_and_close(ledger):
    ledger.close_epoch()
    ledger.clean = 1 - ledger.clean
    ledger.close_epoch()
    first, second = ledger.past
    assert [first[name].element_size() for name in Ledger.COLUMNS] == [2, 1, 1, 1]
    torch.testing.assert_close(first["clean"].float() / 255, 1 - ledger.clean, atol=0.5 / 255 + 1e-6, rtol=0)
    torch.testing.assert_close(second["clean"].float() / 255, ledger.clean, atol=0.5 / 255 + 1e-6, rtol=0)
    torch.testing.assert_close(first["loss"].float(), ledger.loss, atol=1e-3, rtol=1e-3)
    assert torch.equal(first["partition"], ledger.partition)
    ledger.partition[0] = 0
    assert not torch.equal(first["partition"], ledger.partition), "the past does not change"


def test_history_is_written_epoch_by_epoch_and_read_back(ledger, tmp_path):
    for epoch in range(3):
        ledger.correspondence = torch.rand(2, 6)
        ledger.close_epoch()
        ledger.save_epoch(tmp_path, epoch)
    other = Ledger.blank(2, 6)
    other.load_past(tmp_path, 2)
    assert len(other.past) == 2, "what a stopped attempt wrote beyond its checkpoint is left out"
    for ours, theirs in zip(other.past, ledger.past, strict=False):
        assert all(torch.equal(ours[name], theirs[name]) for name in Ledger.COLUMNS)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"000{epoch}.safetensors" for epoch in range(3)
    ]


@pytest.mark.parametrize("damage", ["missing", "cut", "empty"])
def test_a_damaged_epoch_is_named(ledger, tmp_path, damage):
    ledger.close_epoch()
    ledger.save_epoch(tmp_path, 0)
    path = tmp_path / "0000.safetensors"
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    with pytest.raises(DataError, match=r"0000\.safetensors.*cannot be read"):
        ledger.load_past(tmp_path, 1)


def test_a_frame_has_means_and_both_networks(ledger):
    frame = ledger.frame(IDS, TEXTS, [True] + [False] * 5)
    assert frame["pair_id"].to_list() == IDS
    assert frame["text"].to_list() == TEXTS
    assert frame["truly_mismatched"].to_list() == [True] + [False] * 5
    for name in ("loss", "clean", "correspondence"):
        column = getattr(ledger, name).numpy()
        np.testing.assert_allclose(frame[name].to_numpy(), column.mean(0), rtol=1e-6)
        np.testing.assert_array_equal(frame[f"{name}_0"].to_numpy(), column[0])
        np.testing.assert_array_equal(frame[f"{name}_1"].to_numpy(), column[1])
    assert frame["partition_0"].to_list() == ["undivided", "clean", "noisy", "local", "clean", "noisy"]
    assert "clean_history" not in frame.columns


def test_a_frame_of_one_network_without_texts_or_truth():
    frame = Ledger.blank(1, 6).frame(IDS, [], None)
    assert frame.columns == ["pair_id", "loss", "clean", "correspondence", "partition"]


def test_a_frame_carries_the_history(ledger):
    ledger.close_epoch()
    expected = ledger.clean.mean(0).numpy()
    ledger.clean = torch.zeros(2, 6)
    ledger.close_epoch()
    history = ledger.frame(IDS, TEXTS, None)["clean_history"].to_numpy()
    assert history.shape == (6, 2)
    np.testing.assert_allclose(history[:, 0], expected, atol=1 / 255)
    np.testing.assert_array_equal(history[:, 1], 0)


def test_beliefs_about_decoys_are_left_empty():
    ledger = Ledger.blank(2, 3)
    ledger.close_epoch()
    frame = without_decoys(
        ledger.frame(["a", "b", "c"], ["x", "y", "z"], [False, True, False]), np.array([0, 1, 0]) > 0
    )
    assert frame["decoy"].to_list() == [False, True, False]
    assert frame["truly_mismatched"].to_list() == [False, True, False]
    beliefs = [name for name in frame.columns if name not in ("pair_id", "text", "truly_mismatched", "decoy")]
    assert {"loss", "clean_1", "partition_0", "correspondence_history"} <= set(beliefs)
    for name in beliefs:
        assert frame[name].is_null().to_list() == [False, True, False]
