import subprocess
import sys

import numpy as np
import pytest
import torch

from fne.extraction.computer import HostQueue, Job, LocalComputer, StreamQueue, compute_rows, open_queue
from fne.extraction.finished_rows import hardware_name
from fne.extraction.read_images import PREFETCHED, ImageFiles
from fne.extraction.run import COMPUTERS
from tests.support.extraction import computed as all_rows
from tests.support.extraction import draw, red_extractor, redness
from tests.support.refusals import refused
from tests.support.settings import extract_settings, runtime


def images(count):
    return iter([torch.full((1,), float(number)) for number in range(count)])


class SmallDevice:
    """A device that holds only some images at once, queued ones included."""

    def __init__(self, capacity, ahead=2, error=None):
        self.capacity, self.ahead = capacity, ahead
        self.error = error or torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        self.held, self.submitted, self.released, self.most = 0, [], 0, 0

    def submit(self, pixels):
        if self.held + len(pixels) > self.capacity:
            raise self.error
        self.held += len(pixels)
        self.most = max(self.most, self.held)
        self.submitted.append(len(pixels))

        def result():
            self.held -= len(pixels)
            return np.array([each.item() for each in pixels])

        return result

    def release_memory(self):
        self.released += 1


def computed(device, count, size):
    said = []
    rows = list(compute_rows(device, images(count), size, said.append))
    assert np.concatenate(rows).tolist() == list(range(count))
    return said


@pytest.mark.parametrize(("ahead", "most"), [(2, 12), (0, 4)])
def test_a_device_has_further_batches_queued_while_rows_are_waited_for_and_a_cpu_none(ahead, most):
    device = SmallDevice(capacity=most, ahead=ahead)
    assert computed(device, 23, 4) == []
    assert device.submitted == [4, 4, 4, 4, 4, 3]
    assert device.most == most


def test_batches_that_do_not_fit_are_halved_and_this_is_said_once():
    device = SmallDevice(capacity=3)
    (said,) = computed(device, 50, 16)
    assert said.startswith("out of memory with 16 images per batch; going on with 2")
    assert "set runtime.batch to 2" in said
    assert set(device.submitted) == {2}
    assert device.most <= 3
    for error in (MemoryError(), RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED")):
        assert len(computed(SmallDevice(capacity=2, error=error), 9, 8)) == 1
    device = SmallDevice(capacity=10)  # which holds each batch alone
    assert computed(device, 32, 8) == []
    assert set(device.submitted) == {8}
    assert device.released > 0


def test_memory_that_gets_scarce_later_halves_the_batches_from_then_on():
    device = SmallDevice(capacity=16, ahead=0)
    rows = compute_rows(device, images(32), 8, lambda text: None)
    found = [next(rows)]
    device.capacity = 4
    found += list(rows)
    assert device.submitted == [8, 4, 4, 4, 4, 4, 4]
    assert np.concatenate(found).tolist() == list(range(32))


def test_one_image_that_does_not_fit_and_other_errors_are_errors():
    with refused("out of memory with one image per batch", "set runtime.device to cpu"):
        computed(SmallDevice(capacity=0), 3, 2)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        computed(SmallDevice(capacity=1, error=RuntimeError("an illegal memory access")), 3, 2)


def test_an_extraction_with_scarce_memory_has_the_same_rows(tmp_path):
    files = [draw(tmp_path, number) for number in range(7)]
    extractor = red_extractor()
    rows = extractor.rows

    def scarce(batch):
        if len(batch) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return rows(batch)

    object.__setattr__(extractor, "rows", scarce)
    said = []
    job = Job(ImageFiles(files, tmp_path, extractor.resize), extractor, 7, said.append)
    done = list(all_rows(LocalComputer(extractor.device, batch=4), job, range(7)))
    assert [position for each in done for position in each.positions] == list(range(7))
    found = [float(row[0]) for each in done for row in each.rows]
    assert found == pytest.approx([redness(number) for number in range(7)], rel=1e-5)
    assert len(said) == 1


def test_a_cpu_has_a_queue_that_computes_at_once_and_a_gpu_has_streams(monkeypatch):
    extractor = red_extractor()
    assert isinstance(open_queue(extractor), HostQueue)
    object.__setattr__(extractor, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: device)
    assert isinstance(open_queue(extractor), StreamQueue)


def test_rows_come_in_batches_with_their_positions_and_the_hardware(tmp_path):
    images = [draw(tmp_path, number) for number in range(5)]
    extractor = red_extractor()
    job = Job(ImageFiles(images, tmp_path, extractor.resize), extractor, todo=3)
    done = list(all_rows(LocalComputer(extractor.device, batch=2), job, [4, 0, 2]))
    assert [each.positions for each in done] == [[4, 0], [2]]
    assert {each.hardware for each in done} == {hardware_name("cpu")}
    red = [float(row[0]) for each in done for row in each.rows]
    assert red == pytest.approx([redness(4), redness(0), redness(2)], rel=1e-5)


@pytest.mark.parametrize(("workers", "batch", "ahead"), [(0, 1, 0), (0, 3, 2), (2, 2, 0), (2, 3, 2)])
def test_only_as_many_images_are_submitted_as_are_read_or_queued(tmp_path, workers, batch, ahead):
    images = [draw(tmp_path, number % 10) for number in range(60)]
    extractor, taken = red_extractor(), []
    job = Job(ImageFiles(images, tmp_path, extractor.resize), extractor, todo=60)

    class Queued(LocalComputer):
        def open_queue(self, extractor):
            queue = super().open_queue(extractor)
            queue.ahead = ahead
            return queue

    computing = all_rows(
        Queued(extractor.device, batch, workers), job, (taken.append(each) or each for each in range(60))
    )
    done = [next(computing)]
    most = 2 * (workers * PREFETCHED + (ahead + 1) * batch)
    assert len(taken) <= most
    done += computing
    assert [position for each in done for position in each.positions] == list(range(60))


def test_this_process_computes_on_the_requested_device():
    with COMPUTERS["local"](extract_settings(), runtime(device="cpu"), print) as computer:
        assert (computer.device, computer.remote) == (torch.device("cpu"), False)
        assert isinstance(computer, LocalComputer)


def test_without_the_engine_ray_is_never_imported():
    program = "import sys, stages.extract; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
