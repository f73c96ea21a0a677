import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

from fne.extraction import finished_rows
from fne.extraction.finished_rows import (
    KIND,
    Scratch,
    append_hardware,
    fetchable_from,
    hardware_by_row,
    hardware_name,
    hardware_warning,
    read_hardware,
    reuse_cached_rows,
    summarize_hardware,
)
from fne.store.artifact import merge
from fne.store.catalog import read_images, write_images
from fne.store.journal import Journal
from fne.store.rows import write_rows
from tests.support.extraction import draw, red_extractor

DIGESTS = ["aa" + "0" * 62, "aa" + "1" * 62, "bb" + "0" * 62]
STORE, IMAGES = Path("features/activations"), Path("data/images.jsonl")


def fill(scratch: Scratch, digests: list[str]) -> None:
    for journal, _, missing in scratch.claims(digests):
        for digest in missing:
            journal.append(digest, np.full(2, int(digest[2])))
        journal.unlock()


@pytest.fixture(autouse=True)
def uncached_name():
    hardware_name.cache_clear()
    yield
    hardware_name.cache_clear()


def keep(path: Path) -> str:
    """Put a file into the cache as DVC does, and return its md5."""
    content = path.read_bytes()
    md5 = hashlib.md5(content).hexdigest()
    cached = Path("cache", md5[:2], md5[2:])
    cached.parent.mkdir(parents=True, exist_ok=True)
    cached.write_bytes(content)
    return md5


