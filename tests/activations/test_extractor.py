import pytest
import torch

from fne.activations.extractor import build_extractor
from fne.activations.settings import Choices
from fne.activations.weights import load_weights
from fne.core.errors import InputError
from tests.activations.samples import red_extractor
from tests.imports import ROOT

CPU = torch.device("cpu")


def choices(**changes) -> Choices:
    usual = {
        "backbone": "alexnet",
        "activations": "post_relu",
        "resize": "squash",
        "crops": "center",
        "precision": "float32",
    }
    return Choices(**(usual | changes))


@pytest.fixture(scope="module")
def weights():
    return load_weights(ROOT / "weights/random.yaml", "alexnet")


def test_everything_that_decides_a_row_is_in_the_kind(weights):
    extractor = build_extractor(choices(), weights, "auto", CPU)
    assert extractor.kind == {
        "backbone": "alexnet",
        "activations": "post_relu",
        "resize": "squash",
        "crops": "center",
        "precision": "float32",
        "weights": weights.artifact.digest,
        "algorithm": "plain",
        "device": "cpu",
        "decoder": 1,
        "extractor": 1,
        "threads": torch.get_num_threads(),
    }
    assert extractor.features == 9344


@pytest.mark.parametrize("resize", ["squash", "shorter_side"])
def test_an_image_has_the_same_bits_in_any_company(weights, resize):
    extractor = build_extractor(choices(resize=resize, crops="five"), weights, "auto", CPU)
    generator = torch.Generator().manual_seed(0)
    sizes = [(256, 256)] * 3 if resize == "squash" else [(256, 300), (280, 256), (256, 300)]
    images = [torch.randint(256, (3, *size), generator=generator, dtype=torch.uint8) for size in sizes]
    together = extractor.compute(images)
    assert (together[0] == extractor.compute(images[:1])[0]).all()
    assert (together[[2, 1]] == extractor.compute([images[2], images[1]])).all()


def test_half_precision_needs_a_gpu(weights):
    with pytest.raises(InputError) as caught:
        build_extractor(choices(precision="float16"), weights, "auto", CPU)
    assert caught.value.message == (
        "params.yaml: extract.precision is 'float16', which needs a GPU; use 'float32' here"
    )


def test_rows_come_as_float32():
    rows = red_extractor().compute([torch.zeros(3, 256, 256, dtype=torch.uint8)] * 2)
    assert (rows.dtype.name, rows.shape) == ("float32", (2, 2))


def test_where_others_compute_an_extractor_tells_what_theirs_are_and_keeps_no_weights(weights):
    here = build_extractor(choices(), weights, "auto", CPU)
    driver = build_extractor(choices(), weights, "auto", CPU, elsewhere=True)
    assert (driver.kind, driver.layers) == (here.kind, here.layers)
    tensors = [each for module in driver.network.modules.values() for each in module.parameters()]
    assert {each.device.type for each in tensors} == {"meta"}
    with pytest.raises(RuntimeError, match="others compute"):
        driver.compute([torch.zeros(3, 256, 256, dtype=torch.uint8)])


def test_where_others_compute_no_gpu_is_needed_to_speak_of_one(weights):
    driver = build_extractor(choices(), weights, "auto", torch.device("cuda"), elsewhere=True)
    assert (driver.kind["device"], "threads" in driver.kind) == ("cuda", False)
