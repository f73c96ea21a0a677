import json
import os
from pathlib import Path

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.features import join
from fne.features.embed import open_source
from fne.features.join import check_destination, join_stores
from fne.store.layout import Layer, plan_shards
from fne.store.rows import Rows, write_rows

IDS = [f"image-{number}.jpg" for number in range(9)]
FIRST = np.arange(27, dtype=np.float32).reshape(9, 3)
SECOND = -np.arange(18, dtype=np.float32).reshape(9, 2)
IMAGES = {"images": {"digest": "a" * 64, "settings": {}}}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder to work in, and shards so small that there are several."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(join, "SHARD", 60)
    return tmp_path


def write(path, values, layers, ids=IDS, dtype="float32", lineage=None, name="activations") -> Path:
    shards = [
        (number, own, values[[ids.index(each) for each in own]])
        for number, own in plan_shards(ids, 2).items()
    ]
    write_rows(Path(path), name, layers, dtype, shards, {"source": f"{path}.npz"}, lineage or {})
    return Path(path)


def both(**second) -> list[Path]:
    return [
        write("vgg", FIRST, [Layer("conv", 1), Layer("fc", 2)]),
        write("inception", SECOND, [Layer("pool", 2)], **second),
    ]


def fault(sources, store="joined", common=False) -> str:
    with pytest.raises(InputError) as caught:
        join_stores(sources, Path(store), common)
    assert not Path("joined").exists()
    assert [name for name in os.listdir() if name.startswith(".")] == []
    return caught.value.message


def test_joined_layers_have_the_order_of_the_stores():
    rows = join_stores(both(), Path("joined"))
    assert np.array_equal(rows.read(IDS), np.concatenate([FIRST, SECOND], axis=1))
    assert rows.layers == [Layer("conv", 1), Layer("fc", 2), Layer("pool", 2)]
    assert (rows.dtype, len(rows.shards) > 1) == ("float32", True)
    rows.verify()
    assert open_source(Path("joined"), IDS).ids == rows.ids


def test_three_stores_can_be_joined():
    third = write("third", SECOND, [Layer("head", 2)])
    rows = join_stores([*both(), third], Path("joined"))
    assert np.array_equal(rows.read(IDS), np.concatenate([FIRST, SECOND, SECOND], axis=1))


def test_every_source_is_recorded_with_digest_settings_and_lineage():
    sources = both(lineage={"weights": {"digest": "b" * 64, "settings": {"file": "x"}}})
    recorded = join_stores(sources, Path("joined")).artifact.settings["joined"]
    assert recorded == [
        {
            "store": path.name,
            "digest": Rows.open(path).artifact.digest,
            "layers": layers,
            "settings": {"source": f"{path}.npz"},
            "lineage": Rows.open(path).artifact.lineage,
        }
        for path, layers in zip(sources, [["conv", "fc"], ["pool"]], strict=True)
    ]


def test_equal_sources_give_equal_bytes():
    join_stores(both(), Path("joined"))
    join_stores(both(), Path("again"))
    for file in sorted(os.listdir("joined")):
        assert Path("joined", file).read_bytes() == Path("again", file).read_bytes()


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [("float16", "float16", "float16"), ("float16", "float32", "float32"), ("float32", "float16", "float32")],
)
def test_the_wider_type_is_kept(first, second, joined):
    write("a", FIRST, [Layer("conv", 3)], dtype=first)
    write("b", SECOND, [Layer("pool", 2)], dtype=second)
    rows = join_stores([Path("a"), Path("b")], Path("joined"))
    assert rows.dtype == joined
    assert np.array_equal(rows.read(IDS), np.concatenate([FIRST, SECOND], axis=1))


def test_names_that_collide_get_the_name_of_the_folder_and_others_stay():
    write("vgg", FIRST, [Layer("conv", 1), Layer("fc", 2)])
    write("alexnet", FIRST, [Layer("conv", 2), Layer("fc8", 1)])
    rows = join_stores([Path("vgg"), Path("alexnet")], Path("joined"))
    assert [layer.name for layer in rows.layers] == ["vgg.conv", "fc", "alexnet.conv", "fc8"]


def test_folders_of_one_name_are_distinguished_by_a_number():
    write("x/features", FIRST, [Layer("conv", 3)])
    write("y/features", SECOND, [Layer("conv", 2)])
    rows = join_stores([Path("x/features"), Path("y/features")], Path("joined"))
    assert [layer.name for layer in rows.layers] == ["features1.conv", "features2.conv"]


def test_a_store_that_lacks_ids_is_refused_with_the_count_and_the_first():
    write("a", FIRST, [Layer("conv", 3)])
    write("b", SECOND[2:], [Layer("pool", 2)], ids=IDS[2:])
    assert fault([Path("a"), Path("b")]) == (
        "b: lacks 2 of the 9 ids of all stores, the first is 'image-0.jpg'; join the 7 ids that all have with "
        "--common"
    )


