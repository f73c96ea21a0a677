import random

import h5py
import numpy as np
import pytest

from fne.core.errors import InputError
from fne.store.arrays import read_arrays, write_arrays
from fne.store.formats import Format
from fne.store.formats import seal_bytes as seal


def write(path, **arrays):
    write_arrays(path, "statistics", arrays or {"mean": np.arange(3.0)}, {"images": 2}, {})
    return path


def fault(path) -> str:
    with pytest.raises(InputError) as caught:
        read_arrays(path, "statistics")
    return caught.value.message.removeprefix(f"{path}: ")


def test_arrays_and_texts_come_back_as_written(tmp_path):
    path = write(tmp_path / "a.h5", mean=np.arange(3.0), ids=["a", "é", ""], none=[])
    arrays = read_arrays(path, "statistics")
    assert arrays["mean"].tolist() == [0, 1, 2]
    assert (arrays.texts("ids"), arrays.texts("none")) == (["a", "é", ""], [])
    assert arrays.artifact.settings == {"images": 2}


def test_equal_arrays_give_equal_bytes(tmp_path):
    first, second = (write(tmp_path / name, ids=["a", "b"], m=np.ones(4)) for name in ("1.h5", "2.h5"))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_bit_anywhere_is_noticed(tmp_path, seed):
    path = write(tmp_path / "a.h5", mean=np.full(512, 7.0), ids=["a"])
    content = bytearray(path.read_bytes())
    chance = random.Random(seed)
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    assert fault(path) == f"damaged or not one of ours; run `fne verify {path}`, which says what mends it"


@pytest.mark.parametrize("size", [0, 1, 70, 700, -1])
def test_a_truncated_file_is_refused(tmp_path, size):
    path = write(tmp_path / "a.h5")
    path.write_bytes(path.read_bytes()[:size])
    assert fault(path) == f"damaged or not one of ours; run `fne verify {path}`, which says what mends it"


def test_any_hdf5_reader_can_read_the_file(tmp_path):
    with h5py.File(write(tmp_path / "a.h5"), "r") as file:
        assert file["mean"][:].tolist() == [0, 1, 2]


def test_another_hdf5_file_is_refused_even_with_a_seal(tmp_path):
    path = tmp_path / "a.h5"
    path.write_bytes(seal(b"no HDF5"))
    assert fault(path).startswith("not one of ours (")


def test_a_missing_file_is_refused(tmp_path):
    assert fault(tmp_path / "a.h5") == "no such file; run `dvc repro`, or `dvc pull` to fetch it"


def test_another_artifact_is_refused(tmp_path):
    path = tmp_path / "a.h5"
    write_arrays(path, "tokens", {}, {}, {})
    assert fault(path) == "expected statistics, found tokens"


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fne.store.arrays.FORMAT", Format("fne-arrays", 2))
    path = write(tmp_path / "a.h5")
    monkeypatch.undo()
    assert fault(path) == (
        "needs a version of fne that reads fne-arrays 2; this one reads fne-arrays up to 1"
    )


def test_a_link_out_of_the_file_is_refused(tmp_path):
    path = write(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        file["other"] = h5py.ExternalLink("/etc/passwd", "/")
    path.write_bytes(seal(path.read_bytes()))
    assert fault(path) == "'other' is a link out of the file; such files are refused"


def test_external_storage_is_refused(tmp_path):
    path = write(tmp_path / "a.h5")
    (tmp_path / "raw").write_bytes(b"\0" * 8)
    with h5py.File(path, "a") as file:
        file.create_dataset("other", (1,), "f8", external=[(str(tmp_path / "raw"), 0, 8)])
    path.write_bytes(seal(path.read_bytes()))
    assert fault(path) == "'other' is stored outside the file; such files are refused"
