import numpy as np
import pytest

import fne
from fne import InputError
from fne.store.layout import Layer
from fne.store.rows import Rows, write_rows


@pytest.fixture
def plain(tmp_path):
    """Two shards of float32 rows, outside of any project."""
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    shards = [(0, ["a", "b"], rows[:2]), (1, ["c", "d"], rows[2:])]
    layers = [Layer("conv", 1), Layer("fc", 2)]
    write_rows(tmp_path / "store", "activations", layers, "float32", shards, {"crops": "ten"}, {})
    return tmp_path / "store"


def test_a_store_describes_itself(plain):
    store = fne.open_store(plain)
    assert (store.name, store.shape, len(store), store.ids) == (
        "activations",
        (4, 3),
        4,
        ["a", "b", "c", "d"],
    )
    assert (store.layers, store.settings, store.dtype) == ({"conv": 1, "fc": 2}, {"crops": "ten"}, np.float32)
    assert "a" in store
    assert "e" not in store
    assert repr(store) == "<Store of activations: 4 rows of 3 float32 values in 2 layers>"


def test_rows_are_read_by_id_and_layer(plain):
    store = fne.open_store(str(plain))
    assert store["c"].tolist() == [6, 7, 8]
    assert store[["c", "a"]].tolist() == [[6, 7, 8], [0, 1, 2]]
    assert store.read(layer="fc").tolist() == [[1, 2], [4, 5], [7, 8], [10, 11]]
    assert store.read(["b"], layer=["fc", "conv"]).tolist() == [[4, 5, 3]]
    assert store.read(["b"], dtype=np.float64).dtype == np.float64
    assert [(ids, rows.tolist()) for ids, rows in store.blocks(3, layer="conv")] == [
        (["a", "b", "c"], [[0], [3], [6]]),
        (["d"], [[9]]),
    ]


def test_ternary_rows_are_unpacked(finished):
    store = fne.open_store(finished / "features/embeddings")
    assert store.dtype == np.int8
    assert set(np.unique(store.read())) == {-1, 0, 1}


def test_a_split_is_read_from_any_folder(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = fne.open_store("vectors/images", root=finished)
    captions = fne.open_store(finished / "vectors/captions")
    catalog = fne.load_catalog(finished)
    assert images.split_ids("test") == catalog.ids("test")
    np.testing.assert_array_equal(images.read(split="test"), images.read(catalog.ids("test")))
    assert captions.read(split="val").shape == (8, images.read(split="test").shape[1])
    assert captions.split_ids("val")[:2] == ["blue-square.png#0", "blue-square.png#1"]
    assert [len(ids) for ids, _ in captions.blocks(10, split="train")] == [10, 6]


def test_one_shard_of_plain_numbers_is_mapped_as_it_is(finished):
    store = fne.open_store("vectors/images", root=finished)
    rows = store.array()
    assert isinstance(rows, np.memmap)
    assert not rows.flags.writeable
    np.testing.assert_array_equal(rows, store.read())


@pytest.mark.parametrize("name", ["features/activations", "features/embeddings"])
def test_other_stores_become_a_mapped_file(finished, tmp_path, name):
    store = fne.open_store(name, root=finished)
    rows = store.array(tmp_path / "rows.npy")
    assert isinstance(rows, np.memmap)
    assert (rows.dtype, rows.flags.writeable) == (store.dtype, False)
    np.testing.assert_array_equal(rows, store.read())
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), rows)


def test_an_empty_store_is_an_empty_array(tmp_path):
    write_rows(tmp_path / "store", "activations", [Layer("conv", 3)], "float32", [], {}, {})
    store = fne.open_store(tmp_path / "store")
    assert (store.array().shape, store.read().shape, len(store)) == ((0, 3), (0, 3), 0)


def test_a_damaged_shard_is_refused(plain):
    shard = plain / "shard-0001.h5"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(InputError, match="shard-0001.h5: damaged: expected"):
        fne.open_store(plain)["c"]


def test_opening_reads_no_shard(plain):
    (plain / "shard-0000.h5").unlink()
    assert fne.open_store(plain).shape == (4, 3)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda store: store["e"], "has no row for 1 of 1 ids, the first is 'e'; run `dvc repro`"),
        (lambda store: store.read("a"), "ids: expected a list of ids, got 'a'"),
        (lambda store: store.read(["a"], split="train"), "give either ids or split"),
        (
            lambda store: store.read(split="dev"),
            "split: 'dev' is not one of 'train', 'val', 'test', 'gallery'",
        ),
        (
            lambda store: store.read(split="train"),
            "no project above this folder says which images are in a split; pass its folder as root",
        ),
        (lambda store: store.read(layer="fc7"), "has no layer 'fc7'; it has conv, fc"),
        (
            lambda store: store.array(),
            "has 2 shards, which cannot be mapped as one array; use array('rows.npy') to write them to a file, "
            "or read()",
        ),
        (
            lambda store: store.array(store.path / "manifest.json"),
            "manifest.json: exists; map it with numpy.load(…, mmap_mode='r'), or remove it",
        ),
    ],
)
def test_a_wrong_use_is_refused(plain, use, message):
    with pytest.raises(InputError) as error:
        use(fne.open_store(plain))
    assert error.value.message.endswith(message)


def test_ternary_rows_need_a_file(finished):
    store = fne.open_store("features/embeddings", root=finished)
    with pytest.raises(InputError, match="has ternary rows, which cannot be mapped as one array"):
        store.array()


def test_a_folder_without_a_project_is_no_root(tmp_path):
    with pytest.raises(InputError) as error:
        fne.open_store("features/embeddings", root=tmp_path)
    assert error.value.message == (
        f"{tmp_path}: not the folder of a project (params.yaml is missing); pass its folder as root"
    )


def test_a_missing_store_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nothing: no row store \(manifest.json is missing\)"):
        fne.open_store(tmp_path / "nothing")


def test_rows_of_a_split_are_those_of_the_library(finished):
    rows = Rows.open(finished / "features/activations").read(["red-circle.png"])
    np.testing.assert_array_equal(
        fne.open_store(finished / "features/activations")["red-circle.png"], rows[0]
    )