def test_common_keeps_the_ids_that_all_stores_have():
    write("a", FIRST[:8], [Layer("conv", 3)], ids=IDS[:8])
    write("b", SECOND[2:], [Layer("pool", 2)], ids=IDS[2:])
    rows = join_stores([Path("a"), Path("b")], Path("joined"), common=True)
    assert sorted(rows.ids) == IDS[2:8]
    assert np.array_equal(rows.read(IDS[2:8]), np.concatenate([FIRST[2:8], SECOND[2:8]], axis=1))


@pytest.mark.parametrize("common", [False, True])
def test_stores_without_a_common_id_are_refused(common):
    write("a", FIRST[:4], [Layer("conv", 3)], ids=IDS[:4])
    write("b", SECOND[4:], [Layer("pool", 2)], ids=IDS[4:])
    assert fault([Path("a"), Path("b")], common=common) == "a, b: have no id in common"


def test_stores_of_the_same_image_files_keep_that_ancestor_and_no_weights():
    weights = [{"weights": {"digest": letter * 64, "settings": {}}} for letter in "bc"]
    write("a", FIRST, [Layer("conv", 3)], lineage={**IMAGES, **weights[0]})
    write("b", SECOND, [Layer("pool", 2)], lineage={**IMAGES, **weights[1]})
    assert join_stores([Path("a"), Path("b")], Path("joined")).artifact.lineage == IMAGES


def test_stores_of_different_image_files_are_refused():
    write("a", FIRST, [Layer("conv", 3)], lineage=IMAGES)
    write("b", SECOND, [Layer("pool", 2)], lineage={"images": {"digest": "c" * 64, "settings": {}}})
    assert fault([Path("a"), Path("b")]) == (
        "a was made from images aaaaaaaaaaaa…, but b was made from images cccccccccccc…; join stores of the "
        "same images"
    )


def test_a_single_store_is_refused():
    assert fault(both()[:1]) == "expected at least two stores to join, got 1"


def test_another_artifact_is_refused():
    write("a", FIRST, [Layer("conv", 3)])
    write("b", SECOND, [Layer("pool", 2)], name="embeddings")
    assert fault([Path("a"), Path("b")]) == "b: expected activations, found embeddings"


def test_a_source_is_never_replaced():
    sources = both()
    assert fault(sources, store="x/../vgg") == (
        "x/../vgg: is one of the stores to join; choose another folder with --to"
    )
    Rows.open(sources[0]).verify()


def test_a_value_that_is_not_finite_is_refused_with_row_and_layer():
    values = SECOND.copy()
    values[3, 1] = np.nan
    write("a", FIRST, [Layer("conv", 3)])
    write("b", values, [Layer("pool", 2)])
    assert fault([Path("a"), Path("b")]) == (
        "b: row 'image-3.jpg' has nan in layer 'pool', column 1; extract or import it again"
    )


def test_a_damaged_source_is_refused():
    sources = both()
    shard = next(sources[1].glob("shard-*.h5"))
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    assert fault(sources).startswith(f"{shard}: damaged")


def test_an_intact_store_may_be_replaced_and_nothing_else():
    check_destination(Path("missing"))
    check_destination(both()[0])
    Path("photos").mkdir()
    Path("page").mkdir()
    Path("page/manifest.json").write_text(json.dumps({"name": "a web page"}))
    Path("file").write_text("x")
    for name in ("photos", "page", "file"):
        with pytest.raises(InputError) as caught:
            check_destination(Path(name))
        assert caught.value.message == (
            f"{name}: exists and is not an intact row store of activations; choose another folder with --to, or "
            "remove it"
        )


def test_a_store_with_files_of_others_is_not_replaced():
    store = both()[0]
    (store / "notes.txt").write_text("mine")
    with pytest.raises(InputError) as caught:
        check_destination(store)
    assert caught.value.message == (
        "vgg: holds other files beside the store, the first is 'notes.txt'; choose another folder with "
        "--to, or remove it"
    )


def test_a_store_of_this_project_without_a_seal_is_not_replaced(tmp_path):
    store = tmp_path / "old"
    write_rows(store, "activations", [Layer("a", 1)], "float32", [(0, ["x"], np.ones((1, 1)))], {}, {})
    check_destination(store)
    manifest = json.loads((store / "manifest.json").read_text())
    del manifest["sha256"]
    (store / "manifest.json").write_text(json.dumps(manifest | {"version": 1}))
    with pytest.raises(InputError, match="exists and is not an intact row store"):
        check_destination(store)
