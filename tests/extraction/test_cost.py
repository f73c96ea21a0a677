import re
from dataclasses import replace

import pytest
import torch

from fne.core.device import peak_memory
from fne.extraction import cost
from fne.extraction.cost import (
    RunStatistics,
    announcement,
    plain_flops,
    shard_advice,
    summary,
    time_per_image,
)
from fne.extraction.extractor import build_extractor
from fne.extraction.weights import Weights
from fne.store.artifact import Artifact
from tests.support.extraction import red_extractor
from tests.support.settings import extractor_settings


@pytest.fixture
def extractor(tmp_path):
    """An extractor with the first two convolutions of AlexNet."""
    shapes = {"features.0": (64, 3, 11, 11), "features.3": (192, 64, 5, 5)}
    state = {f"{name}.weight": torch.zeros(shape) for name, shape in shapes.items()}
    state |= {f"{name}.bias": torch.zeros(shape[0]) for name, shape in shapes.items()}
    weights = Weights(Artifact(tmp_path, "weights", "0"), state)
    return build_extractor(extractor_settings(crops="five"), weights, "auto", torch.device("cpu"))


def test_operations_are_counted_for_every_crop(extractor):
    first = 2 * 64 * 3 * 11 * 11 * 55 * 55
    second = 2 * 192 * 64 * 5 * 5 * 27 * 27
    assert plain_flops(extractor) == 5 * (first + second)


def test_the_announcement_has_the_finished_images_the_disk_space_and_the_time_and_memory_if_known(
    monkeypatch,
):
    monkeypatch.setattr(cost, "peak_memory", lambda device: 1_260_000_000)
    text = announcement(red_extractor(), images=1_000_000, done=999_900, seconds_per_image=0.5)
    for part in ("1000000 images: 999900 done, 100 to do, about 50 s", "memory: 1.3 GB", "disk: 8 MB"):
        assert part in text
    text = announcement(red_extractor(), images=3, done=1, seconds_per_image=None)
    assert text.startswith("3 images: 1 done, 2 to do with algorithm 'plain' on cpu; disk: 0 MB")


def test_the_announced_memory_is_that_of_a_measured_batch():
    """It must cover the activations of the batch: here 400 MB, which nothing else in this process needs."""
    extractor, held = red_extractor(), []
    wasteful = replace(
        extractor, rows=lambda images: held.append(torch.ones(10**8)) or extractor.rows(images)
    )
    before = peak_memory(wasteful.device)
    text = announcement(wasteful, 3, 0, time_per_image(wasteful, batch=1))
    assert float(re.search(r"memory: ([\d.]+) GB", text)[1]) >= max(round(before / 1e9, 1), 0.8)


def test_the_time_per_image_is_measured_with_a_full_batch():
    sizes: list[int] = []
    assert 0 < time_per_image(red_extractor(sizes), batch=3) < 60
    assert sizes == [3, 3]


def test_too_few_shards_give_a_warning():
    assert shard_advice(red_extractor(), images=1000, shards=1) is None
    assert "set extract.shards to 15 or more" in shard_advice(red_extractor(), images=10**9, shards=4)


def test_the_summary_has_the_speed_the_waiting_time_and_the_workers(extractor):
    local = RunStatistics(images=10, seconds=5.0, input_seconds=0.5, output_seconds=0.05)
    assert summary(extractor, local).startswith("10 images in 5 s: 2.00 images/s, ")
    assert summary(extractor, local).endswith("10.0% of the time waiting for input, 1.0% for output")
    remote = RunStatistics(images=10, seconds=5.0, workers=2, restarts=3, worker_seconds=8.0)
    assert summary(extractor, remote).endswith("; 2 workers, 3 restarts, 1.25 images/s per worker")
