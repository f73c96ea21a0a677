from pathlib import Path

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.features.import_features import ArrayNames, import_rows
from fne.store.rows import Rows

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

IDS = ["a", "b", "c"]


def write(path: Path, **columns) -> Path:
    parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


def fault(path: Path, captions=False) -> str:
    with pytest.raises(InputError) as caught:
        import_rows(path, path.parent / "store", ArrayNames(), captions=captions)
    assert not (path.parent / "store").exists()
    return caught.value.message


def test_lists_of_another_program_become_rows(tmp_path):
    values = [[1.5, 2.0], [3.0, -0.0], [5.0, 6.0]]
    source = write(tmp_path / "x.parquet", name=["x", "y", "z"], id=IDS, embedding=values)
    imported = import_rows(source, tmp_path / "store", ArrayNames())
    assert (imported.ids, imported.dtype, imported.values) == (IDS, "float32", "embedding")
    assert np.array_equal(Rows.open(tmp_path / "store").read(IDS), np.array(values, np.float32))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0, 2.0], [3.0], [4.0, 5.0]], "damaged (column 'vector' has "),
        ([[1.0, 2.0], None, [4.0, 5.0]], "damaged (column 'vector' has "),
        ([[1.0, 2.0], [3.0, None], [4.0, 5.0]], "missing numbers: null, as pandas writes NaN)"),
        ([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]], "damaged (column 'vector' has lists of other lengths than 2)"),
        ([[1.0, 2.0], [3.0, np.inf], [4.0, 5.0]], "row 'b' has inf in layer 'vector', column 1; nothing was"),
        ([1.0, 2.0, 3.0], "has no array with rows and columns"),
    ],
)
def test_lists_that_are_no_rows_of_numbers_are_refused(tmp_path, values, message):
    found = fault(write(tmp_path / "x.parquet", id=IDS, vector=values))
    assert found.startswith(f"{tmp_path}/x.parquet: ")
    assert message in found


def test_long_lists_and_ids_with_slashes_and_unicode_become_rows(tmp_path):
    ids = ["a/b/ü 漢字 🐕.jpg", "e\u0301.jpg", "\u00e9.jpg"]
    values = np.random.default_rng(0).normal(size=(3, 100_000)).astype(np.float32)
    path = write(tmp_path / "x.parquet", id=ids, vector=pyarrow.array(list(values)))
    import_rows(path, tmp_path / "store", ArrayNames())
    assert np.array_equal(Rows.open(tmp_path / "store").read(ids), values)


def test_a_truncated_file_is_refused(tmp_path):
    path = write(tmp_path / "x.parquet", id=IDS, vector=[[1.0]] * 3)
    path.write_bytes(path.read_bytes()[:-20])
    assert fault(path).startswith(f"{path}: damaged (")


def test_captions_need_numbers_that_differ(tmp_path):
    columns = {"id": ["a", "a", "b"], "vector": [[1.0], [2.0], [3.0]]}
    path = write(tmp_path / "x.parquet", **columns)
    message = fault(path, captions=True)
    assert message.startswith(f"{path}: 'a' in 'id' does not say which caption of the image it is; ")
    assert message.endswith("add an array 'number'; it has 'id' (3,) of text, 'vector' (3, 1) of float64")
    write(path, **columns, number=[0, 0, 0])
    message = fault(path, captions=True)
    assert message == f"{path}: 1 ids are duplicated, the first is 'a#0' in rows 0 and 1"
    write(path, **columns, number=[0, 1, 0])
    imported = import_rows(path, tmp_path / "store", ArrayNames(), captions=True)
    assert (imported.ids, imported.ids_from) == (["a#0", "a#1", "b#0"], "id and number")
    assert Rows.open(tmp_path / "store", "caption_features").read(["a#1"]).tolist() == [[2.0]]
