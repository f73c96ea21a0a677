import json
import re
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
from fne.extraction.cost import announcement, plain_flops, time_per_image
from fne.extraction.extractor import build_extractor
from fne.extraction.fast_convolutions.crop_sharing import unsupported_reason
from fne.extraction.forward_pass import build_network, crop_activations
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


def crops_for(name, count=2):
    side = find_backbone(name).side
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))


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
    for name, value in values.items():
        assert torch.allclose(value, expected[of_module[name]], rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize("name", ["timm/test_vit", "timm/test_vit2", "timm/test_vit_relpos"])
def test_blocks_of_a_vision_transformer_are_timms_own_intermediate_features(name):
    model, network = random_network(name)
    crops = crops_for(name)
    with torch.inference_mode():
        features = model.forward_intermediates(crops, norm=False, intermediates_only=True)
    values = layers_of(network, crops)
    assert list(values) == ["patch_embed.proj", *(f"blocks.{number}" for number in range(len(features)))]
    for number, feature in enumerate(features):
        assert torch.allclose(values[f"blocks.{number}"], feature.mean(dim=(2, 3)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["timm/test_convnext", "timm/test_mambaout"])
def test_the_last_blocks_of_stages_are_timms_own_intermediate_features(name):
    model, network = random_network(name)
    crops = crops_for(name)
    with torch.inference_mode():
        features = model.forward_intermediates(crops, norm=False, intermediates_only=True)
    values = layers_of(network, crops)
    for stage, feature in enumerate(features[-4:]):
        last = [layer for layer in values if layer.startswith(f"stages.{stage}.blocks.")][-1]
        assert last.count(".") == 3, "a block comes after its convolutions"
        if feature.shape[1] != values[last].shape[1]:
            feature = feature.permute(0, 3, 1, 2)
        assert torch.allclose(values[last], feature.mean(dim=(2, 3)), rtol=1e-4, atol=1e-5)


def test_an_activation_function_inside_a_normalization_is_part_of_the_layer():
    name = "timm/test_efficientnet"
    model, after = random_network(name)
    _, before = random_network(name, "pre_relu")
    crops = crops_for(name)
    norm = model.bn1
    with torch.inference_mode():
        normalized = functional.batch_norm(
            model.conv_stem(crops), norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
        )
        activated = functional.silu(normalized)
    for network, expected in ((before, normalized), (after, activated)):
        assert torch.allclose(
            layers_of(network, crops)["conv_stem"], expected.mean(dim=(2, 3)), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("name", NETWORKS)
def test_every_convolution_is_a_layer_named_after_its_module(name):
    model = build_backbone(name)
    convolutions = {each for each, module in model.named_modules() if isinstance(module, torch.nn.Conv2d)}
    layers = [tap.layer for tap in find_backbone(name).taps]
    assert convolutions <= set(layers)
    assert len(layers) == len(set(layers))
    assert set(layers) <= {each for each, _ in model.named_modules()}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_pooled_output_is_what_the_network_passes_to_its_classifier(name):
    model, network = random_network(name, layers=["pooled"])
    crops = crops_for(name)
    with torch.inference_mode():
        assert torch.allclose(crop_activations(network, crops), model(crops), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NETWORKS)
def test_images_are_prepared_as_the_configuration_says(name):
    found, configuration = load_weights(RANDOM, name).input, build_backbone(name).pretrained_cfg
    assert tuple(found.mean) == configuration["mean"]
    assert tuple(found.deviation) == configuration["std"]
    assert found.filter == configuration["interpolation"]
    built = build_extractor(
        extractor_settings(backbone=name, crops="ten"), load_weights(RANDOM, name), "auto", CPU
    )
    pixels = built.resize(Image.new("RGB", (300, 200)))
    assert pixels.shape == (3, 168, 168)  # 160 / 0.95
    assert built.kind["algorithm"] == "plain"
    assert built.compute([pixels]).shape == (1, built.features)


def test_a_center_crop_is_prepared_as_timm_prepares_it():
    name = "timm/test_resnet"
    picture = Image.effect_noise((300, 300), 80).convert("RGB")
    configuration = timm.data.resolve_data_config(model=build_backbone(name))
    expected = timm.data.create_transform(**configuration)(picture)
    settings = extractor_settings(backbone=name, resize="shorter_side")
    built = build_extractor(settings, load_weights(RANDOM, name), "auto", CPU)
    seen = []
    built.network.module("conv1.0").register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    built.compute([built.resize(picture)])
    assert torch.allclose(seen[0][0], expected, atol=1e-6)


def test_a_sequential_network_shares_crops():
    meta = torch.device("meta")
    with meta:
        state = build_backbone("timm/vgg11").state_dict()
    weights = Weights(Artifact(RANDOM, "weights", ""), state)
    network = build_network("timm/vgg11", weights, meta)
    assert unsupported_reason(network, "ten") is None
    assert [layer.name for layer in network.layers][-2:] == ["pre_logits.fc1", "pre_logits.fc2"]
    assert find_backbone("timm/vgg11").outputs == ()
    resnet = build_network("timm/test_resnet", load_weights(RANDOM, "timm/test_resnet"), CPU)
    assert unsupported_reason(resnet, "ten") == "the layers of the network are not sequential"


def test_shared_crops_of_a_sequential_network_have_the_values_of_plain_ones():
    name = "timm/vgg11"
    layers = ["features.0", "features.3", "features.8", "features.18"]
    settings, weights = (
        extractor_settings(backbone=name, crops="ten", layers=layers),
        load_weights(RANDOM, name),
    )
    pixels = torch.randint(
        0, 256, (3, 256, 256), dtype=torch.uint8, generator=torch.Generator().manual_seed(2)
    )
    plain, sharing, winograd = (
        build_extractor(settings, weights, each, CPU).compute([pixels])
        for each in ("plain", "sharing", "winograd")
    )
    assert plain.shape == (1, 64 + 128 + 256 + 512)
    for shared in (sharing, winograd):
        assert np.allclose(shared, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_where_crops_cannot_be_shared_they_are_computed_plainly(name):
    weights = load_weights(RANDOM, name)
    settings = extractor_settings(backbone=name, crops="ten")
    assert build_extractor(settings, weights, "auto", CPU).kind["algorithm"] == "plain"
    with pytest.raises(InputError, match=r"algorithm 'sharing' is not possible: .*; use 'auto'"):
        build_extractor(settings, weights, "sharing", CPU)


def test_the_kind_of_a_row_names_the_network_and_the_version_of_timm():
    name = "timm/test_vit"
    weights = load_weights(RANDOM, name)
    kind = build_extractor(extractor_settings(backbone=name), weights, "auto", CPU).kind
    assert (kind["backbone"], kind["timm"]) == (name, timm.__version__)
    assert kind["input"] == weights.input.model_dump()
    torchvision = build_extractor(extractor_settings(), load_weights(RANDOM, "alexnet"), "auto", CPU).kind
    assert "timm" not in torchvision


def test_weights_are_read_from_a_file_with_or_without_the_classifier(tmp_path):
    name = "timm/test_vit"
    state = load_weights(RANDOM, name).state
    crops = crops_for(name)
    rows = []
    for number, more in enumerate([{}, {"head.weight": torch.ones(9, 64), "head.bias": torch.ones(9)}]):
        file = tmp_path / f"{number}.safetensors"
        save_file(state | more, file)
        loaded = load_weights(file, name)
        assert loaded.input == find_backbone(name).input
        rows.append(crop_activations(build_network(name, loaded, CPU), crops))
    assert torch.equal(*rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda state: state.pop("norm.bias"),
            "does not fit timm/test_vit: 'norm.bias' is missing (1 missing names)",
        ),
        (
            lambda state: state.update({"blocks.99.x": torch.ones(1)}),
            "does not fit timm/test_vit, which has no 'blocks.99.x' (1 unknown names)",
        ),
    ],
)
def test_weights_of_another_network_are_refused(tmp_path, change, message):
    state = dict(load_weights(RANDOM, "timm/test_vit").state)
    change(state)
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(InputError) as caught:
        build_network("timm/test_vit", load_weights(tmp_path / "w.safetensors", "timm/test_vit"), CPU)
    assert caught.value.message == (
        f"{tmp_path}/w.safetensors: {message}; set extract.backbone and extract.weights to the same network"
    )


def test_a_network_that_timm_does_not_have_is_refused_with_similar_names():
    with pytest.raises(InputError) as caught:
        open_timm("timm/test_resnett")
    assert caught.value.message.startswith(
        f"timm {timm.__version__} has no network 'test_resnett' (did you mean "
    )
    assert "test_resnet " in caught.value.message


def test_without_timm_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError) as caught:
        build_backbone("timm/test_vit")
    assert caught.value.message == (
        "networks of timm need timm, which is not installed; install it with pip install -e '.[timm]'"
    )


def test_a_name_is_one_of_timm_only_with_a_network():
    assert is_timm("timm/resnet18.a1_in1k")
    assert not is_timm("timm/")
    with pytest.raises(ValueError, match="'resnet' is not one of 'alexnet'"):
        extractor_settings(backbone="resnet")


@pytest.mark.parametrize("name", NETWORKS)
def test_the_cost_is_announced(name):
    built = build_extractor(extractor_settings(backbone=name), load_weights(RANDOM, name), "auto", CPU)
    assert plain_flops(built) > 1_000_000
    seconds = time_per_image(built, 1)
    assert re.match(
        r"1000 images: 0 done, 1000 to do, about [\d.]+ (s|min|h) with algorithm 'plain' on cpu; "
        r"memory: [\d.]+ GB; disk: \d+ MB each for the scratch folder",
        announcement(built, 1000, 0, seconds),
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_goes_through_all_stages_of_the_demo(run, tmp_path, name):
    change_params(
        tmp_path,
        {
            "render": {"images": 40, "side": 64, "val_share": 0.2, "test_share": 0.3},
            "extract": {"backbone": name, "crops": "ten", "shards": 2},
        },
    )
    lists = ["data/images.jsonl", "data/captions.jsonl", "data/rejects.csv", "data/catalog.json"]
    for stage, arguments in (
        (render, ["data/demo"]),
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
