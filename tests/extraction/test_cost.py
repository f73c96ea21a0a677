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
    state = {
        "features.0.weight": torch.zeros(64, 3, 11, 11),
        "features.0.bias": torch.zeros(64),
        "features.3.weight": torch.zeros(192, 64, 5, 5),
        "features.3.bias": torch.zeros(192),
    }
    return build_extractor(
        extractor_settings(crops="five"),
        Weights(Artifact(tmp_path, "weights", "0"), state),
        "auto",
        torch.device("cpu"),
    )


def test_operations_are_counted_for_every_crop(extractor):
    first = 2 * 64 * 3 * 11 * 11 * 55 * 55
    second = 2 * 192 * 64 * 5 * 5 * 27 * 27
    assert plain_flops(extractor) == 5 * (first + second)


def test_the_announcement_has_the_finished_images_the_time_the_memory_and_the_disk_space(monkeypatch):
    monkeypatch.setattr(cost, "peak_memory", lambda device: 1_260_000_000)
    text = announcement(red_extractor(), images=1_000_000, done=999_900, seconds_per_image=0.5)
    assert text.startswith(
        "1000000 images: 999900 done, 100 to do, about 50 s with algorithm 'plain' on cpu; "
        "memory: 1.3 GB; disk: 8 MB"
    )


def test_the_announced_memory_is_that_of_a_measured_batch():
    """It must cover the activations of the batch: here 400 MB, which nothing else in this process needs."""
    extractor = red_extractor()
    held = []
    wasteful = replace(
        extractor, rows=lambda images: held.append(torch.ones(10**8)) or extractor.rows(images)
    )
    before = peak_memory(wasteful.device)
    seconds = time_per_image(wasteful, batch=1)
    announced = re.search(r"memory: ([\d.]+) GB", announcement(wasteful, 3, 0, seconds))
    assert announced
    assert float(announced[1]) >= round(before / 1e9, 1)
    assert float(announced[1]) >= 0.8


def test_the_announcement_has_neither_time_nor_memory_if_they_are_unknown():
    text = announcement(red_extractor(), images=3, done=1, seconds_per_image=None)
    assert text.startswith("3 images: 1 done, 2 to do with algorithm 'plain' on cpu; disk: 0 MB")


def test_the_time_per_image_is_measured_with_a_full_batch():
    sizes: list[int] = []
    assert 0 < time_per_image(red_extractor(sizes), batch=3) < 60
    assert sizes == [3, 3]


def test_too_few_shards_give_a_warning():
    assert shard_advice(red_extractor(), images=1000, shards=1) is None
    assert shard_advice(red_extractor(), images=10**9, shards=4) == (
        "Warning: shards would be larger than 512 MB; set extract.shards to 15 or more"
    )


def test_the_summary_has_the_speed_and_the_waiting_time(extractor):
    text = summary(extractor, RunStatistics(images=10, seconds=5.0, input_seconds=0.5, output_seconds=0.05))
    assert text.startswith("10 images in 5 s: 2.00 images/s, ")
    assert text.endswith("10.0% of the time waiting for input, 1.0% for output")


def test_the_summary_has_workers_restarts_and_the_speed_per_worker(extractor):
    text = summary(
        extractor, RunStatistics(images=10, seconds=5.0, workers=2, restarts=3, worker_seconds=8.0)
    )
    assert text.endswith("0.0% for output; 2 workers, 3 restarts, 1.25 images/s per worker")
