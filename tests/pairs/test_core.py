import hashlib
import json
import os
from dataclasses import replace

import numpy as np
import pytest

from truepair import load_pairs
from truepair.pairs.core import Source


@pytest.fixture
def pairs(precomputed):
    return load_pairs(precomputed(images=4), noise=0.5)


def test_a_subset_keeps_ids_images_and_truth(pairs):
    rows = np.array([7, 2, 19])
    subset = replace(pairs, text_vectors=np.arange(40).reshape(20, 2)).subset(rows)
    assert [list(pairs.texts).index(text) for text in subset.texts] == [
        list(pairs.texts).index(pairs.texts[row]) for row in rows
    ]
    assert list(subset.ids) == [pairs.ids[row] for row in rows]
    assert subset.image_of.tolist() == pairs.image_of[rows].tolist()
    assert subset.mismatched.tolist() == pairs.mismatched[rows].tolist()
    assert subset.text_vectors.tolist() == [[14, 15], [4, 5], [38, 39]]
    assert subset.images is pairs.images
    assert subset.n_images == 4
    assert len(subset) == 3


def test_a_subset_may_be_given_as_a_mask(pairs):
    mask = np.zeros(20, bool)
    mask[[3, 9]] = True
    assert list(pairs.subset(mask).ids) == [pairs.ids[3], pairs.ids[9]]


def test_a_source_is_hashed_again_when_it_changes(tmp_path):
    path = tmp_path / "x"
    source = Source(str(path))
    for content in (b"one", b"two"):
        path.write_bytes(content)
        os.utime(path, ns=(content[0], content[0]))
        assert source.sha256 == hashlib.sha256(content).hexdigest()


def test_provenance_fits_into_a_json_file(pairs):
    content = json.loads(json.dumps(pairs.provenance.describe()))
    assert content["layout"] == "precomputed"
    assert content["noise"]["protocol"] == "caption"
    assert content["noise"]["nominal"] == 0.5
    assert {len(source["sha256"]) for source in content["sources"]} == {64}
