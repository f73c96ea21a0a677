import json
import os
import random

import h5py
import numpy as np
import pytest

from fne.core import stat_cache
from fne.core.files import file_digest
from fne.store import rows as module
from fne.store.catalog import Captioned, split_ids
from fne.store.checksums import seal_text
from fne.store.layout import Layer, plan_shards, shard_of
from fne.store.rows import Rows, write_rows
from tests.support.refusals import refused

LAYERS = [Layer("conv", 2), Layer("fc", 3)]
IDS = [f"image-{number}.jpg" for number in range(20)]


def row(row_id: str) -> np.ndarray:
    return np.arange(5, dtype=np.float32) + IDS.index(row_id)


def write(path, ids=IDS, dtype="float32", rows=row, shards=3):
    planned = plan_shards(ids, shards)
    blocks = (
        (number, chosen, np.stack([rows(each) for each in chosen])) for number, chosen in planned.items()
    )
    write_rows(path, "activations", LAYERS, dtype, blocks, {"crops": "ten"}, {})
    return path


@pytest.fixture
def path(tmp_path):
    """A store of twenty rows in three shards."""
    return write(tmp_path / "s")


@pytest.fixture
def single(tmp_path):
    """A store of one row, and its shard."""
    return write(tmp_path / "s", ids=IDS[:1], shards=1), tmp_path / "s/shard-0000.h5"


def change_manifest(path, **changes):
    """Change entries of a manifest and seal it again."""
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["sha256"]
    (path / "manifest.json").write_text(seal_text(json.dumps(manifest | changes)))


def reseal_shard(path, shard):
    change_manifest(path, shards=[{"file": shard.name, "sha256": file_digest(shard), "ids": IDS[:1]}])


def test_rows_are_read_by_id_in_the_requested_order_and_blocks_cover_all_once(path):
    rows = Rows.open(path)
    wanted = [IDS[7], IDS[0], IDS[7]]
    assert np.array_equal(rows.read(wanted), np.stack([row(each) for each in wanted]))
    assert (sorted(rows.ids), rows.features) == (sorted(IDS), 5)
    blocks = list(rows.blocks(size=6))
    assert [len(ids) for ids, _ in blocks] == [6, 6, 6, 2]
    assert sorted(each for ids, _ in blocks for each in ids) == sorted(IDS)
    assert all(np.array_equal(block, np.stack([row(each) for each in ids])) for ids, block in blocks)


def test_ternary_rows_are_read_as_int8_and_all_in_the_requested_type(tmp_path):
    ternary = np.array([1, 0, -1, -1, 1], dtype=np.int8)
    rows = Rows.open(write(tmp_path / "s", dtype="ternary", rows=lambda _: ternary))
    for dtype, given in ((np.int8, ()), (np.float32, (np.float32,))):
        found = rows.read(IDS[:2], *given)
        assert (found.dtype, found.tolist()) == (dtype, [ternary.tolist()] * 2)
    plain = Rows.open(write(tmp_path / "plain"))
    for dtype in (np.float16, np.float64):
        found = plain.read(IDS[:2], dtype)
        assert (found.dtype, found.tolist()) == (dtype, np.stack([row(each) for each in IDS[:2]]).tolist())


def test_equal_rows_give_equal_bytes_whatever_their_order(tmp_path):
    first, second = write(tmp_path / "1"), write(tmp_path / "2", ids=IDS[::-1])
    assert sorted(os.listdir(first)) == sorted(os.listdir(second))
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in os.listdir(first))


def test_a_new_row_changes_one_shard(tmp_path):
    before, after = write(tmp_path / "1", ids=IDS[:19]), write(tmp_path / "2")
    changed = {
        name for name in os.listdir(after) if (before / name).read_bytes() != (after / name).read_bytes()
    }
    assert changed == {"manifest.json", f"shard-{shard_of(IDS[19], 3):04d}.h5"}


