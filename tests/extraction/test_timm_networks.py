import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from safetensors.torch import save_file
from torch.nn import functional

from fne.core.errors import InputError
from fne.core.files import file_digest
from fne.core.products import Linear
from fne.extraction.cost import plain_flops, time_per_image
from fne.extraction.extractor import LINEAR_VERSION, build_extractor
from fne.extraction.fast_convolutions.crop_sharing import unsupported_reason
from fne.extraction.forward_pass import activations, build_network, crop_activations
from fne.extraction.networks import build_backbone, find_backbone
from fne.extraction.settings import is_timm
from fne.extraction.timm_networks import open_timm
from fne.extraction.weights import Weights, load_weights
from fne.store.artifact import Artifact
from fne.store.rows import Rows
from stages.catalog import main as catalog
from stages.extract import main as extract
from stages.render import main as render
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.refusals import refused
from tests.support.settings import extractor_settings
from tests.support.stages import run

timm = pytest.importorskip("timm")

__all__ = ["run"]

CPU = torch.device("cpu")
RANDOM = ROOT / "weights/random.yaml"
NETWORKS = ["timm/test_resnet", "timm/test_convnext", "timm/test_efficientnet", "timm/test_vit"]


def layers_of(network, crops) -> dict[str, torch.Tensor]:
    parts = crop_activations(network, crops).split([layer.features for layer in network.layers], dim=1)
    return {layer.name: part for layer, part in zip(network.layers, parts, strict=True)}


def random_network(name, activations="post_relu", layers="all"):
    weights = load_weights(RANDOM, name)
    model = build_backbone(name)
    model.load_state_dict(weights.state)
    return model, build_network(name, weights, CPU, activations, layers)


def crops_for(name):
    side = find_backbone(name).side
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))


def extractor_of(name, algorithm="auto", weights=None, **settings):
    weights = weights or load_weights(RANDOM, name)
    return build_extractor(extractor_settings(backbone=name, **settings), weights, algorithm, CPU)


def close(found, expected) -> bool:
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activations", ["post_relu", "pre_relu"])
def test_a_resnet_has_the_layers_and_values_of_the_one_of_torchvision(activations):
    state = load_weights(RANDOM, "resnet18")
    found = load_weights(RANDOM, "timm/resnet18")
    ours = build_network("resnet18", state, CPU, activations)
    theirs = build_network("timm/resnet18", replace(found, state=state.state), CPU, activations)
    crops = crops_for("timm/resnet18")
    expected, values = layers_of(ours, crops), layers_of(theirs, crops)
    of_module = {tap.weighted: tap.layer for tap in ours.taps}
    assert set(of_module) == set(values)
    assert all(close(value, expected[of_module[name]]) for name, value in values.items())


def computed_by_timm(model, crops):
    with torch.inference_mode():
        return model.forward_intermediates(crops, norm=False, intermediates_only=True)


@pytest.mark.parametrize("name", ["timm/test_vit", "timm/test_vit2", "timm/test_vit_relpos"])
def test_blocks_of_a_vision_transformer_are_timms_own_intermediate_features(name):
    model, network = random_network(name)
    features = computed_by_timm(model, crops_for(name))
    values = layers_of(network, crops_for(name))
    classes = model.cls_token is not None
    with torch.inference_mode():
        prefixed = model.forward_intermediates(
            crops_for(name), norm=False, intermediates_only=True, return_prefix_tokens=classes
        )
    tokens = ("blocks.{}:cls", "blocks.{}") if classes else ("blocks.{}",)
    blocks = [each.format(number) for number in range(len(features)) for each in tokens]
    assert list(values) == ["patch_embed.proj", *blocks]
    for number, feature in enumerate(features):
        assert close(values[f"blocks.{number}"], feature.mean(dim=(2, 3)))
        if classes:
            assert close(values[f"blocks.{number}:cls"], prefixed[number][1][:, 0])


