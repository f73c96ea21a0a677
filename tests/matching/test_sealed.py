import pytest
import torch

from fne.core.errors import InputError
from fne.matching.sealed import read_sealed, write_sealed

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
