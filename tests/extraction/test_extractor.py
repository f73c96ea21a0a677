import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from fne.core.files import text_digest
from fne.extraction import extractor
from fne.extraction.extractor import ALGORITHMS, build_extractor, choose_algorithm
from fne.extraction.settings import CAFFE, TORCHVISION
from fne.extraction.weights import Weights, load_weights
from fne.store.artifact import Artifact
from tests.support.imports import ROOT
from tests.support.networks import narrow_vgg, relative_difference, smooth_images
from tests.support.refusals import refused
from tests.support.settings import extractor_settings

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(scope="module")
def weights():
    return load_weights(ROOT / "weights/random.yaml", "alexnet")


def vgg16(digest="0" * 64) -> Weights:
    """Weights of the first convolution only."""
    state = {"features.0.weight": torch.zeros(64, 3, 3, 3), "features.0.bias": torch.zeros(64)}
    return Weights(Artifact(ROOT / "weights/random.yaml", "weights", digest), state)


VGG16 = extractor_settings(backbone="vgg16", crops="ten")


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_everything_that_determines_a_row_is_in_the_kind(weights):
    built = build_extractor(extractor_settings(), weights, "auto", CPU)
    digest, threads = weights.artifact.digest, torch.get_num_threads()
    assert built.kind == {
        "backbone": "alexnet", "activations": "post_relu", "resize": "squash", "crops": "center", "layers": "all",
        "precision": "float32", "weights": digest, "algorithm": "plain", "device": "cpu", "decoder": 1,
        "extractor": 1, "views": "mean", "input": TORCHVISION.model_dump(), "threads": threads,
    }  # fmt: skip
    assert built.features == 9344


def test_the_kind_of_todays_settings_keeps_its_bytes_and_has_the_version_of_the_algorithm():
    """Finished rows are found by these bytes: another digest would compute all of them again."""
    digest = "742f8f63b6a8eb982ea97b54200323ea36b100513ce8c21a3c01fc99e33b3cde"  # weights/random.yaml
    ours, sharing = (
        build_extractor(VGG16, vgg16(digest), name, CPU).kind for name in ("winograd", "sharing")
    )
    expected = "17dd52d14aba52a91b120096fa21abb63086dba017644a5c9bb4d2c1292a03d7"
    assert text_digest(json.dumps(sharing, sort_keys=True)) == expected
    assert ours == sharing | {"algorithm": "winograd", "algorithm_version": 3}


def test_another_input_is_part_of_the_kind_and_changes_the_row(weights):
    fed = replace(weights, input=CAFFE)
    ours, theirs = (build_extractor(extractor_settings(), each, "auto", CPU) for each in (weights, fed))
    assert theirs.kind == ours.kind | {"input": CAFFE.model_dump()}
    image = [torch.randint(256, (3, 256, 256), dtype=torch.uint8)]
    assert not np.allclose(ours.compute(image), theirs.compute(image))


def test_weights_that_expect_another_size_are_computed_plainly(weights):
    fed = replace(weights, input=CAFFE.model_copy(update={"size": 232}))
    built = build_extractor(extractor_settings(crops="ten"), fed, "auto", CPU)
    assert built.kind["algorithm"] == "plain"
    assert built.resize(Image.new("RGB", (50, 40))).shape == (3, 232, 232)


@pytest.mark.parametrize("resize", ["squash", "shorter_side"])
def test_an_image_has_the_same_bits_in_any_batch(weights, resize):
    built = build_extractor(extractor_settings(resize=resize, crops="five"), weights, "auto", CPU)
    generator = torch.Generator().manual_seed(0)
    sizes = [(256, 256)] * 3 if resize == "squash" else [(256, 300), (280, 256), (256, 300)]
    images = [torch.randint(256, (3, *size), generator=generator, dtype=torch.uint8) for size in sizes]
    together = built.compute(images)
    assert (together[0] == built.compute(images[:1])[0]).all()
    assert (together[[2, 1]] == built.compute([images[2], images[1]])).all()


def test_half_precision_needs_a_gpu_and_views_cannot_share_their_computation(weights):
    with refused("params.yaml: extract.precision is 'float16', which needs a GPU; use 'float32'"):
        build_extractor(extractor_settings(precision="float16"), weights, "auto", CPU)
    settings = extractor_settings(backbone="vgg16", crops="ten", views="each")
    with refused("algorithm 'sharing' is not possible: with views 'each'", "use 'auto'"):
        build_extractor(settings, vgg16(), "sharing", CPU)


def test_a_remote_extractor_describes_the_rows_without_weights_and_without_a_gpu(weights):
    local = build_extractor(extractor_settings(), weights, "auto", CPU)
    driver, gpu = (build_extractor(extractor_settings(), weights, "auto", each, True) for each in (CPU, GPU))
    assert (driver.kind, driver.layers) == (local.kind, local.layers)
    tensors = [each for module in driver.network.modules.values() for each in module.parameters()]
    assert {each.device.type for each in tensors} == {"meta"}
    with pytest.raises(RuntimeError, match="the workers compute"):
        driver.compute([torch.zeros(3, 256, 256, dtype=torch.uint8)])
    assert (gpu.kind["device"], "threads" in gpu.kind) == ("cuda", False)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("crops", ["ten", "five"])
