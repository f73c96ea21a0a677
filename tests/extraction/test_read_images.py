import hashlib
import os
import signal
import subprocess
import sys

import pytest

from fne.core.signals import TERMINATED
from fne.extraction.preprocess import RESIZES
from fne.extraction.read_images import ImageFiles, read_ahead, read_pixels
from tests.support.extraction import draw
from tests.support.refusals import refused

SQUASH = RESIZES["squash"]
RESTORE = "restore the file; if the change is meant, run `dvc repro --force catalog`"


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
    with refused("a process that reads images was killed", "; lower runtime.workers and run again"):
        list(read_ahead(files, [0, 1, 2], workers=1, pin=False))


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
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", READING], start_new_session=True, **pipes) as process:
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
    digests = f"expected SHA-256 {image.sha256[:12]}…, found {hashlib.sha256(b'other').hexdigest()[:12]}…; "
    with refused(f"{tmp_path}/1.png: has changed since the catalog was made: {digests}", RESTORE):
        read_pixels(image, tmp_path, SQUASH)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_missing_image_gives_an_error_of_one_line(tmp_path, workers):
    image = draw(tmp_path, 1)
    (tmp_path / image.path).unlink()
    with refused(f"{tmp_path}/1.png: no such file; {RESTORE}"):
        list(read_ahead(ImageFiles([image], tmp_path, SQUASH), [0], workers, pin=False))
