import io
import zipfile
from importlib.resources import files

import numpy as np
import polars as pl
import pytest
from PIL import Image

from truepair.pairs import demo
from truepair.pairs.demo import demo_data, demo_source, load_demo

BUNDLE = files("truepair.pairs.demo")


@pytest.fixture(scope="module")
def captions():
    return pl.read_csv(io.BytesIO((BUNDLE / "captions.tsv").read_bytes()), separator="\t", quote_char=None)


@pytest.fixture(scope="module")
def archive():
    with zipfile.ZipFile(io.BytesIO((BUNDLE / "pictures.zip").read_bytes())) as opened:
        yield opened


def thumbnails(archive, paths):
    pictures = []
    for path in paths:
        picture = Image.open(io.BytesIO(archive.read(path))).convert("RGBA")
        white = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
        pictures.append(np.asarray(white.convert("RGB").resize((16, 16), Image.Resampling.BOX)).ravel() / 255)
    return np.stack(pictures)


def test_the_bundle_is_small_and_brings_its_licences():
    size = sum((BUNDLE / name).stat().st_size for name in ("pictures.zip", "captions.tsv", "LICENSES.md"))
    assert size < 12 * 2**20
    licences = (BUNDLE / "LICENSES.md").read_text()
    for name in (
        "Noto",
        "Twemoji",
        "Fluent",
        "Apache-2.0",
        "CC-BY 4.0",
        "Unicode-3.0",
        "Emojibase",
        "emojilib",
    ):
        assert name in licences


def test_every_picture_has_two_to_five_different_captions(captions, archive):
    assert set(captions["path"]) == set(archive.namelist())
    counts = captions.group_by("path").agg(pl.len(), pl.col("text").n_unique().alias("different"))
    assert counts["len"].min() >= 2
    assert counts["len"].max() == 5
    assert counts["len"].equals(counts["different"])
    assert captions.null_count().sum_horizontal().item() == 0
    assert (captions["text"].str.strip_chars() == captions["text"]).all()


def test_what_the_splits_promise(captions):
    """dev and test: another vendor's drawing of trained concepts. unseen: concepts of which nothing is trained."""
    drawings = captions.select("split", "path", "concept", "group").unique(maintain_order=True)
    assert drawings["path"].is_unique().all()
    of = {str(key[0]): rows for key, rows in drawings.group_by("split")}
    assert {name: len(rows) for name, rows in of.items()} == {
        "train": 2392,
        "dev": 220,
        "test": 442,
        "unseen": 136,
    }
    trained = set(of["train"]["concept"])
    for name in ("dev", "test"):
        assert set(of[name]["concept"]) <= trained
        assert of[name]["concept"].is_unique().all()
    assert not set(of["unseen"]["group"]) & set(drawings.filter(pl.col("split") != "unseen")["group"])
    assert not set(of["dev"]["group"]) & set(of["test"]["group"])
    # Skin tones are code points of their own; not one is in the data.
    assert not any(tone in code for code in drawings["concept"] for tone in ("1F3FB", "1F3FF"))


def test_no_held_out_picture_looks_like_a_trained_one(captions, archive):
    drawings = captions.select("split", "path", "group").unique(maintain_order=True)
    looks = thumbnails(archive, drawings["path"])
    group = drawings["group"].to_numpy()
    is_trained = (drawings["split"] == "train").to_numpy()
    trained, held_out = looks[is_trained], looks[~is_trained]
    squares = (
        (held_out**2).mean(1)[:, None] + (trained**2).mean(1) - 2 * held_out @ trained.T / looks.shape[1]
    )
    distance = np.sqrt(squares.clip(0))
    # A little under the limits of the build, which saw the pictures before they were compressed.
    assert distance.min() > 0.055
    same_thing = group[~is_trained][:, None] == group[is_trained]
    assert same_thing.sum() > 900
    assert distance[same_thing].min() > 0.093


def test_unpacked_once_and_whole(tmp_path):
    folder = demo_source(tmp_path)
    assert len(list(folder.glob("*/*.webp"))) == 3190
    assert (folder / "LICENSES.md").exists()
    before = (folder / "captions.tsv").stat().st_mtime_ns
    assert demo_source(tmp_path) == folder
    assert (folder / "captions.tsv").stat().st_mtime_ns == before
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_cache_folder_can_be_chosen(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEPAIR_CACHE", str(tmp_path))
    monkeypatch.setattr(demo, "_unpack", lambda out: (out / "captions.tsv").write_text("made"))
    assert demo_source() == tmp_path / f"demo-{demo.VERSION}" / "source"


def test_interrupted_making_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(out):
        (out / "half").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_unpack", interrupted)
    with pytest.raises(KeyboardInterrupt):
        demo_source(tmp_path)
    assert list(tmp_path.iterdir()) == []


def ridge_ranks(train, held_out):
    """Words to mean regions by ridge regression; the rank, from 0, at which every caption finds its picture."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(min_df=2).fit(train.texts)
    known = words.transform(train.texts)
    x = train.images.astype(np.float32).mean(axis=1)
    y = held_out.images.astype(np.float32).mean(axis=1)
    gram = (known.T @ known).toarray() + 1.0 * np.eye(known.shape[1])
    weights = np.linalg.solve(gram, known.T @ x[train.image_of])
    guess = words.transform(held_out.texts) @ weights
    guess /= np.linalg.norm(guess, axis=1, keepdims=True) + 1e-9
    scores = guess @ (y / np.linalg.norm(y, axis=1, keepdims=True)).T
    own = scores[np.arange(len(held_out)), held_out.image_of]
    return (scores >= own[:, None]).sum(axis=1) - 1


@pytest.fixture(scope="module")
def small_demo(tmp_path_factory, captions, archive):
    """The demo data cut to every fourth concept, through all the steps that the whole takes."""
    concepts = captions["concept"].unique(maintain_order=True)[::4]
    rows = captions.filter(pl.col("concept").is_in(concepts.implode()))

    def unpack(out):
        archive.extractall(out, rows["path"].unique())
        rows.write_csv(out / "captions.tsv", separator="\t")

    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(demo, "_unpack", unpack)
        assert demo_data(folder) == folder / "patches"
    return folder


def test_retrieval_works_on_the_demo_data(small_demo):
    """Far above chance already with the simplest model there is."""
    train = load_demo("train", small_demo)
    assert train.images.shape[1:] == (36, 256)
    test = load_demo("test", small_demo)
    assert test.n_images > 100
    assert (ridge_ranks(train, test) < 10).mean() > 0.7


def test_pictures_of_the_demo_are_where_the_pairs_say(small_demo):
    pairs = load_demo("dev", small_demo)
    with Image.open(pairs.picture_paths[0]) as picture:
        assert picture.size == (64, 64)
