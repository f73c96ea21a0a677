"""The extraction on a GPU, proven without one: torch's fake tensors have a device and a shape, but no values."""

from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.cuda.amp import common as autocast_mode

from fne.extraction import extractor as extraction
from fne.extraction.extractor import ALGORITHMS, PRECISIONS, build_extractor
from fne.extraction.fast_convolutions import crop_sharing
from fne.extraction.networks import BACKBONES, build_backbone
from fne.extraction.preprocess import CROPS
from fne.extraction.settings import ExtractorSettings
from fne.extraction.weights import Weights
from fne.store.artifact import Artifact
from tests.support.refusals import refused

CUDA, GPU = torch.device("cuda"), torch.device("cuda", 0)
SETTINGS = ExtractorSettings(
    backbone="vgg16", activations="post_relu", resize="squash", crops="ten", views="mean", layers="all",
    precision="float32",
)  # fmt: skip
# Those that a GPU can run; the third needs a CPU.
ON_GPU = [name for name in ALGORITHMS if name != "winograd"]


@contextmanager
def fake_extractor(algorithm="auto", bfloat16=True, **changes):
    """Build an extractor on the GPU from weights without values; yield it and a function that runs it."""
    settings = SETTINGS.model_copy(update=changes)
    with torch.device("meta"):
        shapes = build_backbone(settings.backbone).state_dict()
    with (
        FakeTensorMode(),
        patch.object(autocast_mode, "amp_definitely_not_available", lambda: False),
        patch.object(torch.cuda, "is_bf16_supported", lambda: bfloat16),
    ):
        state = {name: torch.empty(value.shape, dtype=value.dtype) for name, value in shapes.items()}
        artifact = Artifact(Path("weights"), "0" * 64, "weights")
        built = build_extractor(settings, Weights(artifact, state), algorithm, CUDA)

        def rows(images=2):
            pixels = torch.empty(3, 256, 256, dtype=torch.uint8, device=CUDA)
            return built.start([pixels] * images)

        yield built, rows


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("algorithm", ON_GPU)
def test_every_algorithm_extracts_on_a_gpu(algorithm, precision):
    with fake_extractor(algorithm, precision=precision) as (built, rows):
        found = rows()
        assert (found.device, found.dtype, found.shape) == (GPU, torch.float32, (2, 12416))
        assert built.kind["algorithm"] == algorithm
        weights = {each.device for module in built.network.modules.values() for each in module.parameters()}
        assert weights == {GPU}


@pytest.mark.parametrize("crops", CROPS)
@pytest.mark.parametrize("views", ["mean", "each"])
def test_all_crops_and_views_extract_on_a_gpu(crops, views):
    with fake_extractor(crops=crops, views=views) as (built, rows):
        assert rows().shape == (2, built.features)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_backbone_extracts_on_a_gpu(backbone):
    with fake_extractor(backbone=backbone, crops="center", activations="pre_relu") as (built, rows):
        assert (rows().device, rows().shape) == (GPU, (2, built.features))


def test_half_precision_computes_convolutions_in_half_precision():
    seen = set()

    def convolve(step, pieces):
        results = crop_sharing.convolve_directly(step, pieces)
        seen.update(each.dtype for each in results)
        return results

    with (
        patch.object(extraction, "convolve_directly", convolve),
        fake_extractor("sharing", precision="float16") as (_, rows),
    ):
        assert rows(1).dtype == torch.float32
    assert seen == {torch.float16}


def test_on_a_gpu_crops_are_shared_and_winograd_is_refused():
    with fake_extractor() as (built, _):
        assert built.kind["algorithm"] == "sharing"
    with refused("it needs a CPU, not 'cuda'"), fake_extractor("winograd"):
        pass


def test_a_gpu_without_bfloat16_is_refused_before_anything_is_computed():
    said = "extract.precision is 'bfloat16', which this GPU does not support; use 'float16' or 'float32'"
    with refused(said), fake_extractor(precision="bfloat16", bfloat16=False):
        pass


def test_an_extraction_with_a_tensor_of_the_cpu_is_found(monkeypatch):
    """Broken on purpose: the weights of the sums over crops stay on the CPU."""
    make = torch.tensor

    def on_cpu(*arguments, device=None, **choices):
        return make(*arguments, **choices)

    with fake_extractor("sharing") as (_, rows):
        rows(1)
        monkeypatch.setattr(torch, "tensor", on_cpu)
        with pytest.raises(RuntimeError, match="two devices, cuda:0 and cpu"):
            rows(1)


def test_a_read_within_the_extraction_is_found(monkeypatch):
    """Broken on purpose: fake tensors have no values that the host could read."""
    sums = crop_sharing.crop_sums

    def checked(shared):
        found = sums(shared)
        assert found.sum().item() >= 0
        return found

    monkeypatch.setattr(crop_sharing, "crop_sums", checked)
    with fake_extractor("sharing") as (_, rows), pytest.raises(DataDependentOutputException):
        rows(1)
