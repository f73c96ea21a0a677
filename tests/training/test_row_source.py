import numpy as np
import pytest

from fne.core.errors import InputError
from fne.store.layout import Layer, plan_shards, view_layers
from fne.store.rows import Rows, write_rows
from fne.training import row_source
from fne.training.row_source import StoreRows

IDS = [f"{number}.jpg" for number in range(6)]
VALUES = np.arange(6 * 4, dtype=np.float16).reshape(6, 4)


def write(path, layers):
    planned = plan_shards(IDS, 2).items()
    shards = ((number, ids, VALUES[[IDS.index(each) for each in ids]]) for number, ids in planned)
    write_rows(path, "embeddings", layers, "float16", shards, {}, {})
    return Rows.open(path)


@pytest.fixture
def store(tmp_path):
    return write(tmp_path / "store", [Layer("fc7", 4)])


def test_kept_rows_are_those_of_the_store_and_are_read_once(store, monkeypatch):
    source, plain = StoreRows(store, IDS[:4]), StoreRows(store)
    chosen = [IDS[3], IDS[0], IDS[3]]
    expected = plain.read(chosen)
    assert source.read(chosen).equal(expected)
    monkeypatch.setattr(Rows, "read", lambda *arguments: pytest.fail("the store is read again"))
    assert source.read(chosen).equal(expected)


def test_images_that_are_not_kept_are_read_from_the_store(store):
    assert StoreRows(store, IDS[:4]).read([IDS[0], IDS[5]]).equal(StoreRows(store).read([IDS[0], IDS[5]]))


def test_rows_that_do_not_fit_into_memory_are_not_kept(store, monkeypatch):
    monkeypatch.setattr(row_source, "IN_MEMORY", 15)
    source = StoreRows(store, IDS[:4])
    assert source.read(IDS[:2]).tolist() == VALUES[:2].tolist()
    assert "_kept" not in vars(source)


def test_one_view_is_read_and_the_mean_of_all_is_encoded(tmp_path):
    source = StoreRows(write(tmp_path / "views", view_layers([Layer("fc7", 2)], 2)), IDS)
    assert source.features == 2
    assert source.read(IDS[:2], views=[1, 0]).tolist() == [[2, 3], [4, 5]]
    assert next(source.blocks(IDS, 2)).tolist() == [[1, 2], [5, 6]]


def test_an_image_without_a_row_is_refused(store):
    with pytest.raises(InputError, match="missing.jpg"):
        StoreRows(store).check_ids(["missing.jpg"])
