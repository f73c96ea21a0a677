import hashlib
import os
import pickle
import sys
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
import torchvision
from safetensors.torch import load_file, save_file

from fne.core import stat_cache
from fne.core.errors import InputError
from fne.core.files import file_digest
from fne.extraction import weights
from fne.extraction.networks import BACKBONES
from fne.extraction.settings import CAFFE, TORCHVISION, parse_weights
from fne.extraction.weights import Description, load_weights, says_its_input
from tests.support.imports import ROOT
from tests.support.refusals import refused


def fault(path, backbone="alexnet") -> str:
    with pytest.raises(InputError) as caught:
        load_weights(path, backbone)
    return caught.value.message


def test_random_weights_are_untrained_keep_the_scale_of_their_input_and_depend_on_the_seed_only(tmp_path):
    (tmp_path / "other.yaml").write_text("kind: random\nseed: 1\n")
    (tmp_path / "same.yaml").write_text("# another comment\nseed: 0\nkind: random\n")
    files = ROOT / "weights/random.yaml", tmp_path / "same.yaml", tmp_path / "other.yaml"
    first, second, other = (load_weights(file, "alexnet") for file in files)
    assert all(torch.equal(first.state[name], second.state[name]) for name in first.state)
    assert not torch.equal(first.state["features.0.weight"], other.state["features.0.weight"])
    assert first.artifact.digest == second.artifact.digest != other.artifact.digest
    assert first.artifact.settings["untrained"] is True
    variance = first.state["features.3.weight"].var().item()
    assert variance == pytest.approx(2 / (64 * 5 * 5), rel=0.02)


@pytest.mark.parametrize(("name", "save"), [("w.safetensors", save_file), ("w.pth", torch.save)])
def test_a_file_in_half_precision_is_read_as_float32(tmp_path, name, save):
    save({"features.0.bias": torch.ones(64, dtype=torch.float16)}, tmp_path / name)
    weights = load_weights(tmp_path / name, "vgg16", "torchvision")
    assert weights.state["features.0.bias"].dtype == torch.float32
    assert weights.state["features.0.bias"].sum().item() == 64
    assert weights.artifact.settings == {"kind": "file", "file": name, "untrained": False}


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("executed"),))


def test_a_file_that_contains_code_is_refused_and_not_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"features.0.bias": Evil()}, "w.pth")
    Path("plain.pth").write_bytes(pickle.dumps(Evil()))
    said = "w.pth: refused, because it contains more than tensors (UnpicklingError); use another weights file"
    assert fault(Path("w.pth")) == said
    assert "plain.pth: " in fault(Path("plain.pth"))
    assert not Path("executed").exists()


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\0" * 100])
def test_a_file_without_weights_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert fault(tmp_path / name).startswith(f"{tmp_path}/{name}: ")


def test_a_file_of_something_else_and_a_missing_one_are_refused(tmp_path):
    path = tmp_path / "w.pth"
    with refused(
        f"{path}: no such weights file; set extract.weights to a file, for example weights/random.yaml"
    ):
        load_weights(path, "alexnet")
    torch.save([torch.ones(1)], path)
    with refused(f"{path}: expected a dict of tensors, found list; use another weights file"):
        load_weights(path, "alexnet")


@pytest.mark.parametrize("content", ["kind: magic", "seed: 0", "kind: random\nseed: -1", "kind: torchvision"])
def test_a_yaml_that_names_no_weights_is_refused(tmp_path, content):
    (tmp_path / "w.yaml").write_text(content)
    assert fault(tmp_path / "w.yaml").endswith("; see weights/random.yaml and weights/imagenet.yaml")


def test_without_internet_the_error_says_where_to_save_the_file(tmp_path, monkeypatch):
    def offline(*_, **__):
        raise URLError("no network")

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    file = "vgg16-397923af.pth"
    with refused(
        f"cannot download {file} (<urlopen error no network>); save the file as {tmp_path}/checkpoints/{file}"
    ):
        load_weights(ROOT / "weights/imagenet.yaml", "vgg16")


