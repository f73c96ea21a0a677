import sys

import pytest
import torch

from fne.activations import algorithms
from fne.activations.algorithms import ALGORITHMS, choose_algorithm
from fne.core.errors import InputError
from tests.narrow import narrow_vgg, relative_difference, smooth_images

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("crops", ["ten", "five"])
def test_all_algorithms_give_the_same_rows(name, crops):
    images, network = smooth_images(2), narrow_vgg()
    found, expected = ALGORITHMS[name](network, crops)(images), algorithms.plain(network, crops)(images)
    assert found.shape == (2, sum(layer.features for layer in network.layers))
    assert relative_difference(found, expected) < 5e-6


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.usefixtures("threads")
def test_the_bits_of_an_image_do_not_depend_on_its_neighbors(name):
    images = smooth_images(3)
    rows = ALGORITHMS[name](narrow_vgg(units=64), "ten")
    alone = torch.cat([rows(images[number : number + 1]) for number in range(3)])
    for order in ([0, 1], [1, 0], [0, 1, 2], [2, 0, 1]):
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
        algorithms.sharing(narrow_vgg(), "ten")(torch.zeros(1, 3, 300, 256))
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("crops", "device", "resize", "chosen"),
    [
        ("ten", CPU, "squash", "winograd"),
        ("five", CPU, "squash", "winograd"),
        ("ten", GPU, "squash", "sharing"),
        ("center", CPU, "squash", "plain"),
        ("ten", CPU, "shorter_side", "plain"),
    ],
)
def test_the_fastest_algorithm_that_applies_is_chosen(crops, device, resize, chosen):
    assert choose_algorithm("auto", narrow_vgg(), crops, device, resize) == chosen


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_asked_for_is_chosen(name):
    assert choose_algorithm(name, narrow_vgg(), "ten", CPU) == name


@pytest.mark.parametrize(
    ("asked", "crops", "device", "resize", "message"),
    [
        ("fast", "ten", CPU, "squash", "algorithm 'fast' is not one of auto, plain, sharing, winograd"),
        (
            "sharing",
            "center",
            CPU,
            "squash",
            "algorithm 'sharing' is not possible: crops 'center' do not overlap as those of five and ten do; use 'auto'",
        ),
        (
            "winograd",
            "ten",
            GPU,
            "squash",
            "algorithm 'winograd' is not possible: it needs a CPU, not 'cuda'; use 'auto'",
        ),
        (
            "winograd",
            "ten",
            CPU,
            "shorter_side",
            "algorithm 'winograd' is not possible: images resized by 'shorter_side' are not square; use 'auto'",
        ),
    ],
)
def test_an_algorithm_that_does_not_apply_is_refused(asked, crops, device, resize, message):
    with pytest.raises(InputError) as caught:
        choose_algorithm(asked, narrow_vgg(), crops, device, resize)
    assert caught.value.message == message


@pytest.fixture
def no_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "fne.activations.tiles", raising=False)
    algorithms._say_once.cache_clear()


@pytest.mark.usefixtures("no_numba")
def test_without_numba_crops_are_shared_and_that_is_said_once(capsys):
    assert [choose_algorithm("auto", narrow_vgg(), "ten", CPU) for _ in range(2)] == ["sharing", "sharing"]
    assert capsys.readouterr().err.splitlines() == [
        "Algorithm 'winograd' is not possible here, using 'sharing' instead: numba cannot be imported "
        "(import of numba halted; None in sys.modules)"
    ]


@pytest.mark.usefixtures("no_numba")
def test_without_numba_winograd_is_refused():
    with pytest.raises(InputError, match="algorithm 'winograd' is not possible: numba cannot be imported"):
        choose_algorithm("winograd", narrow_vgg(), "ten", CPU)


def test_loops_that_do_not_compile_are_a_reason_to_share_crops(monkeypatch, capsys):
    def fail(*arguments):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr("fne.activations.winograd.convolve_tiles", fail)
    algorithms._say_once.cache_clear()
    assert choose_algorithm("auto", narrow_vgg(), "ten", CPU) == "sharing"
    assert "numba cannot compile for this machine (RuntimeError)" in capsys.readouterr().err