@pytest.mark.parametrize("name", ["timm/test_convnext", "timm/test_mambaout"])
def test_the_last_blocks_of_stages_are_timms_own_intermediate_features(name):
    model, network = random_network(name)
    values = layers_of(network, crops_for(name))
    for stage, feature in enumerate(computed_by_timm(model, crops_for(name))[-4:]):
        last = [layer for layer in values if layer.startswith(f"stages.{stage}.blocks.")][-1]
        assert last.count(".") == 3, "a block comes after its convolutions"
        if feature.shape[1] != values[last].shape[1]:
            feature = feature.permute(0, 3, 1, 2)
        assert close(values[last], feature.mean(dim=(2, 3)))


def test_an_activation_function_inside_a_normalization_is_part_of_the_layer():
    name = "timm/test_efficientnet"
    model, after = random_network(name)
    _, before = random_network(name, "pre_relu")
    crops, norm = crops_for(name), model.bn1
    with torch.inference_mode():
        normalized = functional.batch_norm(
            model.conv_stem(crops), norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
        )
        activated = functional.silu(normalized)
    for network, expected in ((before, normalized), (after, activated)):
        assert close(layers_of(network, crops)["conv_stem"], expected.mean(dim=(2, 3)))


@pytest.mark.parametrize("name", NETWORKS)
def test_every_convolution_is_a_layer_named_after_its_module(name):
    model = build_backbone(name)
    convolutions = {each for each, module in model.named_modules() if isinstance(module, torch.nn.Conv2d)}
    layers = [tap.layer for tap in find_backbone(name).taps]
    assert convolutions <= set(layers)
    assert len(layers) == len(set(layers))
    assert {each.removesuffix(":cls") for each in layers} <= {each for each, _ in model.named_modules()}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_pooled_output_is_what_the_network_passes_to_its_classifier(name):
    model, network = random_network(name, layers=["pooled"])
    crops = crops_for(name)
    with torch.inference_mode():
        assert close(crop_activations(network, crops), model(crops))


@pytest.mark.parametrize("name", NETWORKS)
def test_images_are_prepared_as_the_configuration_says_and_computed_plainly(name):
    found, configuration = load_weights(RANDOM, name).input, build_backbone(name).pretrained_cfg
    assert tuple(found.mean) == configuration["mean"]
    assert tuple(found.deviation) == configuration["std"]
    assert found.filter == configuration["interpolation"]
    built = extractor_of(name, crops="ten")
    pixels = built.resize(Image.new("RGB", (300, 200)))
    assert pixels.shape == (3, 168, 168)  # 160 / 0.95
    assert built.kind["algorithm"] == "plain"
    assert built.compute([pixels]).shape == (1, built.features)
    assert plain_flops(built) > 1_000_000
    assert time_per_image(built, 1) > 0
    with refused("algorithm 'sharing' is not possible: ", "; use 'auto'"):
        extractor_of(name, "sharing", crops="ten")


def test_a_center_crop_is_prepared_as_timm_prepares_it():
    name = "timm/test_resnet"
    picture = Image.effect_noise((300, 300), 80).convert("RGB")
    configuration = timm.data.resolve_data_config(model=build_backbone(name))
    expected = timm.data.create_transform(**configuration)(picture)
    built = extractor_of(name, resize="shorter_side")
    seen = []
    built.network.module("conv1.0").register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    built.compute([built.resize(picture)])
    assert torch.allclose(seen[0][0], expected, atol=1e-6)


def test_a_sequential_network_shares_crops():
    with torch.device("meta") as meta:
        weights = Weights(Artifact(RANDOM, "weights", ""), build_backbone("timm/vgg11").state_dict())
    network = build_network("timm/vgg11", weights, meta)
    assert unsupported_reason(network, "ten") is None
    assert [layer.name for layer in network.layers][-2:] == ["pre_logits.fc1", "pre_logits.fc2"]
    assert find_backbone("timm/vgg11").outputs == ()
    _, resnet = random_network("timm/test_resnet")
    assert unsupported_reason(resnet, "ten") == "the layers of the network are not sequential"


def test_shared_crops_of_a_sequential_network_have_the_values_of_plain_ones():
    layers, weights = ["features.0", "features.3", "features.8"], load_weights(RANDOM, "timm/vgg11")
    pixels = torch.randint(256, (3, 256, 256), generator=torch.Generator().manual_seed(2)).byte()
    plain, sharing, winograd = (
        extractor_of("timm/vgg11", each, weights, crops="ten", layers=layers).compute([pixels])
        for each in ("plain", "sharing", "winograd")
    )
    assert plain.shape == (1, 64 + 128 + 256)
    for shared in (sharing, winograd):
        assert np.allclose(shared, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["timm/test_vit", "timm/test_convnext"])
