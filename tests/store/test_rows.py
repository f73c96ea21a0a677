import json
import os
import random

import h5py
import numpy as np
import pytest

from fne.core import stat_cache
from fne.core.errors import InputError
from fne.core.files import file_digest
from fne.store import rows as module
from fne.store.catalog import Captioned, split_ids
from fne.store.checksums import seal_text
from fne.store.layout import Layer, plan_shards, shard_of
from fne.store.rows import Rows, write_rows

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


def fault(call, *arguments) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments)
    return caught.value.message


def change_manifest(path, **changes):
    """Change entries of a manifest and seal it again."""
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["sha256"]
    (path / "manifest.json").write_text(seal_text(json.dumps(manifest | changes)))


def reseal_shard(path, shard):
    change_manifest(path, shards=[{"file": shard.name, "sha256": file_digest(shard), "ids": IDS[:1]}])


def test_rows_are_read_by_id_in_the_requested_order(tmp_path):
    rows = Rows.open(write(tmp_path / "s"))
    wanted = [IDS[7], IDS[0], IDS[7]]
    assert np.array_equal(rows.read(wanted), np.stack([row(each) for each in wanted]))
    assert (sorted(rows.ids), rows.features) == (sorted(IDS), 5)


def test_blocks_cover_all_rows_once(tmp_path):
    rows = Rows.open(write(tmp_path / "s"))
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


def test_ids_are_located_in_mapped_shards(tmp_path):
    rows = Rows.open(write(tmp_path / "s"))
    numbers, places = rows.locate(IDS)
    found = [rows.mapped_block(number)[place] for number, place in zip(numbers, places, strict=True)]
    assert np.array_equal(found, rows.read(IDS))
    assert [rows.shards[number].ids[place] for number, place in zip(numbers, places, strict=True)] == IDS


def test_a_store_cannot_be_written_through_its_reader(tmp_path):
    rows = Rows.open(write(tmp_path / "s"))
    rows.read(IDS)
    with pytest.raises(ValueError, match="read-only"):
        rows.mapped_block(0)[0, 0] = 1


def test_a_flipped_bit_is_detected_before_use(tmp_path):
    path = write(tmp_path / "s")
    shard = path / f"shard-{shard_of(IDS[0], 3):04d}.h5"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    message = fault(Rows.open(path).read, [IDS[0]])
    assert message.startswith(f"{shard}: damaged: expected ")
    assert message.endswith(f"…; run `fne verify {path}` to see how to repair it")


def test_a_missing_shard_is_named(tmp_path):
    path = write(tmp_path / "s")
    shard = path / f"shard-{shard_of(IDS[0], 3):04d}.h5"
    shard.unlink()
    assert fault(Rows.open(path).read, [IDS[0]]).startswith(f"{shard}: no such file; ")


def test_a_missing_store_says_how_to_get_it(tmp_path):
    assert fault(Rows.open, tmp_path / "s") == (
        f"{tmp_path}/s: no row store (manifest.json is missing); run `dvc repro`, or `dvc pull` to fetch it"
    )


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b"\xff", b'{"format": "fne-rows"}'])
def test_a_damaged_manifest_is_refused(tmp_path, content):
    path = write(tmp_path / "s")
    (path / "manifest.json").write_bytes(content)
    assert fault(Rows.open, path).startswith(f"{path}/manifest.json: damaged (")


def test_another_artifact_is_refused(tmp_path):
    path = write(tmp_path / "s")
    assert fault(Rows.open, path, "embeddings") == f"{path}: expected embeddings, found activations"


def test_an_unknown_id_is_named(tmp_path):
    rows = Rows.open(write(tmp_path / "s"))
    assert fault(rows.read, [IDS[0], "x.jpg"]) == (
        f"{tmp_path}/s: has no row for 1 of 2 ids, the first is 'x.jpg'; run `dvc repro`"
    )


def test_an_unknown_layer_lists_the_known_ones(tmp_path):
    rows = Rows.open(write(tmp_path / "s"))
    assert rows.columns("fc") == slice(2, 5)
    assert fault(rows.columns, "fc7") == f"{tmp_path}/s: has no layer 'fc7'; it has conv, fc"