def test_an_empty_store_works(tmp_path):
    rows = Rows.open(write(tmp_path / "s", ids=[]))
    assert (rows.ids, list(rows.blocks()), rows.read([]).shape) == ([], [], (0, 5))


def test_ids_are_located_in_mapped_shards_which_cannot_be_written(path):
    rows = Rows.open(path)
    numbers, places = rows.locate(IDS)
    found = [rows.mapped_block(number)[place] for number, place in zip(numbers, places, strict=True)]
    assert np.array_equal(found, rows.read(IDS))
    assert [rows.shards[number].ids[place] for number, place in zip(numbers, places, strict=True)] == IDS
    with pytest.raises(ValueError, match="read-only"):
        rows.mapped_block(0)[0, 0] = 1


def test_a_flipped_bit_is_detected_before_use_and_a_missing_shard_is_named(path):
    shard = path / f"shard-{shard_of(IDS[0], 3):04d}.h5"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with refused(f"{shard}: damaged: expected ", f"…; run `fne verify {path}` to see how to repair it"):
        Rows.open(path).read([IDS[0]])
    shard.unlink()
    with refused(f"{shard}: no such file; "):
        Rows.open(path).read([IDS[0]])


def test_a_missing_store_and_another_artifact_are_refused(tmp_path, path):
    with refused(f"{tmp_path}/none: no row store (manifest.json is missing); run `dvc repro`, or `dvc pull`"):
        Rows.open(tmp_path / "none")
    with refused(f"{path}: expected embeddings, found activations"):
        Rows.open(path, "embeddings")


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b"\xff", b'{"format": "fne-rows"}'])
def test_a_damaged_manifest_is_refused(path, content):
    (path / "manifest.json").write_bytes(content)
    with refused(f"{path}/manifest.json: damaged ("):
        Rows.open(path)


def test_an_unknown_id_or_layer_is_named(path):
    rows = Rows.open(path)
    with refused(f"{path}: has no row for 1 of 2 ids, the first is 'x.jpg'; run `dvc repro`"):
        rows.read([IDS[0], "x.jpg"])
    assert rows.columns("fc") == slice(2, 5)
    with refused(f"{path}: has no layer 'fc7'; it has conv, fc"):
        rows.columns("fc7")


def test_a_shard_of_wrong_shape_is_never_written(tmp_path):
    with pytest.raises(ValueError, match=r"expected 1 rows of 5 values, got an array of \(1, 4\)"):
        write_rows(tmp_path / "s", "a", LAYERS, "float32", [(0, ["a"], np.zeros((1, 4)))], {}, {})
    assert not (tmp_path / "s").exists()


def test_rows_stored_outside_the_store_are_refused(single):
    path, shard = single
    with h5py.File(shard, "a") as file:
        file.move("rows", "inside")
        file["rows"] = h5py.ExternalLink("/etc/passwd", "/")
    reseal_shard(path, shard)
    with refused(f"{shard}: 'rows' is a link out of the file; such files are refused"):
        Rows.open(path).read(IDS[:1])


def test_rows_that_do_not_fit_the_manifest_are_refused(single):
    path, shard = single
    with h5py.File(shard, "w") as file:
        file["rows"] = np.zeros((2, 5), dtype=np.float32)
    reseal_shard(path, shard)
    said = f"{shard}: holds (2, 5) values of float32, its manifest says (1, 5) of float32; "
    with refused(said, f"run `fne verify {path}`"):
        Rows.open(path).read(IDS[:1])


def test_a_manifest_cannot_refer_to_a_file_outside_the_store(path):
    change_manifest(path, shards=[{"file": "../secret.h5", "sha256": "0" * 64, "ids": ["a"]}])
    with refused(f"{path}/manifest.json: damaged (shards.0.file: String should match"):
        Rows.open(path)


