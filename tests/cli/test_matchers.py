import json

from truepair.cli import main
from truepair.matchers.registry import MATCHERS


def test_json_lists_the_whole_registry(capsys):
    assert main(["matchers", "--json"]) == 0
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert list(entries) == list(MATCHERS)
    assert entries["projection"]["needs"] == ["image_width", "text_width"]
    assert entries["projection"]["parameters"] == 2 * (512 * 256 + 256)
    assert entries["sgr"]["sigmoid"]
    assert entries["sgr"]["options"]["steps"] == 3
    assert not entries["vse_infty"]["region_codes"]


def test_people_get_a_row_per_matcher(capsys):
    assert main(["matchers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in MATCHERS:
        assert any(line.split()[:1] == [name] for line in lines)
