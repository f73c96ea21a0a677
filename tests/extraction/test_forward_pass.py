import pytest
import torch
import torchvision
from torchvision.models.feature_extraction import create_feature_extractor

from fne.extraction.forward_pass import ACTIVATIONS, activations, build_network, crop_activations
from fne.extraction.networks import BACKBONES, build_backbone
from fne.extraction.weights import Weights
from fne.store.artifact import Artifact
from tests.support.refusals import refused

CPU = torch.device("cpu")


def empty_state(backbone: str) -> dict[str, torch.Tensor]:
    with torch.device("meta"):
        state = build_backbone(backbone).state_dict()
    return {name: torch.empty(value.shape) for name, value in state.items()}


@pytest.fixture
def crops() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(2, 3, 224, 224)


@pytest.fixture(scope="module")
def alexnet() -> torch.nn.Module:
    torch.manual_seed(0)
    return torchvision.models.alexnet(weights=None).eval()


@pytest.fixture(scope="module")
def resnet18() -> torch.nn.Module:
    """A network whose statistics have an effect, and whose ReLUs do not overwrite the maps."""
    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights=None).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
        if isinstance(module, torch.nn.ReLU):
            module.inplace = False
    return model


def weights(tmp_path, state) -> Weights:
    return Weights(Artifact(tmp_path / "w", "weights", "0" * 64), state)


def test_activations_are_those_of_torchvisions_own_extractor(tmp_path, alexnet, crops):
    nodes = {f"features.{index}": f"conv{number}" for number, index in enumerate([1, 4, 7, 9, 11], start=1)}
    extractor = create_feature_extractor(alexnet, nodes | {"classifier.2": "fc6", "classifier.5": "fc7"})
    with torch.no_grad():
        maps = extractor(crops)
    expected = torch.cat(
        [each.flatten(2).mean(2) if each.ndim == 4 else each for each in maps.values()], dim=1
    )
    network = build_network("alexnet", weights(tmp_path, alexnet.state_dict()), CPU)
    assert [layer.name for layer in network.layers] == list(maps)
    assert torch.allclose(activations(network, crops), expected.mean(dim=0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("backbone", "features"),
    [("vgg16", 12416), ("vgg19", 13696), ("alexnet", 9344), ("resnet50", 26560), ("resnet152", 75712)],
)
def test_a_network_has_as_many_features_as_filters_and_units(tmp_path, backbone, features):
    network = build_network(backbone, weights(tmp_path, empty_state(backbone)), CPU)
    assert sum(layer.features for layer in network.layers) == features


@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_convolution_and_hidden_layer_is_kept_in_the_order_of_the_network(backbone):
    with torch.device("meta"):
        modules = dict(build_backbone(backbone).named_modules())
    kinds = torch.nn.Conv2d | torch.nn.Linear
    weighted = [name for name, module in modules.items() if isinstance(module, kinds)]
    assert sorted(tap.weighted for tap in BACKBONES[backbone].taps) == sorted(weighted[:-1])
    assert len({tap.layer for tap in BACKBONES[backbone].taps}) == len(weighted) - 1


@pytest.mark.parametrize("backbone", ["vgg16", "vgg19"])
def test_a_network_that_is_built_without_torchvision_has_torchvisions_modules(backbone):
    with torch.device("meta"):
        model, theirs = build_backbone(backbone), torchvision.models.get_model(backbone, weights=None).eval()
    for part in ("features", "avgpool", "classifier"):
        assert repr(model.get_submodule(part)) == repr(theirs.get_submodule(part))
    assert list(model.state_dict()) == list(theirs.state_dict())


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_of_a_network_with_normalization_are_those_of_torchvisions_own_extractor(
    tmp_path, resnet18, crops, activation
):
    after = {"bn1": True, "layer1.0.bn1": True, "layer2.0.bn2": False, "layer2.0.downsample.1": False}
    with torch.no_grad():
        maps = create_feature_extractor(resnet18, list(after))(crops)
    network = build_network("resnet18", weights(tmp_path, resnet18.state_dict()), CPU, activation)
    parts = activations(network, crops).split([layer.features for layer in network.layers])
    found = {tap.activated: part for tap, part in zip(network.taps, parts, strict=True)}
    for name, rectified in after.items():
        values = maps[name].relu() if rectified and activation == "post_relu" else maps[name]
        expected = values.mean(dim=(2, 3)).mean(dim=0)
        assert torch.allclose(found[name], expected, rtol=1e-4, atol=1e-5), name


def test_values_before_the_relu_are_those_of_the_convolution(tmp_path, alexnet, crops):
    network = build_network("alexnet", weights(tmp_path, alexnet.state_dict()), CPU, "pre_relu")
    with torch.no_grad():
        expected = alexnet.features[0](crops).mean(dim=(2, 3)).mean(dim=0)
    assert torch.allclose(activations(network, crops)[:64], expected, atol=1e-5)
    assert (expected < 0).any()


def test_weights_of_convolutions_only_give_a_network_of_those(tmp_path):
    state = {name: value for name, value in empty_state("vgg16").items() if name.startswith("features")}
    network = build_network("vgg16", weights(tmp_path, state), CPU)
    assert [network.layers[0].name, network.layers[-1].name] == ["conv1_1", "conv5_3"]
    assert sum(layer.features for layer in network.layers) == 4224
    assert list(network.modules)[-1] == "features.29"


def test_weights_with_a_missing_tensor_are_refused(tmp_path):
    state = empty_state("alexnet")
    del state["features.3.bias"]
    for given, layer, name in ((state, "conv2", "features.3.bias"), ({}, "conv1", "features.0.weight")):
        said = f"{tmp_path}/w: layer {layer} is incomplete: '{name}' is missing; "
        with refused(said, "use another weights file"):
            build_network("alexnet", weights(tmp_path, given), CPU)


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        (["layer1.0.conv1.weight", "fc.bias"], "which has no 'fc.bias' (2 unknown names); "),
        (["features.0.weight"], "'features.0.weight' has shape (64, 3, 5, 5), expected (64, 3, 3, 3); "),
    ],
)
def test_weights_of_another_network_or_shape_are_refused(tmp_path, state, fault):
    given = weights(tmp_path, dict.fromkeys(state, torch.empty(64, 3, 5, 5)))
    with refused(f"{tmp_path}/w: does not fit vgg16", fault, "set extract.backbone and extract.weights"):
        build_network("vgg16", given, CPU)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.complex64])
