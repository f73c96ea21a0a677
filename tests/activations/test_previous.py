import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from fne.activations import previous
from fne.activations.previous import adopt
from fne.activations.scratch import Scratch
from fne.store.catalog import read_images, write_images
from fne.store.lineage import merge
from fne.store.writer import write_rows
from tests.activations.samples import draw, red_extractor

STORE, IMAGES = Path("features/activations"), Path("data/images.jsonl")


def keep(path: Path) -> str:
    """Put a file into the cache as DVC does and return its name there."""
    content = path.read_bytes()
    md5 = hashlib.md5(content).hexdigest()
    cached = Path("cache", md5[:2], md5[2:])
    cached.parent.mkdir(parents=True, exist_ok=True)
    cached.write_bytes(content)
    return md5


@pytest.fixture(autouse=True)
def cached_store(tmp_path, monkeypatch):
    """A store of three images in the cache, named by a lock file, and gone from the workspace."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(previous, "_cache", lambda: Path("cache"))
    extractor = red_extractor()
    images = sorted((draw(tmp_path, number) for number in range(3)), key=lambda image: image.id)
    write_images(IMAGES, images)
    rows = np.array([[number, 2 * number] for number in range(3)], dtype=np.float32)
    lineage = merge(read_images(IMAGES)[1])
    shards = [(0, [image.id for image in images], rows)]
    made_by = {"EPYC": [images[0].id], "Xeon": [image.id for image in images[1:]]}
    write_rows(STORE, "activations", extractor.layers, "float32", shards, extractor.kind, lineage, made_by)
    listing = [{"md5": keep(path), "relpath": path.name} for path in sorted(STORE.iterdir())]
    Path("listing").write_text(json.dumps(listing))
    outs = [{"path": str(STORE), "md5": keep(Path("listing"))}]
    deps = [{"path": str(IMAGES), "md5": keep(IMAGES)}, {"path": "fne/core"}]
    YAML().dump({"stages": {"extract": {"outs": outs, "deps": deps}}}, Path("dvc.lock"))
    for path in STORE.iterdir():
        path.unlink()


def adopted(numbers=range(3), extractor=None) -> dict[str, list[float]]:
    extractor = extractor or red_extractor()
    images = [draw(Path(), number) for number in numbers]
    scratch = Scratch(Path("scratch"), extractor.kind, extractor.features)
    adopt(scratch, images, STORE, IMAGES, extractor)
    rows = scratch.rows([image.sha256 for image in images])
    return {image.id: rows[image.sha256].tolist() for image in images if image.sha256 in rows}


def shard_object() -> Path:
    (entry,) = [
        each for each in json.loads(Path("listing").read_text()) if each["relpath"].startswith("shard")
    ]
    return Path("cache", entry["md5"][:2], entry["md5"][2:])


def test_rows_are_taken_over_by_the_content_of_their_images():
    assert adopted(numbers=[5, 2, 0]) == {"2.png": [2, 4], "0.png": [0, 0]}


def test_rows_of_another_kind_are_left_alone():
    other = red_extractor()
    other.kind["crops"] = "ten"
    assert adopted(extractor=other) == {}


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"x")])
def test_a_damaged_or_missing_object_only_means_computing(damage):
    damage(shard_object())
    assert adopted() == {}


@pytest.mark.parametrize("content", ["", "stages: {}", "stages: {extract: {outs: [], deps: []}}", "["])
def test_a_lock_file_that_names_no_store_only_means_computing(content):
    Path("dvc.lock").write_text(content)
    assert adopted() == {}


def test_no_lock_file_only_means_computing():
    Path("dvc.lock").unlink()
    assert adopted() == {}


def test_the_processors_that_computed_the_rows_come_along():
    adopted()
    extractor = red_extractor()
    scratch = Scratch(Path("scratch"), extractor.kind, extractor.features)
    digests = {draw(Path(), number).sha256: f"{number}.png" for number in range(3)}
    found = {digests[digest]: name for digest, name in scratch.processors(digests).items()}
    assert found == {"0.png": "EPYC", "1.png": "Xeon", "2.png": "Xeon"}