def test_downloaded_weights_with_another_digest_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    file = tmp_path / "checkpoints" / "vgg16-397923af.pth"
    file.parent.mkdir()
    file.write_bytes(b"other")
    found = hashlib.sha256(b"other").hexdigest()
    said = f"397923af8e79cdbb6a7127f12361acd7a2f83e06b05044ddf496e83de57a5bf0, found {found}; torch keeps this file"
    with refused(said, "move it aside to download it again"):
        load_weights(ROOT / "weights/imagenet.yaml", "vgg16")


def test_a_backbone_without_named_weights_is_refused():
    with refused("has no weights for 'alexnet', only for vgg16; set extract.weights to another file"):
        load_weights(ROOT / "weights/imagenet_features.yaml", "alexnet")


@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_backbone_has_weights_with_the_digits_that_torchvision_publishes(backbone):
    named = parse_weights(ROOT / "weights/imagenet.yaml")
    published = torchvision.models.get_model_weights(backbone)[named.name].url
    assert published.endswith(f"-{named.sha256[backbone][:8]}.pth")


def offer(monkeypatch, folder, weights, state):
    """Place a state dict where torchvision keeps the file of some weights, and return its SHA-256."""
    file = folder / "checkpoints" / weights.url.rsplit("/", 1)[1]
    file.parent.mkdir()
    torch.save(state, file)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(folder))
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_eight_digits_of_a_digest_are_enough_and_the_whole_one_is_recorded(tmp_path, monkeypatch):
    weights = torchvision.models.VGG19_Weights.IMAGENET1K_V1
    digest = offer(monkeypatch, tmp_path, weights, {"features.0.bias": torch.ones(64)})
    file = tmp_path / "w.yaml"
    file.write_text(f"kind: torchvision\nname: IMAGENET1K_V1\nsha256:\n  vgg19: '{digest[:8]}'\n")
    loaded = load_weights(file, "vgg19")
    assert (loaded.artifact.digest, loaded.input) == (digest, TORCHVISION)
    file.write_text("kind: torchvision\nname: IMAGENET1K_V1\nsha256:\n  vgg19: '00000000'\n")
    assert f"expected SHA-256 00000000, found {digest}" in fault(file, "vgg19")


def test_the_input_of_torchvisions_weights_is_read_from_torchvision(tmp_path, monkeypatch):
    """These are Caffe's convolutions, with constants of their own and a classifier of NaN."""
    state = {"features.0.bias": torch.ones(64), "classifier.0.bias": torch.full((4096,), torch.nan)}
    weights = torchvision.models.VGG16_Weights.IMAGENET1K_FEATURES
    digest = offer(monkeypatch, tmp_path, weights, state)
    file = tmp_path / "w.yaml"
    file.write_text(f"kind: torchvision\nname: IMAGENET1K_FEATURES\nsha256:\n  vgg16: '{digest[:8]}'\n")
    loaded = load_weights(file, "vgg16")
    assert loaded.input.mean == [0.48235, 0.45882, 0.40784]
    assert loaded.input.deviation == [1 / 255] * 3
    assert list(loaded.state) == ["features.0.bias"]


def test_a_bare_file_needs_an_input(tmp_path):
    file = tmp_path / "w.safetensors"
    save_file({"features.0.bias": torch.ones(64)}, file)
    with refused(f"{file}: does not say how its weights expect images (", "set extract.input to torchvision"):
        load_weights(file, "vgg16")
    assert not says_its_input(file)
    assert load_weights(file, "vgg16", "caffe").input == CAFFE


def test_a_file_that_records_its_input_format_is_used_with_no_other(tmp_path):
    said = Description(input=CAFFE, source_sha256="a" * 64)
    file, state = tmp_path / "w.safetensors", {"features.0.bias": torch.ones(64)}
    save_file(state, file, {"fne_weights": said.model_dump_json()})
    assert says_its_input(file)
    loaded = load_weights(file, "vgg16")
    assert (loaded.input, loaded.artifact.settings["source"]) == (CAFFE, "a" * 64)
    with refused("its weights expect BGR 0..255", "but extract.input asks for RGB 0..1"):
        load_weights(file, "vgg16", "torchvision")
    save_file(state, file, {"fne_weights": "{}"})
    assert "its metadata describes no input (input: Field required)" in fault(file)