def test_all_algorithms_give_the_same_rows(name, crops):
    images, network = smooth_images(2), narrow_vgg()
    found, expected = ALGORITHMS[name](network, crops)(images), extractor.plain(network, crops)(images)
    assert found.shape == (2, sum(layer.features for layer in network.layers))
    assert relative_difference(found, expected) < 5e-6


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.usefixtures("threads")
def test_the_bits_of_an_image_do_not_depend_on_its_batch(name):
    images = smooth_images(3)
    rows = ALGORITHMS[name](narrow_vgg(units=64), "ten")
    alone = torch.cat([rows(images[number : number + 1]) for number in range(3)])
    for order in ([1, 0], [2, 0, 1]):
        assert torch.equal(rows(images[order]), alone[order])


@pytest.mark.parametrize("name", ["sharing", "winograd"])
@pytest.mark.usefixtures("threads")
def test_the_bits_of_an_image_do_not_depend_on_the_number_of_threads(name):
    images, network = smooth_images(2), narrow_vgg()
    with_two = ALGORITHMS[name](network, "ten")(images)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert torch.equal(ALGORITHMS[name](network, "ten")(images), with_two)


def test_an_image_that_cannot_be_computed_leaves_the_number_of_threads_as_it_was():
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="expected images of side 256"):
        extractor.sharing(narrow_vgg(), "ten")(torch.zeros(1, 3, 300, 256))
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("asked", "crops", "device", "resize", "chosen"),
    [
        ("auto", "ten", CPU, "squash", "winograd"),
        ("auto", "five", CPU, "squash", "winograd"),
        ("auto", "ten", GPU, "squash", "sharing"),
        ("auto", "center", CPU, "squash", "plain"),
        ("auto", "ten", CPU, "shorter_side", "plain"),
        *((name, "ten", CPU, "squash", name) for name in ALGORITHMS),
    ],
)
def test_the_requested_or_fastest_possible_algorithm_is_chosen(asked, crops, device, resize, chosen):
    assert choose_algorithm(asked, narrow_vgg(), crops, device, resize) == chosen


@pytest.mark.parametrize(
    ("asked", "crops", "device", "resize", "message"),
    [
        ("fast", "ten", CPU, "squash", "one of auto, plain, sharing, winograd"),
        ("sharing", "center", CPU, "squash", "it supports crops 'five' and 'ten', not 'center'; use 'auto'"),
        ("winograd", "ten", GPU, "squash", "it needs a CPU, not 'cuda'; use 'auto'"),
        ("winograd", "ten", CPU, "shorter_side", "by 'shorter_side' are not square; use 'auto'"),
    ],
)
def test_an_algorithm_that_is_not_possible_is_refused(asked, crops, device, resize, message):
    with refused(f"algorithm '{asked}' is not ", message):
        choose_algorithm(asked, narrow_vgg(), crops, device, resize)


def test_without_numba_crops_are_shared_with_one_warning_and_winograd_is_refused(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "numba", None)
    for name in ("vector_code", "winograd_kernels"):
        monkeypatch.delitem(sys.modules, f"fne.extraction.fast_convolutions.{name}", raising=False)
    extractor._warn_once.cache_clear()
    assert [choose_algorithm("auto", narrow_vgg(), "ten", CPU) for _ in range(2)] == ["sharing"] * 2
    (warning,) = capsys.readouterr().err.splitlines()
    assert "'winograd' is not possible here, using 'sharing' instead: numba cannot be imported" in warning
    with refused("algorithm 'winograd' is not possible: numba cannot be imported"):
        choose_algorithm("winograd", narrow_vgg(), "ten", CPU)


def test_crops_are_shared_if_the_kernels_do_not_compile(monkeypatch, capsys):
    def fail(*arguments):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr("fne.extraction.fast_convolutions.winograd.convolve_tiles", fail)
    extractor._warn_once.cache_clear()
    assert choose_algorithm("auto", narrow_vgg(), "ten", CPU) == "sharing"
    assert "numba cannot compile for this machine (RuntimeError)" in capsys.readouterr().err


def test_views_are_the_crops_whose_mean_the_row_would_be(weights):
    image = [torch.randint(256, (3, 256, 256), dtype=torch.uint8)]
    settings = {"crops": "five", "layers": ["conv5", "fc7"]}
    whole, apart = (
        build_extractor(extractor_settings(**settings, views=views), weights, "auto", CPU)
        for views in ("mean", "each")
    )
    sizes = {"conv5": 256, "fc7": 4096}
    expected = [(f"{name}@{view}", sizes[name]) for view in range(1, 6) for name in sizes]
    assert [(each.name, each.features) for each in apart.layers] == expected
    views, mean = apart.compute(image).reshape(1, 5, -1), whole.compute(image)
    assert (mean.dtype, mean.shape) == (np.float32, (1, 4352))
    assert not np.allclose(views[:, 0], views[:, 1])
    assert np.allclose(views.mean(axis=1), mean, rtol=1e-5, atol=1e-6)
    assert apart.kind == whole.kind | {"views": "each"}
    assert (whole.kind["layers"], apart.kind["algorithm"]) == (["conv5", "fc7"], "plain")


@pytest.mark.parametrize(
    ("layers", "message"),
    [("conv", "got 'conv'"), ([], r"got \[\]"), (["fc7", "fc7"], "a layer is named twice")],
)
def test_layers_are_all_or_a_list_of_names(layers, message):
    with pytest.raises(ValidationError, match=message):
        extractor_settings(layers=layers)
