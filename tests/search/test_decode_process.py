"""Files that crash, fill the memory or take too long cost a process, and nothing else."""

import io
import os
import signal

import pytest
from PIL import Image

from fne.search import decode_process as module
from fne.search.decode_process import Decoder, RefusedError
from fne.store.images import decode_bytes


def picture(size=(60, 40), form="PNG", **options):
    buffer = io.BytesIO()
    image = Image.linear_gradient("L").resize(size).convert("RGB")
    image.save(buffer, form, **options)
    return buffer.getvalue()


@pytest.fixture
def decoder():
    opened = Decoder(processes=1)
    yield opened
    opened.close()


def worker_of(decoder):
    worker = decoder._workers._idle.get()
    decoder._workers._idle.put(worker)
    return worker


def test_pixels_are_those_that_the_catalog_would_have(decoder):
    content = picture(form="JPEG")
    assert decoder.pixels(content, 10_000).image().tobytes() == decode_bytes(content).tobytes()


def test_one_process_decodes_many_files(decoder):
    decoder.pixels(picture(), 10_000)
    process = worker_of(decoder)._process.pid
    with pytest.raises(RefusedError, match="^not an image of a known format"):
        decoder.pixels(b"no image", 10_000)
    assert decoder.jpeg(picture(), 20).width == 20
    assert worker_of(decoder)._process.pid == process


def test_a_jpeg_is_as_large_as_asked_for(decoder):
    found = decoder.jpeg(picture((4000, 3000), "JPEG"), 320)
    shown = Image.open(io.BytesIO(found.content))
    assert (shown.format, shown.size) == ("JPEG", (320, 240))


def test_the_orientation_of_a_large_jpeg_is_applied(decoder):
    exif = Image.Exif()
    exif[0x0112] = 6
    found = decoder.jpeg(picture((4000, 3000), "JPEG", exif=exif), 320)
    assert Image.open(io.BytesIO(found.content)).size == (240, 320)


def test_an_image_with_too_many_pixels_is_refused_from_its_header(decoder):
    with pytest.raises(RefusedError, match="^100x100 pixels, more than 9999 in all$"):
        decoder.pixels(picture((100, 100)), 9_999)


def test_a_crash_is_reported_and_the_next_file_is_decoded(decoder):
    decoder.pixels(picture(), 10_000)
    os.kill(worker_of(decoder)._process.pid, signal.SIGSEGV)
    with pytest.raises(RefusedError, match="^crashed its decoder$"):
        decoder.pixels(picture(), 10_000)
    assert decoder.pixels(picture(), 10_000).width == 60


def test_a_file_that_takes_too_long_is_refused():
    decoder = Decoder(processes=1, seconds=0.05)  # less than a process takes to start
    try:
        with pytest.raises(RefusedError, match="^took more than 0.05 s to decode$"):
            decoder.pixels(picture(), 10_000)
        assert decoder._workers._idle.get(timeout=1) is None
    finally:
        decoder.close()


def test_a_reply_that_is_not_the_pixels_is_refused(decoder, monkeypatch):
    wrong = module.Picture(10, 10, b"short")
    monkeypatch.setattr(decoder, "_ask", lambda *arguments: wrong)
    with pytest.raises(RefusedError, match="something else than its pixels"):
        decoder.pixels(picture(), 10_000)
