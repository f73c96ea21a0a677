import json
import os
from pathlib import Path

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.features import join
from fne.features.join import append_stores, check_destination, join_stores
from fne.features.write_embeddings import open_source
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


def write(
    path, values, layers, ids=IDS, dtype="float32", lineage=None, name="activations", settings=None
) -> Path:
    shards = [
        (number, own, values[[ids.index(each) for each in own]])
        for number, own in plan_shards(ids, 2).items()
    ]
    settings = settings or {"source": f"{path}.npz"}
    write_rows(Path(path), name, layers, dtype, shards, settings, lineage or {})
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
    assert (
        fault([Path("a"), Path("b")], common=common)
        == "a, b: have no id in common; join their rows with --rows"
    )


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
        "same images, or their rows with --rows"
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


NETWORK = {"backbone": "vgg16", "crops": "ten", "weights": "b" * 64}
WEIGHTS = {"weights": {"digest": "b" * 64, "settings": {}}}
ONE = [Layer("fc", 3)]


def store_of(path, first, last, settings=NETWORK, **changes) -> Path:
    """A store of some of the rows, whose network is known."""
    made = {"layers": ONE, "ids": IDS[first:last], "values": FIRST[first:last]} | changes
    return write(path, **made, settings=settings)


def refused_rows(*sources) -> str:
    with pytest.raises(InputError) as caught:
        append_stores(sources, Path("joined"))
    assert not Path("joined").exists()
    return caught.value.message


def test_rows_are_added_and_the_files_and_the_order_of_the_first_store_stay():
    first, second = store_of("a", 0, 6), store_of("b", 5, 9)
    rows = append_stores([first, second], Path("joined"))
    assert np.array_equal(rows.read(IDS), FIRST)
    assert rows.ids[:6] == Rows.open(first).ids
    assert sorted(rows.ids) == IDS  # the row that both have is there once
    for shard in Rows.open(first).shards:
        assert Path("joined", shard.file).read_bytes() == (first / shard.file).read_bytes()
    rows.verify()


def test_rows_keep_their_network_and_what_all_were_made_from():
    first = store_of("a", 0, 6, lineage=WEIGHTS | IMAGES)
    second = store_of("b", 6, 9, NETWORK | {"imported": {"source": "x.h5"}, "checked": {}}, lineage=WEIGHTS)
    joined = append_stores([first, second], Path("joined")).artifact
    assert joined.lineage == WEIGHTS
    assert {key: value for key, value in joined.settings.items() if key != "appended"} == NETWORK
    assert [(each["store"], each["rows"]) for each in joined.settings["appended"]] == [("a", 6), ("b", 3)]
    third = store_of("c", 0, 2, lineage=WEIGHTS)
    assert append_stores([Path("joined"), third], Path("again")).ids == Rows.open(Path("joined")).ids


@pytest.mark.parametrize(
    ("changes", "settings", "fault"),
    [
        ({"layers": [Layer("fc7", 3)]}, NETWORK, "layer 1: fc 3 and fc7 3"),
        ({"layers": [Layer("fc", 2), Layer("x", 1)]}, NETWORK, "layer 1: fc 3 and fc 2"),
        ({"dtype": "float16"}, NETWORK, "type of values: float32 and float16"),
        ({}, NETWORK | {"backbone": "vgg19"}, "network (backbone): vgg16 and vgg19"),
        ({}, NETWORK | {"weights": "c" * 64}, f"network (weights): {'b' * 64} and {'c' * 64}"),
        ({}, NETWORK | {"resize": "squash"}, "network (resize): none recorded and squash"),
        ({}, {"source": "x.h5"}, "network (backbone): vgg16 and none recorded"),
    ],
)
def test_rows_of_another_kind_are_refused_with_both_digests(changes, settings, fault):
    stores = store_of("a", 0, 6), store_of("b", 6, 9, settings, **changes)
    first, second = (f"{path} ({Rows.open(path).artifact.digest[:12]}…)" for path in stores)
    assert refused_rows(*stores) == (
        f"{first} and {second} differ in {fault}; join rows of the same network, which `fne import --photos` "
        "records for imported ones"
    )


def test_different_rows_for_one_id_are_refused():
    stores = store_of("a", 0, 6), store_of("b", 5, 9, values=FIRST[5:] + 1)
    first, second = (f"{path} ({Rows.open(path).artifact.digest[:12]}…)" for path in stores)
    assert refused_rows(*stores) == (
        f"{first} and {second} have different rows for 'image-5.jpg'; import the second without it"
    )


def test_rows_of_stores_with_layers_of_several_are_refused():
    join_stores(both(), Path("wide"))
    assert refused_rows(Path("wide"), Path("vgg")) == (
        "wide: has the layers of several stores; join the rows of each of them first, and then the layers"
    )


def test_damaged_rows_are_refused():
    stores = store_of("a", 0, 6), store_of("b", 6, 9)
    shard = next(stores[1].glob("shard-*.h5"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    assert refused_rows(*stores).startswith(f"{shard}: damaged")


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