def test_weights_that_are_no_floating_point_numbers_are_refused(tmp_path, dtype):
    state = empty_state("alexnet")
    state["features.0.weight"] = state["features.0.weight"].to(dtype)
    with refused(f"{tmp_path}/w: 'features.0.weight' has values of type {str(dtype)[6:]}", "use another"):
        build_network("alexnet", weights(tmp_path, state), CPU)


@pytest.mark.parametrize("activation", ACTIVATIONS)  # it ends with the ReLU of its block in both cases
def test_the_pooled_output_of_a_resnet_is_what_its_classifier_reads(tmp_path, resnet18, crops, activation):
    with torch.no_grad():
        expected = create_feature_extractor(resnet18, ["flatten"])(crops)["flatten"]
    network = build_network("resnet18", weights(tmp_path, resnet18.state_dict()), CPU, activation, ["pool5"])
    assert [(layer.name, layer.features) for layer in network.layers] == [("pool5", 512)]
    assert torch.allclose(crop_activations(network, crops), expected, rtol=1e-4, atol=1e-5)


def test_named_layers_are_those_of_the_whole_network_in_its_order(tmp_path, alexnet, crops):
    given = weights(tmp_path, alexnet.state_dict())
    whole, some = (
        build_network("alexnet", given, CPU, layers=layers) for layers in ("all", ["fc6", "conv2"])
    )
    assert [layer.name for layer in some.layers] == ["conv2", "fc6"]
    assert len(some.modules) < len(whole.modules)
    parts = activations(whole, crops).split([layer.features for layer in whole.layers])
    row = {layer.name: part for layer, part in zip(whole.layers, parts, strict=True)}
    assert torch.equal(activations(some, crops), torch.cat([row["conv2"], row["fc6"]]))


def test_a_named_layer_that_the_backbone_or_the_weights_lack_is_refused(tmp_path):
    state = {name: value for name, value in empty_state("alexnet").items() if name.startswith("features")}
    for layers, parts in (
        (["pool5"], ("params.yaml: extract.layers: alexnet has no layer 'pool5'", "conv4, conv5, fc6, fc7")),
        (["conv5", "fc7"], (f"{tmp_path}/w: does not cover layer 'fc7'", "it covers conv1, conv2")),
    ):
        with refused(*parts):
            build_network("alexnet", weights(tmp_path, state), CPU, layers=layers)
