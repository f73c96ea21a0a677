import pytest
import torch
import torchvision
from torchvision.models.feature_extraction import create_feature_extractor

from fne.core.errors import InputError
from fne.extraction.forward_pass import ACTIVATIONS, activations, build_network, crop_activations
from fne.extraction.networks import BACKBONES, build_backbone
from fne.extraction.weights import Weights
from fne.store.artifact import Artifact

CPU = torch.device("cpu")


def meta_state(backbone: str) -> dict[str, torch.Tensor]:
    with torch.device("meta"):
        return build_backbone(backbone).state_dict()


def weights(tmp_path, state) -> Weights:
    return Weights(Artifact(tmp_path / "w", "weights", "0" * 64), state)


def fault(tmp_path, backbone, state) -> str:
    with pytest.raises(InputError) as caught:
        build_network(backbone, weights(tmp_path, state), CPU)
    return caught.value.message


def test_activations_are_those_of_torchvisions_own_extractor(tmp_path):
    torch.manual_seed(0)
    model = torchvision.models.alexnet(weights=None).eval()
    crops = torch.randn(3, 3, 224, 224)
    nodes = {f"features.{index}": f"conv{number}" for number, index in enumerate([1, 4, 7, 9, 11], start=1)}
    extractor = create_feature_extractor(model, nodes | {"classifier.2": "fc6", "classifier.5": "fc7"})
    with torch.no_grad():
        maps = extractor(crops)
    expected = torch.cat(
        [each.flatten(2).mean(2) if each.ndim == 4 else each for each in maps.values()], dim=1
    )
    network = build_network("alexnet", weights(tmp_path, model.state_dict()), CPU)
    assert [layer.name for layer in network.layers] == list(maps)
    assert torch.allclose(activations(network, crops), expected.mean(dim=0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("backbone", "features"), [("vgg16", 12416), ("vgg19", 13696), ("alexnet", 9344), ("resnet50", 26560)]
)
def test_a_network_has_as_many_features_as_filters_and_units(tmp_path, backbone, features):
    state = meta_state(backbone)
    network = build_network(
        backbone, weights(tmp_path, {name: torch.empty(v.shape) for name, v in state.items()}), CPU
    )
    assert sum(layer.features for layer in network.layers) == features


@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_convolution_and_hidden_layer_is_kept_in_the_order_of_the_network(backbone):
    with torch.device("meta"):
        model = build_backbone(backbone)
    weighted = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Conv2d | torch.nn.Linear)
    ]
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
    tmp_path, activation
):
    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights=None).eval()
    for module in model.modules():  # statistics that have an effect
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
    crops = torch.randn(2, 3, 224, 224)
    after = {"bn1": True, "layer1.0.bn1": True, "layer2.0.bn2": False, "layer2.0.downsample.1": False}
    with torch.no_grad():
        # torchvision's ReLUs work in place and would overwrite the maps.
        for module in model.modules():
            if isinstance(module, torch.nn.ReLU):
                module.inplace = False
        maps = create_feature_extractor(model, list(after))(crops)
    network = build_network("resnet18", weights(tmp_path, model.state_dict()), CPU, activation)
    row = activations(network, crops)
    names = [tap.activated for tap in network.taps]
    starts = [0, *torch.tensor([layer.features for layer in network.layers]).cumsum(0).tolist()]
    for name, rectified in after.items():
        place = names.index(name)
        values = maps[name].relu() if rectified and activation == "post_relu" else maps[name]
        expected = values.mean(dim=(2, 3)).mean(dim=0)
        assert torch.allclose(row[starts[place] : starts[place + 1]], expected, rtol=1e-4, atol=1e-5), name


def test_values_before_the_relu_are_those_of_the_convolution(tmp_path):
    torch.manual_seed(0)
    model = torchvision.models.alexnet(weights=None).eval()
    crops = torch.randn(2, 3, 224, 224)
    network = build_network("alexnet", weights(tmp_path, model.state_dict()), CPU, "pre_relu")
    with torch.no_grad():
        expected = model.features[0](crops).mean(dim=(2, 3)).mean(dim=0)
    assert torch.allclose(activations(network, crops)[:64], expected, atol=1e-5)
    assert (expected < 0).any()


def test_weights_of_convolutions_only_give_a_network_of_those(tmp_path):
    state = {
        name: torch.zeros(v.shape) for name, v in meta_state("vgg16").items() if name.startswith("features")
    }
    network = build_network("vgg16", weights(tmp_path, state), CPU)
    assert [network.layers[0].name, network.layers[-1].name] == ["conv1_1", "conv5_3"]
    assert sum(layer.features for layer in network.layers) == 4224
    assert list(network.modules)[-1] == "features.29"


