import pytest
import torch

from fne.activations.cost import Effort, announcement, plain_flops, seconds_per_image, shard_advice, summary
from fne.activations.extractor import build_extractor
from fne.activations.weights import Weights
from fne.store.lineage import Artifact
from tests.activations.samples import red_extractor
from tests.activations.test_extractor import choices


@pytest.fixture
def extractor(tmp_path):
    """The first two convolutions of AlexNet."""
    state = {
        "features.0.weight": torch.zeros(64, 3, 11, 11),
        "features.0.bias": torch.zeros(64),
        "features.3.weight": torch.zeros(192, 64, 5, 5),
        "features.3.bias": torch.zeros(192),
    }
    return build_extractor(
        choices(crops="five"), Weights(Artifact(tmp_path, "weights", "0"), state), "auto", torch.device("cpu")
    )


def test_operations_are_counted_for_every_crop(extractor):
    first = 2 * 64 * 3 * 11 * 11 * 55 * 55
    second = 2 * 192 * 64 * 5 * 5 * 27 * 27
    assert plain_flops(extractor) == 5 * (first + second)


def test_the_announcement_tells_what_is_done_and_what_it_needs():
    text = announcement(red_extractor(), images=1_000_000, done=999_900, pace=0.5)
    assert text.startswith(
        "1000000 images: 999900 done, 100 to do, about 50 s with algorithm 'plain' on cpu; disk: 8 MB"
    )


def test_the_announcement_tells_no_time_where_only_trying_can_tell():
    text = announcement(red_extractor(), images=3, done=1, pace=None)
    assert text.startswith("3 images: 1 done, 2 to do with algorithm 'plain' on cpu; disk: 0 MB")


def test_the_pace_is_that_of_an_image_in_a_batch():
    sizes: list[int] = []
    assert 0 < seconds_per_image(red_extractor(sizes), batch=3) < 60
    assert sizes == [3, 3]


def test_too_few_shards_are_warned_about():
    assert shard_advice(red_extractor(), images=1000, shards=1) is None
    assert shard_advice(red_extractor(), images=10**9, shards=4) == (
        "Warning: shards would be larger than 512 MB; set extract.shards to 15 or more"
    )


def test_the_summary_tells_speed_and_waiting(extractor):
    text = summary(extractor, Effort(images=10, seconds=5.0, input_seconds=0.5, output_seconds=0.05))
    assert text.startswith("10 images in 5 s: 2.00 images/s, ")
    assert text.endswith("10.0% of the time waiting for input, 1.0% for output")


def test_the_summary_tells_workers_restarts_and_the_speed_of_each(extractor):
    text = summary(extractor, Effort(images=10, seconds=5.0, workers=2, restarts=3, worker_seconds=8.0))
    assert text.endswith("0.0% for output; 2 workers, 3 restarts, 1.25 images/s per worker")
