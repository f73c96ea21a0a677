import json
import os

import h5py
import numpy as np
import pytest

from fne.core.errors import InputError
from fne.store.layout import Layer, plan_shards, shard_of
from fne.store.rows import Rows
from fne.store.writer import write_rows

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


def test_rows_come_back_by_id_in_the_order_asked_for(tmp_path):
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


def test_ternary_rows_come_back_as_int8(tmp_path):
    ternary = np.array([1, 0, -1, -1, 1], dtype=np.int8)
    rows = Rows.open(write(tmp_path / "s", dtype="ternary", rows=lambda _: ternary))
    assert rows.read(IDS[:2]).tolist() == [ternary.tolist()] * 2
    assert rows.read(IDS[:2]).dtype == np.int8


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


def test_a_store_cannot_be_written_through_its_reader(tmp_path):
    rows = Rows.open(write(tmp_path / "s"))
    rows.read(IDS)
    with pytest.raises(ValueError, match="read-only"):
        rows._block(0)[0, 0] = 1


def test_a_flipped_bit_is_noticed_before_use(tmp_path):
    path = write(tmp_path / "s")
    shard = path / f"shard-{shard_of(IDS[0], 3):04d}.h5"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    message = fault(Rows.open(path).read, [IDS[0]])
    assert message.startswith(f"{shard}: damaged: expected ")
    assert message.endswith(f"…; remove {path} and run `dvc repro`")


def test_a_missing_shard_is_named(tmp_path):
    path = write(tmp_path / "s")
    shard = path / f"shard-{shard_of(IDS[0], 3):04d}.h5"
    shard.unlink()
    assert fault(Rows.open(path).read, [IDS[0]]).startswith(f"{shard}: no such file; ")


def test_a_missing_store_says_how_to_get_it(tmp_path):
    assert fault(Rows.open, tmp_path / "s") == (
        f"{tmp_path}/s: no store here (manifest.json is missing); run `dvc repro`, or `dvc pull` to fetch it"
    )


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b"\xff", b'{"format": "fne-rows"}'])
def test_a_damaged_manifest_is_refused(tmp_path, content):
    path = write(tmp_path / "s")
    (path / "manifest.json").write_bytes(content)
    assert fault(Rows.open, path).startswith(f"{path}/manifest.json: damaged (")


def test_a_newer_format_is_refused_naming_both_versions(tmp_path):
    path = write(tmp_path / "s")
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"version": 2}))
    assert fault(Rows.open, path) == f"{path}: has format fne-rows 2; this version reads fne-rows 1"


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


def test_rows_kept_outside_the_store_are_refused(tmp_path):
    path = write(tmp_path / "s", ids=IDS[:1], shards=1)
    shard = path / "shard-0000.h5"
    with h5py.File(shard, "a") as file:
        file.move("rows", "inside")
        file["rows"] = h5py.ExternalLink("/etc/passwd", "/")
    manifest = json.loads((path / "manifest.json").read_text())
    from fne.store.files import file_digest

    manifest["shards"][0]["sha256"] = file_digest(shard)
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert (
        fault(Rows.open(path).read, IDS[:1])
        == f"{shard}: 'rows' is a link out of the file; such files are refused"
    )
