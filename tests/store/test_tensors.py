import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save, save_file

from fne.core.errors import InputError
from fne.store.tensors import ENTRY, read_description, read_sealed, read_sealed_arrays, write_sealed

TENSORS = {"weight": torch.arange(6.0).reshape(2, 3), "count": torch.tensor(3), "empty": torch.zeros(0, 4)}


def test_description_and_tensors_are_read_back_also_those_that_are_not_contiguous(tmp_path):
    description, given = {"step": 0.1 + 0.2, "name": "Größe"}, TENSORS | {"turned": TENSORS["weight"].T}
    write_sealed(tmp_path / "file", description, given)
    found, tensors = read_sealed(tmp_path / "file")
    assert found == description
    assert all(torch.equal(tensors[name], given[name]) for name in given)


@pytest.mark.parametrize("place", [20, 60, -1, -20])
def test_a_flipped_bit_in_description_or_tensors_is_detected(tmp_path, place):
    path = tmp_path / "file"
    write_sealed(path, {"step": 1}, TENSORS)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="file: damaged"):
        read_sealed(path)


def test_the_umask_decides_who_may_read_the_file(tmp_path):
    (tmp_path / "plain").touch()
    write_sealed(tmp_path / "file", {}, TENSORS)
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def digest_by_torch(description: dict, tensors: dict[str, torch.Tensor]) -> str:
    """The seal as it was first written: with torch's names of types."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def test_the_seal_is_the_same_as_in_older_files(tmp_path):
    types = "float16 float32 float64 int8 int16 int32 int64 uint8 bool complex64".split()  # noqa: SIM905
    tensors = {name: torch.tensor([[0, 1, 1]]).to(getattr(torch, name)) for name in types} | TENSORS
    write_sealed(tmp_path / "file", {"step": 1}, tensors)
    with safe_open(tmp_path / "file", framework="pt") as file:
        written = json.loads(file.metadata()[ENTRY])["sha256"]
    assert written == digest_by_torch({"step": 1}, tensors)
    read = read_sealed(tmp_path / "file")[1]
    assert read.keys() == tensors.keys()
    assert all(value.dtype == tensors[name].dtype for name, value in read.items())


def test_the_bytes_are_those_of_the_library(tmp_path):
    types = "float16 float32 float64 int8 int16 int32 int64 uint8 bool".split()  # noqa: SIM905
    tensors = {f"of.{name}": torch.tensor([[0, 1, 1]]).to(getattr(torch, name)) for name in types} | TENSORS
    for number, given in enumerate((tensors, {})):
        path = tmp_path / str(number)
        digest = write_sealed(path, {"name": 'a "quoted" \n Größe \u2028 \x01'}, given)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
        assert path.read_bytes() == save(given, metadata=metadata)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest


def test_arrays_equal_the_tensors_and_only_the_requested_ones_are_returned(tmp_path):
    write_sealed(tmp_path / "file", {"step": 1}, TENSORS)
    file = read_sealed_arrays(tmp_path / "file", prefix="w")
    description, arrays = file.description, file.arrays
    assert (description, list(arrays)) == ({"step": 1}, ["weight"])
    np.testing.assert_array_equal(arrays["weight"], TENSORS["weight"].numpy())


def test_damage_is_detected_in_arrays_that_were_not_requested(tmp_path):
    path = tmp_path / "file"
    write_sealed(path, {}, {"a": torch.zeros(4), "b": torch.zeros(4)})
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"file: damaged: expected .*…, found .*…; run `fne verify"):
        read_sealed_arrays(path, prefix="a")


def test_arrays_are_read_without_torch(tmp_path):
    write_sealed(tmp_path / "file", {}, TENSORS)
    program = (
        "import sys; from pathlib import Path; from fne.store.tensors import read_sealed_arrays;"
        "print(len(read_sealed_arrays(Path(sys.argv[1])).arrays), 'torch' in sys.modules)"
    )
    printed = subprocess.check_output([sys.executable, "-c", program, str(tmp_path / "file")], text=True)
    assert printed == "3 False\n"


def test_content_and_digest_come_from_one_reading(tmp_path, monkeypatch):
    path, other = tmp_path / "file", tmp_path / "other"
    digest = write_sealed(path, {"kind": "first"}, {"w": torch.zeros(2)})
    write_sealed(other, {"kind": "second"}, {"w": torch.ones(2)})
    read = Path.read_bytes

    def replaced_after_reading(self: Path) -> bytes:
        content = read(self)
        other.replace(path)
        return content

    monkeypatch.setattr(Path, "read_bytes", replaced_after_reading)
    file = read_sealed_arrays(path)
    assert (file.sha256, file.description, file.arrays["w"].tolist()) == (digest, {"kind": "first"}, [0, 0])


def test_deeply_nested_metadata_is_one_line(tmp_path):
    path = tmp_path / "file"
    save_file({"w": torch.zeros(2)}, path, metadata={ENTRY: "[" * 100_000})
    with pytest.raises(InputError, match=r"damaged, or not a model of fne \(maximum recursion depth"):
        read_sealed(path)


@pytest.mark.parametrize("description", ["[1]", "7", "null", '"text"'])
def test_a_description_that_is_no_mapping_is_one_line(tmp_path, description):
    path = tmp_path / "file"
    save_file({"w": torch.zeros(2)}, path, metadata={ENTRY: description})
    with pytest.raises(InputError, match="file: damaged, or not a file of fne"):
        read_description(path)
