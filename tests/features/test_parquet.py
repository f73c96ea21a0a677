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
    "values",
    [[[1.0, 2.0], [3.0], [4.0, 5.0]], [[1.0, 2.0], None, [4.0, 5.0]], [[1.0, 2.0], [3.0, None], [4.0, 5.0]]],
)
def test_lists_of_unequal_lengths_and_missing_values_are_refused(tmp_path, values):
    message = fault(write(tmp_path / "x.parquet", id=IDS, vector=values))
    assert message.startswith(f"{tmp_path}/x.parquet: damaged (column 'vector' has ")


def test_a_file_in_which_pandas_wrote_nan_is_refused(tmp_path):
    message = fault(write(tmp_path / "x.parquet", id=IDS, vector=[[1.0, 2.0], [3.0, None], [4.0, 5.0]]))
    assert message == (
        f"{tmp_path}/x.parquet: damaged (column 'vector' has lists with missing numbers: null, as pandas writes "
        "NaN)"
    )


def test_long_lists_and_ids_with_slashes_and_unicode_become_rows(tmp_path):
    ids = ["a/b/ü 漢字 🐕.jpg", "e\u0301.jpg", "\u00e9.jpg"]
    values = np.random.default_rng(0).normal(size=(3, 100_000)).astype(np.float32)
    path = write(tmp_path / "x.parquet", id=ids, vector=pyarrow.array(list(values)))
    import_rows(path, tmp_path / "store", ArrayNames())
    assert np.array_equal(Rows.open(tmp_path / "store").read(ids), values)


def test_lists_that_only_together_have_the_right_length_are_refused(tmp_path):
    message = fault(write(tmp_path / "x.parquet", id=IDS, vector=[[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]]))
    assert message == f"{tmp_path}/x.parquet: damaged (column 'vector' has lists of other lengths than 2)"


def test_infinite_values_are_refused(tmp_path):
    message = fault(
        write(tmp_path / "x.parquet", id=IDS, vector=[[1.0, 2.0], [3.0, float("inf")], [4.0, 5.0]])
    )
    assert message == (
        f"{tmp_path}/x.parquet: row 'b' has inf in layer 'vector', column 1; nothing was imported"
    )


def test_a_file_without_lists_is_refused(tmp_path):
    assert "has no array with rows and columns" in fault(
        write(tmp_path / "x.parquet", id=IDS, x=[1.0, 2.0, 3.0])
    )


def test_a_truncated_file_is_refused(tmp_path):
    path = write(tmp_path / "x.parquet", id=IDS, vector=[[1.0]] * 3)
    path.write_bytes(path.read_bytes()[:-20])
    assert fault(path).startswith(f"{path}: damaged (")


def test_captions_need_numbers(tmp_path):
    path = write(tmp_path / "x.parquet", id=["a", "a", "b"], vector=[[1.0], [2.0], [3.0]])
    assert fault(path, captions=True) == (
        f"{path}: 'a' in 'id' does not say which caption of the image it is; write ids as image#number, "
        "counted from 0, or add an array 'number'; it has 'id' (3,) of text, 'vector' (3, 1) of float64"
    )
    path = write(path, id=["a", "a", "b"], number=[0, 1, 0], vector=[[1.0], [2.0], [3.0]])
    imported = import_rows(path, tmp_path / "store", ArrayNames(), captions=True)
    assert (imported.ids, imported.ids_from) == (["a#0", "a#1", "b#0"], "id and number")
    assert Rows.open(tmp_path / "store", "caption_features").read(["a#1"]).tolist() == [[2.0]]


def test_a_caption_that_is_named_twice_is_refused(tmp_path):
    path = write(tmp_path / "x.parquet", id=["a", "a", "b"], number=[0, 0, 0], vector=[[1.0], [2.0], [3.0]])
    assert fault(path, captions=True) == (f"{path}: 1 ids are duplicated, the first is 'a#0' in rows 0 and 1")