@pytest.fixture(autouse=True)
def cached_store(tmp_path, monkeypatch):
    """A store of three images in DVC's cache, named by a lock file, and deleted from the workspace."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(finished_rows, "cache_folder", lambda: Path("cache"))
    extractor = red_extractor()
    images = sorted((draw(tmp_path, number) for number in range(3)), key=lambda image: image.id)
    write_images(IMAGES, images)
    rows = np.array([[number, 2 * number] for number in range(3)], dtype=np.float32)
    lineage = merge(read_images(IMAGES)[1])
    shards = [(0, [image.id for image in images], rows)]
    hardware = {"EPYC": [images[0].id], "Xeon": [image.id for image in images[1:]]}
    write_rows(STORE, "activations", extractor.layers, "float32", shards, extractor.kind, lineage, hardware)
    listing = [{"md5": keep(path), "relpath": path.name} for path in sorted(STORE.iterdir())]
    Path("listing").write_text(json.dumps(listing))
    outs = [{"path": str(STORE), "md5": keep(Path("listing"))}]
    deps = [{"path": str(IMAGES), "md5": keep(IMAGES)}, {"path": "fne/core", "md5": f"{'0' * 32}.dir"}]
    YAML().dump({"stages": {"extract": {"outs": outs, "deps": deps}}}, Path("dvc.lock"))
    for path in STORE.iterdir():
        path.unlink()


def reused(numbers=range(3), extractor=None) -> dict[str, list[float]]:
    extractor = extractor or red_extractor()
    images = [draw(Path(), number) for number in numbers]
    scratch = Scratch(Path("scratch"), extractor.kind, extractor.features)
    reuse_cached_rows(scratch, images, STORE, IMAGES, extractor)
    rows = scratch.rows([image.sha256 for image in images])
    return {image.id: rows[image.sha256].tolist() for image in images if image.sha256 in rows}


def shard_object() -> Path:
    (entry,) = [
        each for each in json.loads(Path("listing").read_text()) if each["relpath"].startswith("shard")
    ]
    return Path("cache", entry["md5"][:2], entry["md5"][2:])


@pytest.fixture
def scratch(tmp_path) -> Scratch:
    return Scratch(tmp_path, {"device": "cpu"}, features=2)


def test_finished_rows_are_found_by_the_digest_of_their_image(scratch):
    fill(scratch, DIGESTS[:2])
    found = {digest: row.tolist() for digest, row in scratch.rows(DIGESTS).items()}
    assert found == {DIGESTS[0]: [0, 0], DIGESTS[1]: [1, 1]}


def test_every_kind_has_its_own_folder_with_a_description(tmp_path):
    ten, five = (Scratch(tmp_path, {"crops": crops}, features=2) for crops in ("ten", "five"))
    longer = Scratch(tmp_path, {"crops": "ten"}, features=3)
    again = Scratch(tmp_path, {"crops": "ten"}, features=2)
    assert len({ten.folder, five.folder, longer.folder}) == 3
    assert again.folder == ten.folder
    assert json.loads((ten.folder / KIND).read_text()) == {"crops": "ten", "features": 2}


def test_only_missing_rows_are_claimed(scratch):
    fill(scratch, DIGESTS[:1])
    claims = list(scratch.claims(DIGESTS))
    assert [(wanted, missing) for _, wanted, missing in claims] == [
        (DIGESTS[:2], DIGESTS[1:2]),
        (DIGESTS[2:], DIGESTS[2:]),
    ]
    for journal, _, _ in claims:
        journal.unlock()


def test_journals_that_another_process_has_locked_are_skipped(tmp_path):
    first, second = Scratch(tmp_path, {}, features=2), Scratch(tmp_path, {}, features=2)
    ((journal, _, _),) = second.claims(DIGESTS[:1])
    assert [wanted for _, wanted, _ in first.claims(DIGESTS)] == [DIGESTS[2:]]
    journal.unlock()


def test_the_hardware_that_computed_each_row_is_recorded_and_without_a_note_unknown(scratch):
    ((journal, _, missing),) = scratch.claims(DIGESTS[:2])
    for digest, name in zip(missing, ("EPYC", None), strict=True):
        journal.append(digest, np.zeros(2), name)
    journal.unlock()
    bare = Journal(scratch.folder / "bb.rows", 2)
    assert bare.lock()
    bare.append(DIGESTS[2], np.zeros(2))
    bare.unlock()
    assert list(scratch.rows(DIGESTS)) == DIGESTS
    assert scratch.hardware(DIGESTS) == {DIGESTS[0]: "EPYC", DIGESTS[1]: hardware_name("cpu")}


def test_a_row_is_never_written_without_its_hardware(scratch):
    """A process killed between the two leaves a line without a row, and never the reverse."""
    ((journal, _, _),) = scratch.claims(DIGESTS[:1])
    with pytest.raises(ValueError, match="hex"):
        journal.append("no digest", np.zeros(2), "EPYC")
    journal.unlock()
    assert (scratch.folder / "aa.made").read_text().startswith("\nno digest EPYC\t")
    assert scratch.rows(DIGESTS) == {}


def test_the_name_of_a_cpu_is_its_model_and_its_instruction_set(tmp_path, monkeypatch):
    monkeypatch.setattr(finished_rows, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: x\n")
    assert hardware_name("cpu") == f"Some CPU @ 2 GHz, {torch.backends.cpu.get_cpu_capability()}"
    (tmp_path / "cpuinfo").unlink()
    hardware_name.cache_clear()
    monkeypatch.setattr(finished_rows.platform, "processor", lambda: "")
    monkeypatch.setattr(finished_rows.platform, "machine", lambda: "aarch64")
    assert hardware_name("cpu").startswith("aarch64, ")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")
    assert hardware_name("cuda") == "Some GPU"


def test_the_last_recorded_hardware_of_a_row_counts_and_an_incomplete_line_affects_no_other(tmp_path):
    path = tmp_path / "aa.made"
    assert read_hardware(path) == {}
    for digest, name in (("01", "a b"), ("02", "a b"), ("01", "c")):
        append_hardware(path, digest, name)
    with path.open("ab") as file:
        file.write(b"\n04 half a nam")
    append_hardware(path, "03", "b")
    assert read_hardware(path) == {"01": "c", "02": "a b", "03": "b"}


@pytest.mark.parametrize("hardware", [{"1": "a", "2": "a"}, {"1": "a", "2": "b"}, {"2": "b"}, {}])
def test_the_summary_of_the_hardware_can_be_inverted(hardware):
    ids = {"x": "1", "y": "2", "z": "2"}
    expected = {row_id: hardware.get(digest, "unknown") for row_id, digest in ids.items()}
    assert hardware_by_row(summarize_hardware(ids, hardware), ids) == expected


def test_rows_of_the_same_kind_are_reused_by_the_content_of_their_images():
    other = red_extractor()
    other.kind["crops"] = "ten"
    assert reused(extractor=other) == {}
    assert reused(numbers=[5, 2, 0]) == {"2.png": [2, 4], "0.png": [0, 0]}


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"x")])
def test_a_damaged_or_missing_object_is_ignored(damage):
    damage(shard_object())
    assert reused() == {}


@pytest.mark.parametrize("content", ["", "stages: {extract: {outs: [], deps: []}}", "[", None])
def test_a_lock_file_that_names_no_store_or_is_missing_is_ignored(content):
    Path("dvc.lock").write_text(content) if content is not None else Path("dvc.lock").unlink()
    assert reused() == {}


def test_the_hardware_that_computed_the_rows_is_reused_too():
    reused()
    extractor = red_extractor()
    scratch = Scratch(Path("scratch"), extractor.kind, extractor.features)
    digests = {draw(Path(), number).sha256: f"{number}.png" for number in range(3)}
    found = {digests[digest]: name for digest, name in scratch.hardware(digests).items()}
    assert found == {"0.png": "EPYC", "1.png": "Xeon", "2.png": "Xeon"}


SECTION = {"backbone": "vgg16", "crops": "ten", "shards": 4}


def test_a_store_that_the_cache_lacks_may_be_fetched_from_a_remote_as_the_lock_file_records(monkeypatch):
    lock = YAML(typ="safe").load(Path("dvc.lock"))
    lock["stages"]["extract"]["params"] = {"params.yaml": {"extract": SECTION}}
    YAML().dump(lock, Path("dvc.lock"))
    monkeypatch.setattr(finished_rows, "default_remote", lambda: "team")
    assert fetchable_from(STORE, SECTION) is None  # the cache has it
    shutil.rmtree("cache")
    assert fetchable_from(STORE, SECTION) == "team"
    assert fetchable_from(STORE, SECTION | {"shards": 9}) == "team"
    assert fetchable_from(STORE, SECTION | {"crops": "five"}) is None
    with monkeypatch.context() as patch:
        patch.setattr(finished_rows, "default_remote", lambda: None)
        assert fetchable_from(STORE, SECTION) is None
    Path("dvc.lock").unlink()
    assert fetchable_from(STORE, SECTION) is None


def test_a_note_about_hardware_with_a_changed_bit_is_left_out(tmp_path):
    path = tmp_path / "aa.made"
    append_hardware(path, "01" * 32, "EPYC 7763, AVX2")
    content = path.read_bytes()
    assert read_hardware(path) == {"01" * 32: "EPYC 7763, AVX2"}
    for place in range(1, len(content) - 1):
        for bit in range(7):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
            assert read_hardware(path) in ({}, {"01" * 32: "EPYC 7763, AVX2"})


def test_rows_of_unknown_hardware_are_mentioned():
    assert hardware_warning("EPYC") is None
    assert "computed all rows" in str(hardware_warning("unknown"))
    assert "computed 2 rows" in str(hardware_warning({"EPYC": ["a"], "unknown": ["b", "c"]}))


@pytest.mark.parametrize("name", ["../planted", "{}/planted", "planted", "shard-0000.h5/planted"])
def test_a_listing_with_names_that_no_store_has_leaves_no_link(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    md5 = shard_object().parent.name + shard_object().name
    Path("listing").write_text(json.dumps([{"md5": md5, "relpath": name.format(tmp_path)}]))
    digest, content = keep(Path("listing")), YAML(typ="safe").load(Path("dvc.lock"))
    content["stages"]["extract"]["outs"][0]["md5"] = f"{digest}.dir"
    Path("cache", digest[:2], digest[2:]).rename(f"cache/{digest[:2]}/{digest[2:]}.dir")
    YAML().dump(content, Path("dvc.lock"))
    before = set(tmp_path.rglob("*"))
    assert reused() == {}
    assert {path for path in set(tmp_path.rglob("*")) - before if path.is_symlink()} == set()
