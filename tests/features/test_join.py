import json
import os
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from fne.features import join
from fne.features.join import append_stores, check_destination, join_stores
from fne.features.write_embeddings import open_source
from fne.store.layout import Layer
from fne.store.rows import Rows
from tests.support.features import write_store
from tests.support.refusals import refused

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


def write(path, values, layers, ids=IDS, dtype="float32", lineage=None, name="activations", settings=None):
    rows = dict(zip(ids, values, strict=True))
    write_store(Path(path), name, layers, rows, dtype, 2, settings or {"source": f"{path}.npz"}, lineage)
    return Path(path)


def both(**second) -> list[Path]:
    first = write("vgg", FIRST, [Layer("conv", 1), Layer("fc", 2)])
    return [first, write("inception", SECOND, [Layer("pool", 2)], **second)]


def pair(first=FIRST, second=SECOND, ids=IDS, more=IDS, **changes) -> list[Path]:
    """Write two stores; a keyword gives the values of both."""
    one, other = ({key: value[number] for key, value in changes.items()} for number in (0, 1))
    return [
        write("a", first, [Layer("conv", 3)], ids, **one),
        write("b", second, [Layer("pool", 2)], more, **other),
    ]


@contextmanager
def faults(*parts):
    """Expect an error, and that nothing was left behind."""
    with refused(*parts):
        yield
    assert not Path("joined").exists()
    assert [name for name in os.listdir() if name.startswith(".")] == []


def test_joined_layers_have_the_order_of_the_stores():
    rows = join_stores(both(), Path("joined"))
    assert np.array_equal(rows.read(IDS), np.concatenate([FIRST, SECOND], axis=1))
    assert rows.layers == [Layer("conv", 1), Layer("fc", 2), Layer("pool", 2)]
    assert (rows.dtype, len(rows.shards) > 1) == ("float32", True)
    rows.verify()
    assert open_source(Path("joined"), IDS).ids == rows.ids
    three = join_stores([*both(), write("third", SECOND, [Layer("head", 2)])], Path("three"))
    assert np.array_equal(three.read(IDS), np.concatenate([FIRST, SECOND, SECOND], axis=1))


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
    ("dtypes", "joined"),
    [
        (("float16", "float16"), "float16"),
        (("float16", "float32"), "float32"),
        (("float32", "float16"), "float32"),
    ],
)
def test_the_wider_type_is_kept(dtypes, joined):
    rows = join_stores(pair(dtype=dtypes), Path("joined"))
    assert rows.dtype == joined
    assert np.array_equal(rows.read(IDS), np.concatenate([FIRST, SECOND], axis=1))


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ("vgg", "alexnet", ["vgg.conv", "fc", "alexnet.conv", "fc8"]),
        ("x/features", "y/features", ["features1.conv", "fc", "features2.conv", "fc8"]),
    ],
)
def test_names_that_collide_get_the_name_of_the_folder_and_others_stay(first, second, names):
    write(first, FIRST, [Layer("conv", 1), Layer("fc", 2)])
    write(second, FIRST, [Layer("conv", 2), Layer("fc8", 1)])
    rows = join_stores([Path(first), Path(second)], Path("joined"))
    assert [layer.name for layer in rows.layers] == names


def test_a_store_that_lacks_ids_is_refused_and_common_keeps_those_that_all_have():
    stores = pair(second=SECOND[2:], more=IDS[2:])
    with faults("b: lacks 2 of the 9 ids", "'image-0.jpg'; join the 7 ids that all have with --common"):
        join_stores(stores, Path("joined"))
    rows = join_stores(pair(FIRST[:8], SECOND[2:], IDS[:8], IDS[2:]), Path("joined"), common=True)
    assert sorted(rows.ids) == IDS[2:8]
    assert np.array_equal(rows.read(IDS[2:8]), np.concatenate([FIRST[2:8], SECOND[2:8]], axis=1))


@pytest.mark.parametrize("common", [False, True])
def test_stores_without_a_common_id_are_refused(common):
    stores = pair(FIRST[:4], SECOND[4:], IDS[:4], IDS[4:])
    with faults("a, b: have no id in common; join their rows with --rows"):
        join_stores(stores, Path("joined"), common)


