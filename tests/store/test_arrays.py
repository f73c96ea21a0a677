import h5py
import numpy as np
import pytest

from fne.core.errors import InputError
from fne.store.arrays import describe_arrays, read_arrays, write_arrays


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


def test_a_flipped_bit_in_an_array_is_noticed(tmp_path):
    path = write(tmp_path / "a.h5", mean=np.full(512, 7.0))
    content = bytearray(path.read_bytes())
    content[content.index(np.full(4, 7.0).tobytes()) + 3] ^= 1
    path.write_bytes(content)
    assert fault(path).startswith("array 'mean' is damaged: expected ")
    assert fault(path).endswith("…; remove the file and run `dvc repro`")


def test_a_truncated_file_is_refused(tmp_path):
    path = write(tmp_path / "a.h5")
    path.write_bytes(path.read_bytes()[:700])
    assert fault(path).startswith("damaged or not one of ours (")


def test_a_missing_file_is_refused(tmp_path):
    assert fault(tmp_path / "a.h5") == "no such file; run `dvc repro`, or `dvc pull` to fetch it"


def test_another_artifact_is_refused(tmp_path):
    path = tmp_path / "a.h5"
    write_arrays(path, "tokens", {}, {}, {})
    assert fault(path) == "expected statistics, found tokens"


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fne.store.arrays.VERSION", 2)
    path = write(tmp_path / "a.h5")
    monkeypatch.undo()
    assert fault(path) == "has format fne-arrays 2; this version reads fne-arrays 1"


def test_a_link_out_of_the_file_is_refused(tmp_path):
    path = write(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        file["other"] = h5py.ExternalLink("/etc/passwd", "/")
    assert fault(path) == "'other' is a link out of the file; such files are refused"


def test_external_storage_is_refused(tmp_path):
    path = write(tmp_path / "a.h5")
    (tmp_path / "raw").write_bytes(b"\0" * 8)
    with h5py.File(path, "a") as file:
        file.create_dataset("other", (1,), "f8", external=[(str(tmp_path / "raw"), 0, 8)])
    assert fault(path) == "'other' is stored outside the file; such files are refused"


def test_a_description_names_types_and_shapes(tmp_path):
    path = write(tmp_path / "a.h5", mean=np.zeros((2, 3)), ids=["a"])
    assert describe_arrays(path)[1] == {"ids": "text (1,)", "mean": "float64 (2, 3)"}
