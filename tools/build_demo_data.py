"""Rebuild the bundled demo data from pinned npm packages: python tools/build_demo_data.py [WORK_FOLDER]

Needs npm and node (to fetch the packages and to draw Fluent's SVG files) and the project's own environment. The
result is two files in src/truepair/pairs/demo: pictures.zip (WebP, stored) and captions.tsv.
docs/embed.md says what the splits measure.
"""

import csv
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from demo_texts import Concept, captions_of, read_concepts
from PIL import Image

PACKAGES = {
    "emoji-datasource-google": "16.0.0",
    "emoji-datasource-twitter": "16.0.0",
    "fluentui-emoji": "1.3.0",
    "cldr-annotations-full": "48.2.0",
    "emojibase-data": "17.0.0",
    "emojilib": "4.0.3",
    "@resvg/resvg-wasm": "2.6.2",
}
WANTED = re.compile(  # the parts of the packages that are read
    r"package/(emoji\.json|img/(google|twitter)/64/.*|icons/modern/.*|annotations/en/.*|en/shortcodes/.*"
    r"|dist/.*|index.*|package\.json)$"
)
VENDORS = ("noto", "twemoji", "fluent")
SIZE = 64
OUT = Path(__file__).parent.parent / "src/truepair/pairs/demo"

SHARE_UNSEEN, SHARE_TEST, SHARE_DEV = 0.12, 0.42, 0.20  # of the groups of concepts
# Root mean square over 16 x 16 colours in [0, 1]: nearer drawings count as the same picture. Stricter within a
# concept, where likeness is a give-away, than between concepts, where it is a difficulty.
SAME_PICTURE, SAME_PICTURE_OF_CONCEPT = 0.06, 0.10


def main() -> None:
    work = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    packages = {name: fetch(name, version, work) for name, version in PACKAGES.items()}
    concepts = read_concepts(packages)
    drawings = draw(concepts, packages, work)
    splits = divide(concepts, drawings)
    write(concepts, drawings, splits)


def fetch(name: str, version: str, work: Path) -> Path:
    """Unpack what is wanted of an npm package, once; returns its folder."""
    folder = work / f"{name.replace('/', '-').removeprefix('@')}-{version}"
    if not folder.exists():
        archive = folder.with_suffix(folder.suffix + ".tgz")
        if not archive.exists():
            subprocess.run(["npm", "pack", "--silent", f"{name}@{version}"], cwd=work, check=True)
        with tarfile.open(archive) as tar:
            members = [member for member in tar if WANTED.match(member.name)]
            tar.extractall(folder, members, filter="data")
    return folder / "package"


def draw(
    concepts: list[Concept], packages: dict[str, Path], work: Path
) -> dict[tuple[str, str], Image.Image]:
    """The pictures by (code, vendor), RGBA, SIZE x SIZE. A concept that a vendor has not drawn is left out there."""
    fluent = render_fluent(concepts, packages, work)
    drawings = {}
    for concept in concepts:
        places = {
            "noto": packages["emoji-datasource-google"] / "img/google/64" / concept.image,
            "twemoji": packages["emoji-datasource-twitter"] / "img/twitter/64" / concept.image,
            "fluent": fluent / f"{concept.code}.png",
        }
        for vendor, place in places.items():
            if place.exists():
                with Image.open(place) as picture:
                    drawings[concept.code, vendor] = picture.convert("RGBA")
    return drawings


def render_fluent(concepts: list[Concept], packages: dict[str, Path], work: Path) -> Path:
    """Fluent's drawings are SVG files named after the concept: a folder of PNG files named after its code."""
    icons, vector, folder = (
        packages["fluentui-emoji"] / "icons/modern",
        work / "fluent-svg",
        work / "fluent-png",
    )
    if not folder.exists():
        shutil.rmtree(vector, ignore_errors=True)
        vector.mkdir()
        for concept in concepts:
            slug = re.sub(r"[^a-z0-9]+", "-", concept.name.replace("'", "")).strip("-")
            for icon in (icons / f"{slug}-default.svg", icons / f"{slug}.svg"):
                if icon.exists():
                    shutil.copyfile(icon, vector / f"{concept.code}.svg")
        folder.mkdir()
        script = Path(__file__).parent / "render_svg.mjs"
        subprocess.run(["node", script, packages["@resvg/resvg-wasm"], str(SIZE), vector, folder], check=True)
    return folder


