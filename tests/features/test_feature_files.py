import zipfile

import h5py
import pytest

from fne.core.errors import InputError
from fne.features.feature_files import open_tables, read_texts


def test_chunks_that_take_too_much_memory_are_refused_with_the_limit(tmp_path):
    with h5py.File(tmp_path / "bomb.h5", "w") as file:
        file.create_dataset("values", (1 << 16, 1 << 14), "f4", chunks=(1 << 15, 1 << 12), compression="gzip")
    with (
        pytest.raises(InputError, match="'values' has chunks of 537 MB, more than 268 MB"),
        open_tables(tmp_path / "bomb.h5"),
    ):
        pass


def test_ids_that_take_too_much_memory_are_refused_with_the_limit(tmp_path):
    with h5py.File(tmp_path / "bomb.h5", "w") as file:
        file.create_dataset("ids", (1 << 20,), "S4096", chunks=(64,), compression="gzip")
    with open_tables(tmp_path / "bomb.h5") as tables, pytest.raises(InputError, match="more than 268 MB"):
        read_texts(tmp_path / "bomb.h5", tables["ids"])


@pytest.mark.parametrize(
    "shape", ["(-3, 4)", "(-1000000000000, 4)", "(-9223372036854775808, 2)", f"({9**30}, 2)"]
)
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_an_impossible_shape_is_damage(tmp_path, shape, ending):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(48)
    path = tmp_path / f"x.{ending}"
    if ending == "npy":
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("vectors.npy", content)
    with pytest.raises(InputError) as caught, open_tables(path):
        pass
    assert caught.value.message == f"{path}: damaged (its header has the shape {shape})"
