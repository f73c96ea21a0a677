import multiprocessing
import os
import signal
import time
import zipfile
from pathlib import Path

import h5py
import pytest

from fne.core.errors import InputError
from fne.core.params import load_params
from fne.features.feature_files import (
    CrashedError,
    StalledError,
    TooLargeError,
    open_tables,
    read_texts,
    run_in_subprocess,
)

LONG = 3600.0


@pytest.fixture(autouse=True)
def _no_process_is_left():
    yield
    assert multiprocessing.active_children() == []


def test_items_arrive_in_order():
    assert list(run_in_subprocess(iter, (["a", "b", "c"],), LONG)) == ["a", "b", "c"]


def test_the_work_is_done_in_another_process():
    [process] = run_in_subprocess(map, (eval, ["__import__('os').getpid()"]), LONG)
    assert process != os.getpid()


def test_a_refusal_is_raised_with_its_message():
    with pytest.raises(InputError, match="^nowhere.yaml: no such file"):
        list(run_in_subprocess(map, (load_params, [Path("nowhere.yaml")]), LONG))


def test_an_item_that_exceeds_the_timeout_is_an_error():
    items = run_in_subprocess(map, (time.sleep, [0, LONG]), 3)
    assert next(items) is None
    with pytest.raises(StalledError):
        next(items)


@pytest.mark.parametrize("end", [signal.SIGSEGV, signal.SIGKILL])
def test_a_crash_of_the_process_is_an_error(end):
    with pytest.raises(CrashedError):
        list(run_in_subprocess(map, (signal.raise_signal, [end]), LONG))


def test_closing_the_generator_ends_the_process():
    items = run_in_subprocess(iter, (list(range(1_000_000)),), LONG)
    assert next(items) == 0
    items.close()


def test_work_that_needs_too_much_memory_is_an_error():
    with pytest.raises(TooLargeError):
        list(run_in_subprocess(map, (bytearray, [1 << 29]), LONG, 1 << 28))


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