def divide(
    concepts: list[Concept], drawings: dict[tuple[str, str], Image.Image]
) -> dict[tuple[str, str], str]:
    """The split of every drawing.

    unseen: groups of concepts of which nothing is trained. test, dev: one drawing (of one vendor) of a group whose
    other drawings are trained, and only if no trained picture looks the same. train: all the rest.
    """
    splits = {}
    for concept in concepts:
        place = fraction(concept.group)
        held_out = VENDORS[int(fraction(concept.group + " vendor") * len(VENDORS))]
        drawn = [vendor for vendor in VENDORS if (concept.code, vendor) in drawings]
        if place < SHARE_UNSEEN:
            # One drawing only: two with the same captions could not be told apart by any of them.
            splits[concept.code, held_out if held_out in drawn else drawn[0]] = "unseen"
            continue
        for vendor in drawn:
            split = "train"
            if vendor == held_out and len(drawn) == len(VENDORS):
                if place < SHARE_UNSEEN + SHARE_TEST:
                    split = "test"
                elif place < SHARE_UNSEEN + SHARE_TEST + SHARE_DEV:
                    split = "dev"
            splits[concept.code, vendor] = split
    group_of = {concept.code: concept.group for concept in concepts}
    trained = [key for key, split in splits.items() if split == "train"]
    thumbnails = np.stack([thumbnail(drawings[key]) for key in trained])
    groups = np.array([group_of[code] for code, _ in trained])
    doubles = []
    for key, split in splits.items():
        if split != "train":
            distance = np.sqrt(((thumbnails - thumbnail(drawings[key])) ** 2).mean(1))
            limit = np.where(groups == group_of[key[0]], SAME_PICTURE_OF_CONCEPT, SAME_PICTURE)
            if (distance < limit).any():
                doubles.append(key)
    for key in doubles:
        # Left out rather than trained: trained, it could be the double of another drawing that is held out.
        del splits[key]
    print(f"{len(doubles)} held-out drawings left out, for they look like a trained one")
    return splits


def fraction(text: str) -> float:
    """A number in [0, 1) that depends on the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def thumbnail(picture: Image.Image) -> np.ndarray:
    white = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    return np.asarray(white.resize((16, 16), Image.Resampling.BOX), dtype=np.float32).ravel() / 255


def write(
    concepts: list[Concept], drawings: dict[tuple[str, str], Image.Image], splits: dict[tuple[str, str], str]
) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    rows = []
    with zipfile.ZipFile(OUT / "pictures.zip", "w", zipfile.ZIP_STORED) as archive:
        for concept in concepts:
            for drawing, vendor in enumerate(VENDORS):
                split = splits.get((concept.code, vendor))
                if split is None:
                    continue
                path = f"{vendor}/{concept.code.lower()}.webp"
                data = io.BytesIO()
                drawings[concept.code, vendor].save(data, "WEBP", quality=85, method=6)
                archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), data.getvalue())
                rows += [
                    (split, path, text, source, concept.code, concept.name, concept.group)
                    for text, source in captions_of(concept, drawing)
                ]
    order = {"train": 0, "dev": 1, "test": 2, "unseen": 3}
    rows.sort(key=lambda row: order[row[0]])  # stable: the drawings stay in the packages' order
    with (OUT / "captions.tsv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerow(("split", "path", "text", "source", "concept", "name", "group"))
        table.writerows(rows)
    for split in order:
        of_split = [row for row in rows if row[0] == split]
        print(f"{split}: {len({row[1] for row in of_split})} pictures, {len(of_split)} captions")


if __name__ == "__main__":
    main()