def test_stores_of_the_same_image_files_keep_that_ancestor_and_no_weights():
    stores = pair(lineage=[IMAGES | {"weights": {"digest": each * 64, "settings": {}}} for each in "bc"])
    assert join_stores(stores, Path("joined")).artifact.lineage == IMAGES


WITH_NAN = np.where(np.arange(18).reshape(9, 2) == 7, np.nan, SECOND)


@pytest.mark.parametrize(
    ("write_stores", "parts"),
    [
        (
            lambda: pair(lineage=[IMAGES, {"images": {"digest": "c" * 64, "settings": {}}}]),
            [
                "a was made from images aaaaaaaaaaaa…, but b was made from images cccccccccccc…; ",
                " with --rows",
            ],
        ),
        (lambda: both()[:1], ["expected at least two stores to join, got 1"]),
        (lambda: pair(name=["activations", "embeddings"]), ["b: expected activations, found embeddings"]),
        (
            lambda: pair(second=WITH_NAN),
            ["b: row 'image-3.jpg' has nan in layer 'pool', column 1; extract or import it again"],
        ),
    ],
)
def test_what_cannot_be_joined_is_refused(write_stores, parts):
    stores = write_stores()
    with faults(*parts):
        join_stores(stores, Path("joined"))


def test_a_source_is_never_replaced():
    sources = both()
    with faults("x/../vgg: is one of the stores to join; choose another folder with --to"):
        join_stores(sources, Path("x/../vgg"))
    Rows.open(sources[0]).verify()


@pytest.mark.parametrize("joining", [join_stores, append_stores])
def test_a_damaged_source_is_refused(joining):
    stores = both() if joining is join_stores else [store_of("a", 0, 6), store_of("b", 6, 9)]
    shard = next(stores[1].glob("shard-*.h5"))
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with faults(f"{shard}: damaged"):
        joining(stores, Path("joined"))


NETWORK = {"backbone": "vgg16", "crops": "ten", "weights": "b" * 64}
WEIGHTS = {"weights": {"digest": "b" * 64, "settings": {}}}
ONE = [Layer("fc", 3)]


def store_of(path, first, last, settings=NETWORK, **changes) -> Path:
    """A store of some of the rows, whose network is known."""
    made = {"layers": ONE, "ids": IDS[first:last], "values": FIRST[first:last]} | changes
    return write(path, **made, settings=settings)


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
    with faults(
        f"{first} and {second} differ in {fault}; join rows of the same network", "`fne import --photos`"
    ):
        append_stores(stores, Path("joined"))


def test_different_rows_for_one_id_are_refused():
    stores = store_of("a", 0, 6), store_of("b", 5, 9, values=FIRST[5:] + 1)
    first, second = (f"{path} ({Rows.open(path).artifact.digest[:12]}…)" for path in stores)
    with faults(f"{first} and {second} have different rows for 'image-5.jpg'; import the second without it"):
        append_stores(stores, Path("joined"))


def test_rows_of_stores_with_layers_of_several_are_refused():
    join_stores(both(), Path("wide"))
    with faults("wide: has the layers of several stores; join the rows of each of them first"):
        append_stores([Path("wide"), Path("vgg")], Path("joined"))


def test_an_intact_store_may_be_replaced_and_nothing_else():
    check_destination(Path("missing"))
    store = both()[0]
    check_destination(store)
    Path("photos").mkdir()
    Path("page").mkdir()
    Path("page/manifest.json").write_text(json.dumps({"name": "a web page"}))
    Path("file").write_text("x")
    manifest = json.loads((store / "manifest.json").read_text())
    del manifest["sha256"]
    (store / "manifest.json").write_text(json.dumps(manifest | {"version": 1}))  # without a seal
    for path in map(Path, ("photos", "page", "file", "vgg")):
        with refused(f"{path}: exists and is not an intact row store of activations; ", "--to, or remove it"):
            check_destination(path)


def test_a_store_with_files_of_others_is_not_replaced():
    store = both()[0]
    (store / "notes.txt").write_text("mine")
    with refused("vgg: holds other files beside the store, the first is 'notes.txt'; ", "--to, or remove it"):
        check_destination(store)