def test_fast_fully_connected_layers_have_the_values_of_those_of_torch(name):
    built, (_, network) = extractor_of(name), random_network(name)
    assert any(isinstance(module, Linear) for module in built.network.modules[""].modules())
    images = torch.randn(1, 3, 160, 160, generator=torch.Generator().manual_seed(3))
    assert torch.allclose(built.rows(images)[0], activations(network, images), rtol=1e-4, atol=1e-5)


def test_the_kind_of_a_row_names_the_network_and_the_version_of_timm():
    kind = extractor_of("timm/test_vit").kind
    assert (kind["backbone"], kind["timm"]) == ("timm/test_vit", timm.__version__)
    assert kind["fast_linear"] == LINEAR_VERSION
    assert kind["input"] == find_backbone("timm/test_vit").input.model_dump()
    assert "timm" not in extractor_of("alexnet").kind


def test_weights_are_read_from_a_file_with_or_without_the_classifier(tmp_path):
    name, rows = "timm/test_vit", []
    state = load_weights(RANDOM, name).state
    for number, more in enumerate([{}, {"head.weight": torch.ones(9, 64), "head.bias": torch.ones(9)}]):
        save_file(state | more, tmp_path / f"{number}.safetensors")
        loaded = load_weights(tmp_path / f"{number}.safetensors", name)
        assert loaded.input == find_backbone(name).input
        rows.append(crop_activations(build_network(name, loaded, CPU), crops_for(name)))
    assert torch.equal(*rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("norm.bias"), ": 'norm.bias' is missing (1 missing names)"),
        (lambda state: state.update({"blocks.99.x": torch.ones(1)}), "which has no 'blocks.99.x'"),
    ],
)
def test_weights_of_another_network_are_refused(tmp_path, change, message):
    name, file = "timm/test_vit", tmp_path / "w.safetensors"
    state = dict(load_weights(RANDOM, name).state)
    change(state)
    save_file(state, file)
    with refused(f"{file}: does not fit {name}", message, "; set extract.backbone and extract.weights to"):
        build_network(name, load_weights(file, name), CPU)


def test_a_network_that_timm_does_not_have_is_refused_with_similar_names():
    with refused(f"timm {timm.__version__} has no network 'test_resnett' (did you mean", "test_resnet "):
        open_timm("timm/test_resnett")


def test_without_timm_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with refused("networks of timm need timm, which is not installed; ", "pip install -e '.[timm]'"):
        build_backbone("timm/test_vit")


def test_a_name_is_one_of_timm_only_with_a_network():
    assert is_timm("timm/resnet18.a1_in1k")
    assert not is_timm("timm/")
    with pytest.raises(ValueError, match="'resnet' is not one of 'alexnet'"):
        extractor_settings(backbone="resnet")


@pytest.mark.parametrize("name", ["timm/test_resnet", "timm/test_vit"])
def test_a_network_goes_through_all_stages_of_the_demo(run, tmp_path, name):
    small = {"images": 40, "side": 64, "val_share": 0.2, "test_share": 0.3}
    extract_settings = {"backbone": name, "crops": "center", "shards": 2}
    change_params(tmp_path, {"render": small, "extract": extract_settings})
    lists = ["data/images.jsonl", "data/captions.jsonl", "data/rejects.csv", "data/catalog.json"]
    for stage, arguments in (
        (render, ["data/demo", "data/demo_judgments.txt"]),
        (catalog, lists),
        (extract, ["data/images.jsonl", "features/activations"]),
    ):
        done = CliRunner().invoke(stage, arguments)
        assert done.exit_code == 0, done.output
    done = run("standardize", "embed", "tokenize", "train", "encode", "evaluate")
    assert done.exit_code == 0, done.output
    rows = Rows.open(Path("features/activations"))
    assert [layer.name for layer in rows.layers] == [tap.layer for tap in find_backbone(name).taps]
    assert rows.artifact.settings["backbone"] == name
    assert 0 < json.loads(Path("metrics/retrieval.json").read_text())["test_full"]["rsum"] <= 600


