import hashlib
import os
import signal
import subprocess
import sys

import pytest
import torch

from fne.core import params
from fne.core.errors import InputError
from fne.core.signals import TERMINATED
from fne.extraction.finished_rows import hardware_name
from fne.extraction.preprocess import RESIZES
from fne.extraction.read_images import (
    EngineConfig,
    ImageFiles,
    Job,
    compute_locally,
    local_engine,
    read_ahead,
    read_pixels,
)
from fne.extraction.run import ENGINES
from tests.support.extraction import draw, red_extractor, redness
from tests.support.settings import runtime

SQUASH = RESIZES["squash"]


def test_the_engines_are_those_that_the_parameters_allow():
    assert tuple(ENGINES) == params.ENGINES


def test_rows_come_in_batches_with_their_positions_and_the_hardware(tmp_path):
    images = [draw(tmp_path, number) for number in range(5)]
    extractor = red_extractor()
    job = Job(ImageFiles(images, tmp_path, extractor.resize), extractor, batch=2, workers=0, todo=5)
    done = list(compute_locally(job, iter([4, 0, 2])))
    assert [each.positions for each in done] == [[4, 0], [2]]
    assert {each.hardware for each in done} == {hardware_name("cpu")}
    red = [float(row[0]) for each in done for row in each.rows]
    assert red == pytest.approx([redness(4), redness(0), redness(2)], rel=1e-5)


def test_the_local_engine_computes_on_the_requested_device(tmp_path):
    config = EngineConfig(None, tmp_path, runtime(device="cpu"))
    with ENGINES["local"](config, print) as engine:
        assert (engine.device, engine.remote) == (torch.device("cpu"), False)
        assert engine.compute is local_engine(torch.device("cpu")).compute


def test_without_the_engine_ray_is_never_imported():
    program = "import sys, stages.extract; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_images_are_read_in_the_requested_order(tmp_path, workers):
    files = ImageFiles([draw(tmp_path, number) for number in range(6)], tmp_path, SQUASH)
    order = [5, 0, 3, 3, 1]
    reds = [int(pixels[0, 0, 0]) for pixels in read_ahead(files, iter(order), workers, pin=False)]
    assert reds == [position * 25 for position in order]


class Deadly(ImageFiles):
    """The second image kills the process that reads it."""

    def __getitem__(self, position):
        if position == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(position)


def test_a_killed_worker_gives_an_error_of_one_line(tmp_path):
    files = Deadly([draw(tmp_path, number) for number in range(3)], tmp_path, SQUASH)
    with pytest.raises(InputError) as caught:
        list(read_ahead(files, [0, 1, 2], workers=1, pin=False))
    assert caught.value.message == (
        "a process that reads images was killed, possibly because memory ran out; finished rows are kept; "
        "lower runtime.workers and run again"
    )


READING = """
from fne.core.signals import StoppedError, graceful_stop
from fne.extraction.read_images import read_ahead

with graceful_stop(print) as stopping:
    for position in read_ahead(range(10**9), range(10**9), 2, pin=False):
        if position == 20:
            print("reading", flush=True)
        if stopping():
            raise StoppedError
"""


def test_sigterm_to_the_process_group_ends_as_the_main_process_decides():
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", READING],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stdout.readline() == "reading\n"
            os.killpg(process.pid, signal.SIGTERM)
            printed, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (TERMINATED, "")
        assert printed.startswith("terminated; ")
        with pytest.raises(ProcessLookupError):  # no reading process is left
            os.killpg(process.pid, 0)


def test_an_image_that_changed_since_the_catalog_is_refused(tmp_path):
    image = draw(tmp_path, 1)
    (tmp_path / image.path).write_bytes(b"other")
    other = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(InputError) as caught:
        read_pixels(image, tmp_path, SQUASH)
    assert caught.value.message == (
        f"{tmp_path}/1.png: has changed since the catalog was made: expected SHA-256 {image.sha256[:12]}…, "
        f"found {other[:12]}…; restore the file; if the change is meant, run `dvc repro --force catalog`"
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_a_missing_image_gives_an_error_of_one_line(tmp_path, workers):
    image = draw(tmp_path, 1)
    (tmp_path / image.path).unlink()
    with pytest.raises(InputError) as caught:
        list(read_ahead(ImageFiles([image], tmp_path, SQUASH), [0], workers, pin=False))
    assert caught.value.message == (
        f"{tmp_path}/1.png: no such file; restore the file; if the change is meant, run `dvc repro --force catalog`"
    )
