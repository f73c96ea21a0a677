import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open

from fne.core.errors import InputError
from fne.matching.sealed import ENTRY, read_arrays, read_sealed, write_sealed

TENSORS = {"weight": torch.arange(6.0).reshape(2, 3), "count": torch.tensor(3), "empty": torch.zeros(0, 4)}


def test_description_and_tensors_come_back(tmp_path):
    write_sealed(tmp_path / "file", {"step": 0.1 + 0.2, "name": "Größe"}, TENSORS)
    description, tensors = read_sealed(tmp_path / "file")
    assert description == {"step": 0.1 + 0.2, "name": "Größe"}
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_a_tensor_that_is_not_contiguous_is_kept_as_it_looks(tmp_path):
    write_sealed(tmp_path / "file", {}, {"turned": TENSORS["weight"].T})
    assert torch.equal(read_sealed(tmp_path / "file")[1]["turned"], TENSORS["weight"].T)


@pytest.mark.parametrize("place", [20, 60, -1, -20])
def test_a_flipped_bit_is_noticed_in_description_and_tensors(tmp_path, place):
    path = tmp_path / "file"
    write_sealed(path, {"step": 1}, TENSORS)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="file: damaged"):
        read_sealed(path)


def test_others_may_read_it_where_the_users_mask_lets_them(tmp_path):
    (tmp_path / "plain").touch()
    write_sealed(tmp_path / "file", {}, TENSORS)
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def digest_by_torch(description: dict, tensors: dict[str, torch.Tensor]) -> str:
    """The seal as it was first written: with torch's own names of types."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def test_the_seal_is_the_one_that_older_files_have(tmp_path):
    types = "float16 float32 float64 int8 int16 int32 int64 uint8 bool complex64".split()  # noqa: SIM905
    tensors = {name: torch.tensor([[0, 1, 1]]).to(getattr(torch, name)) for name in types} | TENSORS
    write_sealed(tmp_path / "file", {"step": 1}, tensors)
    with safe_open(tmp_path / "file", framework="pt") as file:
        written = json.loads(file.metadata()[ENTRY])["sha256"]
    assert written == digest_by_torch({"step": 1}, tensors)
    read = read_sealed(tmp_path / "file")[1]
    assert {name: value.dtype for name, value in read.items()} == {
        name: value.dtype for name, value in tensors.items()
    }


def test_arrays_are_what_the_tensors_are_and_only_those_asked_for(tmp_path):
    write_sealed(tmp_path / "file", {"step": 1}, TENSORS)
    description, arrays = read_arrays(tmp_path / "file", prefix="w")
    assert (description, list(arrays)) == ({"step": 1}, ["weight"])
    np.testing.assert_array_equal(arrays["weight"], TENSORS["weight"].numpy())


def test_damage_is_noticed_in_what_was_not_asked_for(tmp_path):
    path = tmp_path / "file"
    write_sealed(path, {}, {"a": torch.zeros(4), "b": torch.zeros(4)})
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"file: damaged: expected .*…, found .*…; run `fne verify"):
        read_arrays(path, prefix="a")


def test_arrays_are_read_without_torch(tmp_path):
    write_sealed(tmp_path / "file", {}, TENSORS)
    program = (
        "import sys; from pathlib import Path; from fne.matching.sealed import read_arrays;"
        "print(len(read_arrays(Path(sys.argv[1]))[1]), 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "file")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "3 False\n"
