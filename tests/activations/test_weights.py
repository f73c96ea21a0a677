import hashlib
import pickle
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
import torchvision
from safetensors.torch import save_file

from fne.activations.weights import load_weights
from fne.core.errors import InputError

ROOT = Path(__file__).parents[2]


def fault(path, backbone="alexnet") -> str:
    with pytest.raises(InputError) as caught:
        load_weights(path, backbone)
    return caught.value.message


def test_random_weights_are_a_matter_of_the_seed(tmp_path):
    (tmp_path / "other.yaml").write_text("kind: random\nseed: 1\n")
    first, second = (load_weights(ROOT / "weights/random.yaml", "alexnet") for _ in range(2))
    other = load_weights(tmp_path / "other.yaml", "alexnet")
    assert all(torch.equal(first.state[name], second.state[name]) for name in first.state)
    assert not torch.equal(first.state["features.0.weight"], other.state["features.0.weight"])
    assert first.artifact.digest == second.artifact.digest != other.artifact.digest


def test_random_weights_say_that_they_are_untrained():
    assert load_weights(ROOT / "weights/random.yaml", "alexnet").artifact.settings["untrained"] is True


def test_random_weights_keep_the_scale_of_their_input():
    weight = load_weights(ROOT / "weights/random.yaml", "alexnet").state["features.3.weight"]
    assert weight.var().item() == pytest.approx(2 / (64 * 5 * 5), rel=0.02)


def test_a_comment_in_the_file_does_not_change_the_weights(tmp_path):
    (tmp_path / "w.yaml").write_text("# another comment\nseed: 0\nkind: random\n")
    original = load_weights(ROOT / "weights/random.yaml", "alexnet").artifact.digest
    assert load_weights(tmp_path / "w.yaml", "alexnet").artifact.digest == original


def test_a_safetensors_file_in_half_precision_is_read_as_float32(tmp_path):
    save_file({"features.0.bias": torch.ones(64, dtype=torch.float16)}, tmp_path / "w.safetensors")
    weights = load_weights(tmp_path / "w.safetensors", "vgg16")
    assert weights.state["features.0.bias"].dtype == torch.float32
    assert weights.artifact.settings == {"kind": "file", "file": "w.safetensors", "untrained": False}


def test_a_state_dict_file_is_read(tmp_path):
    torch.save({"features.0.bias": torch.ones(64)}, tmp_path / "w.pth")
    assert load_weights(tmp_path / "w.pth", "vgg16").state["features.0.bias"].sum().item() == 64


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("executed"),))


def test_a_file_that_would_execute_something_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"features.0.bias": Evil()}, "w.pth")
    Path("plain.pth").write_bytes(pickle.dumps(Evil()))
    assert fault(Path("w.pth")) == "w.pth: refused: UnpicklingError while reading it without executing it"
    assert "plain.pth: " in fault(Path("plain.pth"))
    assert not Path("executed").exists()


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\0" * 100])
def test_a_file_that_holds_no_weights_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert fault(tmp_path / name).startswith(f"{tmp_path}/{name}: ")


def test_a_file_of_something_else_is_refused(tmp_path):
    torch.save([torch.ones(1)], tmp_path / "w.pth")
    assert fault(tmp_path / "w.pth") == f"{tmp_path}/w.pth: expected named tensors, found list"


def test_a_missing_file_is_refused(tmp_path):
    assert fault(tmp_path / "w.pth") == (
        f"{tmp_path}/w.pth: no such weights file; set extract.weights to a file, such as weights/random.yaml"
    )


@pytest.mark.parametrize("content", ["kind: magic", "seed: 0", "kind: random\nseed: -1", "kind: torchvision"])
def test_a_yaml_that_names_no_weights_is_refused(tmp_path, content):
    (tmp_path / "w.yaml").write_text(content)
    assert fault(tmp_path / "w.yaml").endswith("; see weights/random.yaml and weights/imagenet.yaml")


def test_without_a_network_the_error_says_where_to_place_the_file(monkeypatch):
    def offline(*_, **__):
        raise URLError("no network")

    monkeypatch.setattr(torchvision.models.VGG16_Weights, "get_state_dict", offline)
    expected = Path(torch.hub.get_dir()) / "checkpoints" / "vgg16-397923af.pth"
    assert fault(ROOT / "weights/imagenet.yaml", "vgg16").endswith(
        "cannot download vgg16-397923af.pth (<urlopen error no network>); "
        f"place the file at {expected}, or set extract.weights to a weights file"
    )


def test_downloaded_weights_that_are_not_the_named_ones_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(torchvision.models.VGG16_Weights, "get_state_dict", lambda *_, **__: {})
    file = tmp_path / "checkpoints" / "vgg16-397923af.pth"
    file.parent.mkdir()
    file.write_bytes(b"other")
    found = hashlib.sha256(b"other").hexdigest()
    assert fault(ROOT / "weights/imagenet.yaml", "vgg16").endswith(
        f"397923af8e79cdbb6a7127f12361acd7a2f83e06b05044ddf496e83de57a5bf0, found {found}; "
        "remove the file and try again"
    )


def test_a_backbone_without_named_weights_is_refused():
    assert fault(ROOT / "weights/imagenet.yaml", "alexnet").endswith(
        "names no weights for 'alexnet', only for vgg16"
    )
