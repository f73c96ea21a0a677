import json
import random
import sys

import h5py
import numpy as np
import pytest

from fne.core.errors import InputError
from fne.features.standardize import LAYOUT
from fne.store.arrays import DESCRIPTION, FORMAT, own_datasets, read_arrays, write_arrays
from fne.store.artifact import Format, repair_hint
from fne.store.checksums import seal_bytes
from tests.support.refusals import refused


def write(path, **arrays):
    write_arrays(path, "statistics", arrays or {"mean": np.arange(3.0)}, {"images": 2}, {})
    return path


def fault(path) -> str:
    with pytest.raises(InputError) as caught:
        read_arrays(path, "statistics")
    return caught.value.message.removeprefix(f"{path}: ")


def test_arrays_and_texts_are_read_back_as_written(tmp_path):
    path = write(tmp_path / "a.h5", mean=np.arange(3.0), ids=["a", "é", ""], none=[])
    arrays = read_arrays(path, "statistics")
    assert arrays["mean"].tolist() == [0, 1, 2]
    assert (arrays.texts("ids"), arrays.texts("none")) == (["a", "é", ""], [])
    assert arrays.artifact.settings == {"images": 2}


def test_equal_arrays_give_equal_bytes(tmp_path):
    first, second = (write(tmp_path / name, ids=["a", "b"], m=np.ones(4)) for name in ("1.h5", "2.h5"))
    assert first.read_bytes() == second.read_bytes()


def test_a_flipped_bit_anywhere_and_every_truncation_is_detected(tmp_path):
    path = write(tmp_path / "a.h5", mean=np.full(512, 7.0), ids=["a"])
    content, chance = path.read_bytes(), random.Random(0)
    damaged = [content[:size] for size in (0, 1, 70, 700, -1)]
    for _ in range(20):
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        damaged.append(bytes(flipped))
    for each in damaged:
        path.write_bytes(each)
        remedy = f"run `fne verify {path}` to see how to repair it"
        assert fault(path) == f"damaged, or not an artifact of fne; {remedy}"


def test_any_hdf5_reader_can_read_the_file(tmp_path):
    with h5py.File(write(tmp_path / "a.h5"), "r") as file:
        assert file["mean"][:].tolist() == [0, 1, 2]


def test_another_hdf5_file_is_refused_even_with_a_seal_bytes(tmp_path):
    path = tmp_path / "a.h5"
    path.write_bytes(seal_bytes(b"no HDF5"))
    assert fault(path).startswith("not an artifact of fne (")


def test_a_missing_file_and_another_artifact_are_refused(tmp_path):
    path = tmp_path / "a.h5"
    assert fault(path) == "no such file; run `dvc repro`, or `dvc pull` to fetch it"
    write_arrays(path, "tokens", {}, {}, {})
    assert fault(path) == "expected statistics, found tokens"


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("fne.store.arrays.FORMAT", Format("fne-arrays", 2))
        path = write(tmp_path / "a.h5")
    assert fault(path).startswith("needs a version of fne that reads fne-arrays 2; ")


def test_a_link_out_of_the_file_is_refused(tmp_path):
    path = write(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        file["other"] = h5py.ExternalLink("/etc/passwd", "/")
    path.write_bytes(seal_bytes(path.read_bytes()))
    assert fault(path) == "'other' is a link out of the file; such files are refused"


def external_storage(file, folder):
    (folder / "raw").write_bytes(b"\0" * 8)
    file.create_dataset("group/rows", (1,), "f8", external=[(str(folder / "raw"), 0, 8)])


def virtual_dataset(file, folder):
    layout = h5py.VirtualLayout((1,), "f8")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "rows", (1,))
    file.create_virtual_dataset("group/rows", layout)


@pytest.mark.parametrize(
    ("reach_out", "message"),
    [
        (lambda file, _: file.__setitem__("group/rows", h5py.ExternalLink("/etc/passwd", "/")), "a link out of the file"),
        (lambda file, _: file.__setitem__("group/rows", h5py.SoftLink("/other")), "a soft link"),
        (external_storage, "stored outside the file"),
        (virtual_dataset, "stored outside the file"),
    ],
)  # fmt: skip
def test_data_outside_the_file_is_refused_also_in_groups(tmp_path, reach_out, message):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        reach_out(file, tmp_path)
    with h5py.File(path, "r") as file, refused(f"{path}: 'group/rows' is {message}; such files are refused"):
        own_datasets(path, file)


def test_datasets_are_found_in_groups_and_a_group_within_itself_ends(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["group/rows"] = np.zeros(2)
        file["group/again"] = file["group"]
        assert list(own_datasets(tmp_path, file)) == ["group/rows"]


def test_groups_may_be_nested_deeper_than_pythons_recursion_limit(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file
        for _ in range(sys.getrecursionlimit() + 1):
            group = group.create_group("g")
        group["rows"] = np.zeros(2)
        (name,) = own_datasets(tmp_path, file)
    assert name.endswith("g/rows")


def test_an_array_that_is_larger_than_its_file_is_refused_before_it_is_read(tmp_path):
    with h5py.File(tmp_path / "made.h5", "w") as file:
        description = FORMAT.header() | {"name": "statistics", "settings": {}, "lineage": {}}
        file[DESCRIPTION] = json.dumps(description)
        file.create_dataset("mean", (1 << 30,), "f8", chunks=(1 << 16,), compression="gzip")
    (tmp_path / "bomb.h5").write_bytes(seal_bytes((tmp_path / "made.h5").read_bytes()))
    assert "'mean' would take 8589934592 bytes, more than the whole file" in fault(tmp_path / "bomb.h5")


MEAN = {"mean": np.zeros(3), "deviation": np.ones(3)}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"deviation": np.ones(2)}, "'mean' has 3 features, other arrays have 2"),
        ({"mean": np.zeros((3, 1))}, "'mean' has float64 values in 2 dimensions"),
        ({"mean": np.zeros(3, int)}, "'mean' has int64 values in 1 dimensions"),
        ({"mean": ["a", "b", "c"]}, "'mean' has object values in 1 dimensions"),
    ],
)
def test_arrays_of_another_layout_than_their_artifact_has_are_one_line(tmp_path, change, fault):
    path = tmp_path / "statistics.h5"
    write_arrays(path, "statistics", MEAN | change, {}, {})
    with refused(f"{path}: not an artifact of fne ({fault}); {repair_hint(path)}"):
        read_arrays(path, LAYOUT)


def test_an_array_that_is_missing_is_one_line(tmp_path):
    write_arrays(tmp_path / "a.h5", "statistics", MEAN, {}, {})
    with refused("a.h5: damaged (it has no 'ids'); run `fne verify "):
        read_arrays(tmp_path / "a.h5").texts("ids")