def test_a_shard_of_wrong_shape_is_never_written(tmp_path):
    with pytest.raises(ValueError, match=r"expected 1 rows of 5 values, got an array of \(1, 4\)"):
        write_rows(tmp_path / "s", "a", LAYERS, "float32", [(0, ["a"], np.zeros((1, 4)))], {}, {})
    assert not (tmp_path / "s").exists()


def test_rows_stored_outside_the_store_are_refused(tmp_path):
    path = write(tmp_path / "s", ids=IDS[:1], shards=1)
    shard = path / "shard-0000.h5"
    with h5py.File(shard, "a") as file:
        file.move("rows", "inside")
        file["rows"] = h5py.ExternalLink("/etc/passwd", "/")
    reseal_shard(path, shard)
    assert fault(Rows.open(path).read, IDS[:1]) == (
        f"{shard}: 'rows' is a link out of the file; such files are refused"
    )


def test_rows_that_do_not_fit_the_manifest_are_refused(tmp_path):
    path = write(tmp_path / "s", ids=IDS[:1], shards=1)
    shard = path / "shard-0000.h5"
    with h5py.File(shard, "w") as file:
        file["rows"] = np.zeros((2, 5), dtype=np.float32)
    reseal_shard(path, shard)
    assert fault(Rows.open(path).read, IDS[:1]) == (
        f"{shard}: holds (2, 5) values of float32, its manifest says (1, 5) of float32; "
        f"run `fne verify {path}` to see how to repair it"
    )


def test_a_manifest_cannot_refer_to_a_file_outside_the_store(tmp_path):
    path = write(tmp_path / "s", ids=IDS[:1], shards=1)
    change_manifest(path, shards=[{"file": "../secret.h5", "sha256": "0" * 64, "ids": ["a"]}])
    assert fault(Rows.open, path).startswith(
        f"{path}/manifest.json: damaged (shards.0.file: String should match"
    )


def test_a_flipped_bit_anywhere_in_the_manifest_is_detected_when_opening(tmp_path):
    path = write(tmp_path / "s")
    content, chance = (path / "manifest.json").read_bytes(), random.Random(0)
    # Half of them at the beginning, which holds the seal and the version.
    for size in [140, len(content)] * 10:
        flipped = bytearray(content)
        flipped[chance.randrange(size)] ^= 1 << chance.randrange(8)
        (path / "manifest.json").write_bytes(flipped)
        assert fault(Rows.open, path).startswith(f"{path}/manifest.json: ")


def test_opening_reads_the_manifest_only(tmp_path):
    path = write(tmp_path / "s")
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


def flip_a_bit(shard) -> None:
    """Change a shard in place and put its time back, as a careless program would."""
    status = shard.stat()
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    with shard.open("r+b") as file:
        file.write(content)
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_shard_is_hashed_once_for_all_processes_unless_it_is_touched(tmp_path, scratch, monkeypatch):
    path = write(tmp_path / "s")
    assert len(hashed(path, monkeypatch)) == 3
    stat_cache.use(scratch)
    assert hashed(path, monkeypatch) == []
    os.utime(path / "shard-0001.h5", ns=(1, 10**9 + 1))
    assert hashed(path, monkeypatch) == ["shard-0001.h5"]


def test_a_shard_changed_in_place_is_detected_although_its_time_was_put_back(tmp_path, scratch, monkeypatch):
    path = write(tmp_path / "s")
    hashed(path, monkeypatch)
    flip_a_bit(path / "shard-0001.h5")
    assert fault(Rows.open(path).read, IDS).startswith(f"{path}/shard-0001.h5: damaged: expected ")


@pytest.mark.parametrize("hardware", [None, "EPYC", {"EPYC": ["a"], "Xeon": ["b"]}])
def test_a_store_records_which_hardware_computed_which_rows(tmp_path, hardware):
    rows = np.zeros((2, 3), dtype=np.float32)
    layers = [Layer("conv", 3)]
    write_rows(tmp_path / "s", "x", layers, "float32", [(0, ["a", "b"], rows)], {}, {}, hardware)
    assert Rows.open(tmp_path / "s").hardware == hardware


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_a_device_as_shard_is_refused_at_once(tmp_path, make):
    path = write(tmp_path / "s", ids=IDS[:1], shards=1)
    (path / "shard-0000.h5").unlink()
    make(path / "shard-0000.h5")
    assert "not a regular file, but a " in fault(Rows.open(path).read, IDS[:1])
