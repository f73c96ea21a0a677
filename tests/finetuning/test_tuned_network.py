from pathlib import Path

import pytest
import torch

from fne.core.errors import InputError
from fne.extraction.forward_pass import build_network, concatenate_layers, run_modules
from fne.extraction.networks import build_backbone, find_backbone
from fne.extraction.settings import TORCHVISION
from fne.extraction.weights import Weights
from fne.finetuning.tuned_network import (
    BIASES,
    FIRST,
    GAINS,
    WEIGHTS,
    TunedNetwork,
    layers_read,
    rows_of,
    trained_taps,
)
from fne.store.artifact import Artifact
from tests.support.finetuning import tuned_network


def images(count=7, dtype=torch.float32):
    return torch.rand(count, 3, 64, 64, generator=torch.Generator().manual_seed(0), dtype=dtype)


def gradients(network, pixels):
    rows = network(pixels)
    goal = torch.arange(rows.numel(), dtype=rows.dtype).view_as(rows)
    (rows * goal).sum().backward()
    return [each.grad for each in network.parameters() if each.requires_grad]


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("part", [1, 2, 4])
def test_the_gradient_of_parts_is_that_of_the_whole_batch(first, dtype, within, part):
    plain = tuned_network(first, part=7, dtype=dtype)
    # Without caching: the network itself, with all values kept.
    values = images(dtype=dtype)
    modules = list(plain._network.modules.values())
    for module in modules:
        values = module(values)
    rows = values.mean(dim=(2, 3))
    (rows * torch.arange(rows.numel(), dtype=dtype).view_as(rows)).sum().backward()
    wanted = [each.grad for each in plain.parameters() if each.requires_grad]
    found = gradients(tuned_network(first, part=part, dtype=dtype), images(dtype=dtype))
    assert len(found) == len(wanted) == [10, 6, 2][first]
    for one, other in zip(found, wanted, strict=True):
        assert float((one - other).norm() / other.norm()) < within


def test_rows_of_length_one_are_scaled_inside_of_the_gradient():
    network = tuned_network(unit=True)
    rows = network(images())
    assert torch.allclose(rows.norm(dim=1), torch.ones(7))
    (unscaled,) = [tuned_network(unit=False)(images())]
    assert torch.allclose(rows, unscaled / unscaled.norm(dim=1, keepdim=True))


def test_frozen_layers_have_no_gradient_and_are_in_no_checkpoint():
    network = tuned_network(first=2)
    assert all(each.requires_grad for each in network.parameters())
    assert sorted(network.state_dict()) == ["modules_above.0.bias", "modules_above.0.weight"]
    assert {name.partition(".")[0] for name in network.full_state()} == {"0", "1", "3", "4", "6"}


def test_a_network_in_training_mode_keeps_the_bits_of_its_statistics():
    network = tuned_network()
    before = {name: value.clone() for name, value in network.full_state().items()}
    network.train()
    assert not any(each.training for each in network.modules())
    gradients(network, images())
    optimizer = torch.optim.SGD([each for each in network.parameters() if each.requires_grad], lr=0.1)
    optimizer.step()
    after = network.full_state()
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    statistics = {name for name in before if "running" in name or "tracked" in name}
    assert len(statistics) == 6
    assert changed == set(before) - statistics


def test_announced_memory_is_that_of_a_part_and_not_of_the_batch():
    network = tuned_network()
    few, many = (network.activation_bytes(images(count), 8) for count in (1, 8))
    entering = images(8).nbytes  # all layers are trained, so the images enter the first one
    assert 4 * (few - entering) < many - entering <= 8 * (few - entering)  # some of it are weights
    assert network.activation_bytes(images(1), 16) - few == entering
    # The values of the last layer alone are fewer than those that pass through the layers before it.
    assert tuned_network(first=2).activation_bytes(images(8), 8) < many


def test_each_kind_of_weights_has_its_group():
    kinds = tuned_network().trained_kinds()
    assert {kind: [tuple(each.shape) for each in own] for kind, own in kinds.items()} == {
        WEIGHTS: [(6, 4, 3, 3), (8, 6, 3, 3)],
        BIASES: [(4,), (4,), (6,), (6,), (8,)],
        GAINS: [(4,), (6,)],
        FIRST: [(4, 3, 5, 5)],
    }
    assert tuned_network(first=2).trained_kinds()[FIRST] == []


def test_a_network_without_images_returns_no_rows():
    assert tuned_network()(images(0)).shape == (0, 8)


def test_layers_are_trained_from_the_first_to_the_one_that_the_model_reads():
    names = [tap.layer for tap in trained_taps("vgg16", "conv5_3", "conv5_1")]
    assert names == ["conv5_1", "conv5_2", "conv5_3"]
    assert len(trained_taps("vgg16", "conv5_3", "all")) == 13
    pooled = trained_taps("resnet18", "pool5", "conv5_2_1")
    assert [tap.layer for tap in pooled] == ["conv5_2_1", "conv5_2_2"]


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (
            "fc6",
            "'fc6', which comes after 'conv2', the last layer that the model reads; use all or one of conv1, conv2",
        ),
        ("conv9", "'conv9' is not one of 'all', 'conv1', 'conv2', the layers of alexnet"),
    ],
)
def test_a_layer_that_cannot_be_the_first_is_refused(first, message):
    with pytest.raises(InputError, match=f"params.yaml: finetune.first.* {message}"):
        trained_taps("alexnet", "conv2", first)


@pytest.mark.parametrize("name", ["alexnet", "resnet18", "timm/test_resnet", "timm/test_vit"])
def test_any_network_is_trained_and_built_again_from_its_file(name):
    """Two layers of it, each scaled to length one; the plain network computes the same rows."""
    if name.startswith("timm/"):
        pytest.importorskip("timm")
    torch.manual_seed(0)
    backbone, device = find_backbone(name), torch.device("cpu")
    weights = Weights(Artifact(Path(name), "weights", ""), build_backbone(name).state_dict(), TORCHVISION)
    extraction = {"backbone": name, "layers": "all", "activations": "post_relu"}
    embedding = {"kind": "blocks", "layers": "last:2", "rows": "none"}
    _, kept = layers_read(weights, extraction, embedding)
    network = build_network(name, weights, device, layers=kept)
    scaled = rows_of(embedding, [layer.features for layer in network.layers])
    taps = trained_taps(name, kept[-1], kept[0])
    besides = weights.state if name.startswith("timm/") else {}
    tuned = TunedNetwork(network, taps, scaled, 2, backbone.taps[0].weighted, besides)
    pixels = torch.rand(3, 3, backbone.side, backbone.side)
    rows = tuned(pixels)
    (rows * torch.randn_like(rows)).sum().backward()
    trained = [each for own in tuned.trained_kinds().values() for each in own]
    assert trained
    assert all(each.grad is not None for each in trained)
    state = Weights(weights.artifact, tuned.full_state(), TORCHVISION)
    again = build_network(name, state, device, layers=layers_read(state, extraction, embedding)[1])
    _, values = run_modules(again, pixels, list(again.modules))
    assert torch.allclose(rows, scaled(concatenate_layers(again, values)), atol=1e-5)
