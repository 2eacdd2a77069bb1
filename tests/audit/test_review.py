import json

import pytest

from truepair.audit.folder import chosen_pairs, read_audit, reload_pairs
from truepair.audit.review import (
    Decision,
    append_decision,
    read_decisions,
    status,
    wilson,
)
from truepair.errors import DataError


def test_the_last_decision_counts_and_can_be_taken_back(tmp_path):
    path = tmp_path / "decisions.jsonl"
    for verdict in ("keep", "drop"):
        append_decision(path, Decision("a", verdict))
    append_decision(path, Decision("b", "keep"))
    append_decision(path, Decision("c", "rematch", image_id="im"))
    append_decision(path, Decision("b", "undecided"))
    decisions = read_decisions(path)
    assert {name: decision.decision for name, decision in decisions.items()} == {"a": "drop", "c": "rematch"}
    assert decisions["c"].image_id == "im"
    assert len(path.read_text().splitlines()) == 5


def test_a_line_that_was_cut_off_loses_nothing_else(tmp_path):
    path = tmp_path / "decisions.jsonl"
    append_decision(path, Decision("a", "keep"))
    whole = path.read_bytes()
    append_decision(path, Decision("b", "drop"))
    for length in range(len(whole), len(path.read_bytes())):
        cut = tmp_path / "cut.jsonl"
        cut.write_bytes(path.read_bytes()[:length])
        # The last length lacks only the line feed: the decision itself is whole.
        expected = ["a", "b"] if length == len(path.read_bytes()) - 1 else ["a"]
        assert list(read_decisions(cut)) == expected
        append_decision(cut, Decision("c", "keep"))
        assert list(read_decisions(cut)) == [*expected, "c"]


def test_other_front_ends_may_add_fields_but_not_nonsense(tmp_path):
    path = tmp_path / "decisions.jsonl"
    path.write_text('{"pair_id": "a", "decision": "keep", "colour": "blue"}\n\n')
    assert read_decisions(path)["a"].decision == "keep"
    path.write_text('{"pair_id": "a", "decision": "keep"}\n{"pair_id": "a", "decision": "maybe"}\n')
    with pytest.raises(DataError, match=r"line 2.*not a decision"):
        read_decisions(path)


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    # Wilson 1927 by hand: (p + z2/2n -+ z sqrt(p(1-p)/n + z2/4n2)) / (1 + z2/n)
    [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (0, 0, 0.0, 1.0)],
)
def test_wilson(right, total, low, high):
    assert wilson(right, total) == pytest.approx((low, high), abs=1e-4)


def test_precision_counts_flagged_pairs_and_keeps_random_ones_apart(make_audit):
    suspects = read_audit(make_audit(12, 6)).suspects
    decisions = [
        Decision("train-0", "drop"),
        Decision("train-1", "rematch", order="random", image_id="x"),
        Decision("train-2", "keep", order="random"),
        Decision("train-9", "drop"),  # not flagged
        Decision("gone", "drop"),
    ]
    found = status(suspects, {decision.pair_id: decision for decision in decisions})
    assert (found["reviewed"], found["remaining"], found["not_flagged_but_decided"]) == (3, 3, 1)
    assert found["precision"]["share"] == pytest.approx(2 / 3)
    assert found["precision_of_random"]["share"] == 0.5
    assert found["precision_of_random"]["pairs"] == 2


def test_decisions_come_before_the_verdict(make_audit):
    audit = read_audit(make_audit(12, 6))
    pairs = reload_pairs(audit)
    decisions = [
        Decision("train-0", "keep"),
        Decision("train-4", "rematch", image_id=pairs.image_ids[7]),
        Decision("train-11", "drop"),
        Decision("gone", "drop"),
    ]
    chosen = chosen_pairs(
        pairs, audit.suspects, {decision.pair_id: decision for decision in decisions}, rematch=True
    )
    # Flagged are 0 to 5, of which 0 and 1 have a sure proposal (the image before); 0 was kept as it is.
    expected = {0: 0, 1: 0, 4: 7, 6: 6, 7: 7, 8: 8, 9: 9, 10: 10}
    assert dict(zip(chosen.rows.tolist(), chosen.image_of.tolist(), strict=True)) == expected
    plain = chosen_pairs(pairs, audit.suspects, {}, rematch=False)
    assert plain.rows.tolist() == list(range(6, 12))
    assert (plain.image_of == plain.rows).all()


def test_a_rematch_with_an_unknown_image_is_refused(make_audit):
    audit = read_audit(make_audit())
    decisions = {"train-0": Decision("train-0", "rematch", image_id="nowhere")}
    with pytest.raises(DataError, match="nowhere"):
        chosen_pairs(reload_pairs(audit), audit.suspects, decisions, rematch=False)


def test_changed_data_is_refused(make_audit):
    folder = make_audit()
    summary = json.loads((folder / "summary.json").read_text())
    captions = folder.parent / "data" / "train_caps.txt"
    audit = read_audit(folder)
    reload_pairs(audit)
    summary["load"]["split"] = "dev"
    captions.rename(captions.with_name("dev_caps.txt"))
    (captions.parent / "train_ims.npy").rename(captions.with_name("dev_ims.npy"))
    (folder / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(DataError, match="not the pairs"):
        reload_pairs(read_audit(folder))