@pytest.mark.parametrize(
    ("name", "blocks", "tokens", "side", "size", "mean"),
    [
        ("vit_base_patch32_clip_224.openai", 12, 12, 224, 248, 0.48145466),
        ("vit_base_patch16_siglip_224.webli", 12, 0, 224, 248, 0.5),  # it has no class token
        ("vit_small_patch14_reg4_dinov2.lvd142m", 12, 12, 518, 518, 0.485),
        ("vit_small_patch16_dinov3.lvd1689m", 12, 12, 256, 256, 0.485),
    ],
)
def test_image_towers_of_today_have_their_class_tokens_and_their_own_preprocessing(
    name, blocks, tokens, side, size, mean
):
    network = open_timm(f"timm/{name}")
    layers = [tap.layer for tap in network.taps]
    assert sum(each.endswith(":cls") for each in layers) == tokens
    assert sum(each.startswith("blocks.") for each in layers) == blocks + tokens
    assert (network.side, network.input.size, network.input.mean[0]) == (side, size, mean)
    assert (network.input.filter, [each.layer for each in network.outputs]) == ("bicubic", ["pooled"])


def pretrained(tmp_path, monkeypatch, content="kind: timm\n"):
    """A hub that has one file: the weights of a network, with the classifier."""
    state = timm.create_model("test_vit").state_dict()
    folder = tmp_path / ("c" * 40)
    folder.mkdir()
    save_file(state, folder / "model.safetensors")
    asked = []

    def download(repository, file, revision):
        asked.append((repository, file, revision))
        return str(folder / file)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    place = tmp_path / "pretrained.yaml"
    place.write_text(content)
    return place, state, folder, asked


def test_pretrained_weights_of_a_tag_come_with_their_revision_and_digest(tmp_path, monkeypatch):
    place, state, folder, asked = pretrained(tmp_path, monkeypatch)
    found = load_weights(place, "timm/test_vit")
    assert asked == [("timm/test_vit.r160_in1k", "model.safetensors", "main")]
    assert found.artifact.settings["revision"] == "c" * 40
    assert found.artifact.digest == file_digest(folder / "model.safetensors")
    assert found.input == open_timm("timm/test_vit").input
    assert found.state.keys() == {each for each in state if not each.startswith("head.")}
    assert all(torch.equal(value, state[each]) for each, value in found.state.items())
    place.write_text(f"kind: timm\nfile: {folder.name}/model.safetensors\n")
    beside = load_weights(place, "timm/test_vit").artifact
    assert (beside.digest, "revision" in beside.settings, len(asked)) == (found.artifact.digest, False, 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vgg16", "kind: timm\n", "names weights of timm, but extract.backbone is 'vgg16'"),
        ("timm/vit_base_patch32_plus_256", "kind: timm\n", "timm has no weights on the hub for"),
        (
            "timm/test_vit",
            "kind: timm\nsha256: {timm/test_vit: 'deadbeef'}\n",
            "expected SHA-256 deadbeef, found",
        ),
        ("timm/test_vit2", "kind: timm\n", "does not fit timm/test_vit2"),
        (
            "timm/test_vit",
            "kind: timm\nfile: none.safetensors\n",
            "names 'none.safetensors', but there is no",
        ),
    ],
)
def test_pretrained_weights_that_are_not_there_or_others_are_refused(
    tmp_path, monkeypatch, name, content, message
):
    place, *_ = pretrained(tmp_path, monkeypatch, content)
    with pytest.raises(InputError, match=message):
        load_weights(place, name)


def test_without_the_hub_the_error_says_which_file_to_save_where(tmp_path, monkeypatch):
    place, *_ = pretrained(tmp_path, monkeypatch)

    def unreachable(*_, **__):
        raise OSError("no connection")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", unreachable)
    with pytest.raises(InputError, match="no connection") as refused_:
        load_weights(place, "timm/test_vit")
    assert refused_.value.message.endswith(
        f"save it as {tmp_path / 'model.safetensors'}, and add `file: model.safetensors` to {place}"
    )