def test_a_yaml_may_name_a_file_with_its_digest_and_input(tmp_path):
    save_file({"features.0.bias": torch.ones(64)}, tmp_path / "w.safetensors")
    digest = hashlib.sha256((tmp_path / "w.safetensors").read_bytes()).hexdigest()
    file = tmp_path / "w.yaml"
    file.write_text(f"kind: file\nfile: w.safetensors\nsha256: '{digest}'\ninput: caffe\n")
    loaded = load_weights(file, "vgg16")
    assert (loaded.input, loaded.artifact.digest) == (CAFFE, digest)
    file.write_text(f"kind: file\nfile: w.safetensors\nsha256: '{'0' * 64}'\ninput: caffe\n")
    assert f"found {digest}; fix sha256 in {file}, or use the right file" in fault(file, "vgg16")
    file.write_text(f"kind: file\nfile: none.pth\nsha256: '{digest}'\ninput: caffe\n")
    assert "names 'none.pth', but there is no" in fault(file, "vgg16")


def test_a_yaml_may_describe_an_input_of_its_own(tmp_path):
    content = "kind: random\nseed: 0\ninput: {channels: bgr, range: 255, mean: [1.0, 2.0, 3.0], "
    (tmp_path / "w.yaml").write_text(content + "deviation: [4.0, 5.0, 6.0], filter: bicubic, size: 232}\n")
    loaded = load_weights(tmp_path / "w.yaml", "alexnet")
    assert (loaded.input.size, loaded.input.filter, loaded.input.mean) == (232, "bicubic", [1.0, 2.0, 3.0])


def test_weights_that_are_replaced_while_they_are_read_are_refused(tmp_path, monkeypatch):
    path, other = tmp_path / "w.safetensors", tmp_path / "other.safetensors"
    save_file({"a": torch.zeros(2)}, path)
    save_file({"a": torch.ones(2)}, other)

    def replaced_after_hashing(path: Path) -> dict[str, torch.Tensor]:
        other.replace(path)
        return load_file(path)

    monkeypatch.setattr(weights, "load_file", replaced_after_hashing)
    assert fault(path, "vgg16") == f"{path}: changed while it was read; run the command again"


def test_loaded_weights_stay_when_their_file_is_overwritten(tmp_path):
    path = tmp_path / "w.safetensors"
    save_file({"a": torch.zeros(2)}, path)
    loaded = load_weights(path, "vgg16", "torchvision")
    with path.open("r+b") as file:
        file.seek(-8, 2)
        file.write(b"\xff" * 8)
    assert loaded.state["a"].tolist() == [0, 0]


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
def test_weights_are_hashed_again_only_after_a_change(tmp_path, monkeypatch, name):
    path, hashed = tmp_path / name, []

    def write(value: float) -> str:
        state = {"a": torch.full((2,), value)}
        save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
        os.utime(path, (1, 1))
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def counted(path: Path) -> str:
        hashed.append(path)
        return file_digest(path)

    monkeypatch.setattr(stat_cache, "file_digest", counted)
    monkeypatch.setattr(stat_cache, "CLOCK_RESOLUTION", 0)
    monkeypatch.setattr(stat_cache, "_current", stat_cache.VerifiedFiles(tmp_path / "verified"))
    for value, times in ((0, 1), (0, 1), (1, 2)):
        digest = write(value) if times != len(hashed) else hashlib.sha256(path.read_bytes()).hexdigest()
        loaded = load_weights(path, "vgg16", "torchvision")
        assert (loaded.artifact.digest, loaded.state["a"].tolist()) == (digest, [value, value])
        assert len(hashed) == times


def test_the_recorded_input_of_torchvisions_weights_spares_importing_torchvision(tmp_path, monkeypatch):
    published = torchvision.models.VGG16_Weights.IMAGENET1K_V1
    digest = offer(monkeypatch, tmp_path, published, {"features.0.bias": torch.ones(64)})
    named = tmp_path / "checkpoints" / f"vgg16-{digest[:8]}.pth"
    (tmp_path / "checkpoints" / "vgg16-397923af.pth").rename(named)
    file = tmp_path / "w.yaml"
    file.write_text(f"kind: torchvision\nname: IMAGENET1K_V1\nsha256:\n  vgg16: '{digest}'\n")
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    loaded = load_weights(file, "vgg16", CAFFE)
    assert (loaded.artifact.digest, loaded.input) == (digest, CAFFE)