def test_weights_with_a_missing_tensor_are_refused(tmp_path):
    state = {name: torch.empty(v.shape) for name, v in meta_state("alexnet").items()}
    del state["features.3.bias"]
    assert (
        fault(tmp_path, "alexnet", state)
        == f"{tmp_path}/w: layer conv2 is incomplete: 'features.3.bias' is missing; use another weights file"
    )


def test_empty_weights_are_refused(tmp_path):
    assert (
        fault(tmp_path, "alexnet", {})
        == f"{tmp_path}/w: layer conv1 is incomplete: 'features.0.weight' is missing; use another weights file"
    )


def test_weights_of_another_network_are_refused(tmp_path):
    state = {"layer1.0.conv1.weight": torch.empty(1), "fc.bias": torch.empty(1)}
    assert fault(tmp_path, "vgg16", state) == (
        f"{tmp_path}/w: does not fit vgg16, which has no 'fc.bias' (2 unknown names); "
        "set extract.backbone and extract.weights to the same network"
    )


def test_weights_of_another_shape_are_refused(tmp_path):
    assert fault(tmp_path, "vgg16", {"features.0.weight": torch.empty(64, 3, 5, 5)}) == (
        f"{tmp_path}/w: does not fit vgg16: 'features.0.weight' has shape (64, 3, 5, 5), "
        "expected (64, 3, 3, 3); set extract.backbone and extract.weights to the same network"
    )


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.complex64])
def test_weights_that_are_no_floating_point_numbers_are_refused(tmp_path, dtype):
    state = {name: torch.empty(v.shape) for name, v in meta_state("alexnet").items()}
    state["features.0.weight"] = state["features.0.weight"].to(dtype)
    assert fault(tmp_path, "alexnet", state) == (
        f"{tmp_path}/w: 'features.0.weight' has values of type {str(dtype)[6:]}, expected floating-point "
        "numbers; quantized weights are not supported, use another weights file"
    )


def test_the_pooled_output_of_a_resnet_is_what_its_classifier_reads(tmp_path):
    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights=None).eval()
    crops, seen = torch.randn(2, 3, 224, 224), []
    model.fc.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    with torch.no_grad():
        model(crops)
    for activation in ACTIVATIONS:  # it ends with the ReLU of its block in both cases
        network = build_network("resnet18", weights(tmp_path, model.state_dict()), CPU, activation, ["pool5"])
        assert [(layer.name, layer.features) for layer in network.layers] == [("pool5", 512)]
        assert torch.allclose(crop_activations(network, crops), seen[0], rtol=1e-4, atol=1e-5)


def test_named_layers_are_those_of_the_whole_network_in_its_order(tmp_path):
    torch.manual_seed(0)
    given = weights(tmp_path, torchvision.models.alexnet(weights=None).state_dict())
    crops = torch.randn(2, 3, 224, 224)
    whole, some = (
        build_network("alexnet", given, CPU, layers=layers) for layers in ("all", ["fc6", "conv2"])
    )
    assert [layer.name for layer in some.layers] == ["conv2", "fc6"]
    assert len(some.modules) < len(whole.modules)
    starts = {}
    for layer in whole.layers:
        starts[layer.name] = (sum(features for _, features in starts.values()), layer.features)
    row = activations(whole, crops)
    expected = torch.cat([row[start : start + count] for start, count in (starts["conv2"], starts["fc6"])])
    assert torch.equal(activations(some, crops), expected)


def test_a_named_layer_that_the_backbone_or_the_weights_lack_is_refused(tmp_path):
    state = torchvision.models.alexnet(weights=None).state_dict()
    given = weights(tmp_path, {name: value for name, value in state.items() if name.startswith("features")})
    with pytest.raises(InputError) as caught:
        build_network("alexnet", given, CPU, layers=["pool5"])
    assert caught.value.message == (
        "params.yaml: extract.layers: alexnet has no layer 'pool5'; it has conv1, conv2, conv3, conv4, conv5, "
        "fc6, fc7"
    )
    with pytest.raises(InputError) as caught:
        build_network("alexnet", given, CPU, layers=["conv5", "fc7"])
    assert caught.value.message == (
        f"{given.artifact.path}: does not cover layer 'fc7' of extract.layers; it covers conv1, conv2, conv3, "
        "conv4, conv5"
    )
