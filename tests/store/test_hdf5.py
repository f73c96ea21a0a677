import sys

import h5py
import numpy as np
import pytest

from fne.core.errors import InputError
from fne.store.hdf5 import file_image, own_datasets


def fault(path) -> str:
    with h5py.File(path, "r") as file, pytest.raises(InputError) as caught:
        own_datasets(path, file)
    return caught.value.message.removeprefix(f"{path}: ")


def external_link(file, folder):
    file["group/rows"] = h5py.ExternalLink("/etc/passwd", "/")


def soft_link(file, folder):
    file["group/rows"] = h5py.SoftLink("/elsewhere")


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
        (external_link, "'group/rows' is a link out of the file; such files are refused"),
        (soft_link, "'group/rows' is a soft link; such files are refused"),
        (external_storage, "'group/rows' is stored outside the file; such files are refused"),
        (virtual_dataset, "'group/rows' is stored outside the file; such files are refused"),
    ],
)
def test_what_would_come_from_elsewhere_is_refused_also_in_groups(tmp_path, reach_out, message):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        reach_out(file, tmp_path)
    assert fault(tmp_path / "a.h5") == message


def test_datasets_are_found_in_groups_and_a_group_within_itself_ends(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["group/rows"] = np.zeros(2)
        file["group/again"] = file["group"]
        assert list(own_datasets(tmp_path, file)) == ["group/rows"]


def test_groups_may_be_nested_deeper_than_python_calls(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file
        for _ in range(sys.getrecursionlimit() + 1):
            group = group.create_group("g")
        group["rows"] = np.zeros(2)
        (name,) = own_datasets(tmp_path, file)
    assert name.endswith("g/rows")


def test_equal_datasets_give_equal_bytes():
    assert file_image({"a": np.ones(3), "b": "text"}) == file_image({"a": np.ones(3), "b": "text"})