def test_a_flipped_bit_anywhere_in_the_manifest_is_detected_when_opening(path):
    content, chance = (path / "manifest.json").read_bytes(), random.Random(0)
    # Half of them at the beginning, which holds the seal and the version.
    for size in [140, len(content)] * 10:
        flipped = bytearray(content)
        flipped[chance.randrange(size)] ^= 1 << chance.randrange(8)
        (path / "manifest.json").write_bytes(flipped)
        with refused(f"{path}/manifest.json: "):
            Rows.open(path)


def test_opening_reads_the_manifest_only(path):
    for shard in path.glob("*.h5"):
        shard.unlink()
    rows = Rows.open(path)
    assert (len(rows.ids), rows.features) == (20, 5)


def test_the_rows_of_a_split_are_read_by_the_catalogs_ids(tmp_path):
    rows = Rows.open(write(tmp_path / "s"))
    captioned = [Captioned(each, "val" if each in IDS[3:5] else "train", ("x",), ()) for each in IDS]
    ((ids, block),) = rows.blocks(split_ids(captioned, "val"))
    assert ids == IDS[3:5]
    assert np.array_equal(block, np.stack([row(each) for each in ids]))
    assert list(rows.blocks(split_ids(captioned, "test"))) == []


def test_random_batches_have_every_row_once_in_the_order_of_the_generator(tmp_path):
    rows = Rows.open(write(tmp_path / "s"))
    first, again = (list(rows.batches(6, np.random.default_rng(1))) for _ in range(2))
    other = list(rows.batches(6, np.random.default_rng(2)))
    assert [len(ids) for ids, _ in first] == [6, 6, 6, 2]
    assert sorted(each for ids, _ in first for each in ids) == sorted(IDS)
    assert all(np.array_equal(block, np.stack([row(each) for each in ids])) for ids, block in first)
    assert [ids for ids, _ in first] == [ids for ids, _ in again] != [ids for ids, _ in other]


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A scratch folder in use, on a disk whose clock has a fine resolution."""
    monkeypatch.setattr(stat_cache, "CLOCK_RESOLUTION", 0)
    stat_cache.use(tmp_path / "scratch")
    return tmp_path / "scratch"


def hashed(path, monkeypatch) -> list[str]:
    """Read a store as a new process would, and return the shards that had to be hashed."""
    files: list[str] = []
    check = module._check_shard

    def record(folder, shard):
        files.append(shard.file)
        check(folder, shard)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_check_shard", record)
        assert np.array_equal(Rows.open(path).read(IDS), np.stack([row(each) for each in IDS]))
    return files


def test_a_shard_is_hashed_once_for_all_processes_unless_it_is_touched(path, scratch, monkeypatch):
    assert len(hashed(path, monkeypatch)) == 3
    stat_cache.use(scratch)
    assert hashed(path, monkeypatch) == []
    os.utime(path / "shard-0001.h5", ns=(1, 10**9 + 1))
    assert hashed(path, monkeypatch) == ["shard-0001.h5"]


def test_a_shard_changed_in_place_is_detected_although_its_time_was_put_back(path, scratch, monkeypatch):
    hashed(path, monkeypatch)
    shard = path / "shard-0001.h5"
    status, content = shard.stat(), bytearray(shard.read_bytes())
    content[-1] ^= 1
    with shard.open("r+b") as file:  # as a careless program would
        file.write(content)
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))
    with refused(f"{shard}: damaged: expected "):
        Rows.open(path).read(IDS)


@pytest.mark.parametrize("hardware", [None, "EPYC", {"EPYC": ["a"], "Xeon": ["b"]}])
def test_a_store_records_which_hardware_computed_which_rows(tmp_path, hardware):
    rows = np.zeros((2, 3), dtype=np.float32)
    layers = [Layer("conv", 3)]
    write_rows(tmp_path / "s", "x", layers, "float32", [(0, ["a", "b"], rows)], {}, {}, hardware)
    assert Rows.open(tmp_path / "s").hardware == hardware


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_a_device_as_shard_is_refused_at_once(single, make):
    path, shard = single
    shard.unlink()
    make(shard)
    with refused("not a regular file, but a "):
        Rows.open(path).read(IDS[:1])
