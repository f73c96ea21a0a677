import hashlib
import os
import signal

import pytest

from fne.activations.reading import ImageFiles, read_ahead, read_pixels
from fne.activations.resizing import RESIZES
from fne.core.errors import InputError
from tests.activations.samples import draw

SQUASH = RESIZES["squash"]


@pytest.mark.parametrize("workers", [0, 2])
def test_images_come_in_the_order_asked_for(tmp_path, workers):
    files = ImageFiles([draw(tmp_path, number) for number in range(6)], tmp_path, SQUASH)
    order = [5, 0, 3, 3, 1]
    reds = [int(pixels[0, 0, 0]) for pixels in read_ahead(files, iter(order), workers, pin=False)]
    assert reds == [position * 25 for position in order]


class Deadly(ImageFiles):
    """The second image kills whoever reads it."""

    def __getitem__(self, position):
        if position == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(position)


def test_a_dying_worker_is_said_in_one_line(tmp_path):
    files = Deadly([draw(tmp_path, number) for number in range(3)], tmp_path, SQUASH)
    with pytest.raises(InputError) as caught:
        list(read_ahead(files, [0, 1, 2], workers=1, pin=False))
    assert caught.value.message == (
        "a process that reads images was killed, perhaps for lack of memory; what is finished is kept: "
        "lower runtime.workers and run again"
    )


def test_an_image_that_changed_since_the_catalog_is_refused(tmp_path):
    image = draw(tmp_path, 1)
    (tmp_path / image.path).write_bytes(b"other")
    other = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(InputError) as caught:
        read_pixels(image, tmp_path, SQUASH)
    assert caught.value.message == (
        f"{tmp_path}/1.png: has changed since the catalog was made: it was {image.sha256[:12]}…, "
        f"now it is {other[:12]}…; run `dvc repro catalog`"
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_is_gone_is_refused_in_one_line(tmp_path, workers):
    image = draw(tmp_path, 1)
    (tmp_path / image.path).unlink()
    with pytest.raises(InputError) as caught:
        list(read_ahead(ImageFiles([image], tmp_path, SQUASH), [0], workers, pin=False))
    assert caught.value.message == (
        f"{tmp_path}/1.png: cannot be read (No such file or directory); run `dvc repro catalog`"
    )
