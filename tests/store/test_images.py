import os
import struct
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fne.store.images import (
    ALPHA,
    ANIMATED,
    COLOR,
    DEEP,
    MAX_PIXELS,
    ROTATED,
    UndecodableError,
    decode,
    decode_bytes,
    decode_with_notes,
)
from tests.support.datasets import encoded, picture

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")


def reason(data: bytes) -> str:
    with pytest.raises(UndecodableError) as caught:
        decode_bytes(data)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0" * 100)),
    ]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_allowed_format_becomes_rgb_of_the_same_size(format_name):
    decoded = decode_with_notes(encoded(picture(), format_name))
    assert (decoded.format, decoded.image.mode, decoded.image.size) == (format_name, "RGB", (12, 10))


def test_lossless_pixels_are_kept_exactly():
    assert np.array_equal(decode_bytes(encoded(picture(), "PNG")), picture())


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK"])
def test_palette_gray_one_bit_and_cmyk_become_rgb(mode):
    decoded = decode_with_notes(encoded(picture().convert(mode), "TIFF"))
    assert (decoded.image.mode, decoded.notes) == ("RGB", (COLOR,))
    assert np.array_equal(decoded.image, picture().convert(mode).convert("RGB"))


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pixels_are_white(mode):
    image = Image.new(mode, (8, 8))
    decoded = decode_with_notes(encoded(image, "PNG"))
    assert (decoded.image.getpixel((0, 0)), decoded.notes) == ((255, 255, 255), (ALPHA,))


def test_half_transparent_black_is_gray():
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 128))
    assert decode_bytes(encoded(image, "PNG")).getpixel((3, 3)) == (127, 127, 127)


def test_a_transparent_palette_color_is_white():
    image = Image.new("P", (8, 8))
    image.putpalette([0, 0, 0, 255, 0, 0])
    decoded = decode_with_notes(encoded(image, "PNG", transparency=0))
    assert (decoded.image.getpixel((0, 0)), decoded.notes) == ((255, 255, 255), (ALPHA,))


@pytest.mark.parametrize("format_name", ["PNG", "TIFF", "PPM"])
def test_sixteen_bit_gray_is_rescaled_and_not_saturated(format_name):
    samples = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    decoded = decode_with_notes(encoded(Image.fromarray(samples), format_name))
    expected = np.round(samples / 257).astype(np.uint8)
    assert np.array_equal(np.asarray(decoded.image)[..., 0], expected)
    assert decoded.notes == (DEEP,)


@pytest.mark.parametrize(
    ("dtype", "said"), [(np.float32, "floating-point samples"), (np.int32, "32-bit samples")]
)
def test_samples_whose_range_is_unknown_are_refused(dtype, said):
    image = Image.fromarray(np.full((8, 8), 1 << 20, dtype=dtype))
    assert reason(encoded(image, "TIFF")).startswith(said)


TURNS = [
    "FLIP_LEFT_RIGHT",
    "ROTATE_180",
    "FLIP_TOP_BOTTOM",
    "TRANSPOSE",
    "ROTATE_90",
    "TRANSVERSE",
    "ROTATE_270",
]


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize(("orientation", "turn"), [*enumerate([None, *TURNS], start=1)])
def test_the_exif_orientation_is_applied_once(format_name, orientation, turn):
    """A turn leads from upright to how a camera stores it."""
    upright = Image.new("RGB", (16, 24), "white")
    upright.paste("red", (0, 0, 8, 12))  # red top left
    stored = upright.transpose(Image.Transpose[turn]) if turn else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    decoded = decode_with_notes(encoded(stored, format_name, exif=exif))
    assert decoded.image.size == (16, 24)
    red, white = decoded.image.getpixel((2, 2)), decoded.image.getpixel((13, 21))
    assert red[0] > 200
    assert red[1] < 60
    assert min(white) > 200
    assert decoded.notes == ((ROTATED,) if orientation > 1 else ())


def test_damaged_exif_data_does_not_matter_for_an_intact_picture():
    data = encoded(picture(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\xff\xff")
    assert decode_bytes(data).size == (12, 10)


def test_the_first_frame_of_an_animation_is_taken():
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    decoded = decode_with_notes(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert decoded.image.getpixel((0, 0)) == (255, 0, 0)
    assert ANIMATED in decoded.notes


def test_a_jpeg_of_a_phone_with_a_second_picture_is_a_jpeg():
    decoded = decode_with_notes(encoded(picture(), "MPO", save_all=True, append_images=[picture(1)]))
    assert (decoded.format, decoded.notes) == ("JPEG", ())


@pytest.mark.parametrize(
    "data", [b"just text", b"<html><body>404 Not Found</body></html>", b"\0" * 100, encoded(picture(), "ICO")]
)
def test_text_html_zeros_and_other_formats_are_refused(data):
    assert reason(data) == "not an image of a known format (JPEG, PNG, GIF, BMP, TIFF, WEBP, PPM)"
    assert reason(b"") == "the file is empty"


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_truncated_file_is_refused(format_name):
    data = encoded(picture(width=64, height=64), format_name)
    assert reason(data[: len(data) * 2 // 3]).startswith("damaged: ")


def test_a_flipped_bit_in_a_png_is_detected():
    data = bytearray(encoded(picture(), "PNG"))
    data[len(data) // 2] ^= 1
    assert reason(bytes(data)).startswith("damaged: ")


@pytest.mark.parametrize(
    ("size", "fault"),
    [
        ((1, 1), "1x1 pixels, a side below 8"),
        ((1, 10000), "1x10000 pixels, a side below 8"),
        ((8, 401), "8x401 pixels, one side more than 50 times the other"),
        ((9460, 9460), f"9460x9460 pixels, more than {MAX_PIXELS} in all"),
    ],
)
def test_sizes_out_of_bounds_are_refused_from_the_header(size, fault):
    assert reason(png_header(*size)) == fault


def test_a_decompression_bomb_is_refused_from_the_header():
    assert reason(png_header(60000, 60000)) == f"more than {MAX_PIXELS} pixels"


def test_the_smallest_and_the_longest_allowed_images_pass():
    for size in ((8, 8), (8, 400)):
        assert decode_bytes(encoded(Image.new("RGB", size), "PNG")).size == size


def test_warnings_of_pillow_are_suppressed(recwarn):
    warnings.simplefilter("always")
    reason(png_header(9500, 9500))
    assert not recwarn.list


def test_a_missing_file_a_folder_and_a_pipe_are_refused_and_never_block(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    for name, fault in {
        "missing.jpg": "no such file",
        "folder.jpg": "not a regular file",
        "pipe.jpg": "not a regular file",
        "a" * 300: "cannot be read: File name too long",
    }.items():
        with pytest.raises(UndecodableError, match=f"^{fault}$"):
            decode(tmp_path / name)


def test_a_symbolic_link_is_followed(tmp_path):
    (tmp_path / "object").write_bytes(encoded(picture()))
    (tmp_path / "a.jpg").symlink_to(tmp_path / "object")
    assert decode(tmp_path / "a.jpg").size == (12, 10)


INTACT = {name: encoded(picture(width=24, height=24), name) for name in FORMATS}


@settings(max_examples=60)
@given(
    format_name=st.sampled_from(FORMATS),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.binary(min_size=1, max_size=4)), max_size=6),
    length=st.integers(0, 10_000),
)
def test_damaged_bytes_are_either_decoded_or_refused(format_name, changes, length):
    data = bytearray(INTACT[format_name])
    for position, value in changes:
        start = position % len(data)
        data[start : start + len(value)] = value
    try:
        image = decode_bytes(bytes(data[: length % (2 * len(data))]))
    except UndecodableError:
        return
    assert image.mode == "RGB"
    assert len(image.tobytes()) == image.width * image.height * 3


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_images_that_take_a_gigabyte_to_decode_are_refused_from_the_header(mode):
    header = png_header(8000, 8000)
    kind = {"RGBA": 6, "LA": 4}[mode]
    data = header[:25] + bytes([kind]) + header[26:29]
    crc = zlib.crc32(data[12:29]).to_bytes(4, "big")
    assert reason(data + crc + header[33:]) == (
        f"8000x8000 pixels of PNG ({mode}), which take 1280 MB to decode, more than 1000 MB"
    )


def test_tiles_that_are_much_larger_than_the_picture_are_refused_from_the_header():
    side, tile, pixels, place = 64, 60_000, 64 * 64, 8
    tags = {
        256: side,
        257: side,
        258: 8,
        259: 1,
        262: 1,
        277: 1,
        322: tile,
        323: tile,
        324: place,
        325: pixels,
    }
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    header = struct.pack("<2sHI", b"II", 42, place + pixels)
    data = header + bytes(pixels) + struct.pack("<H", len(tags)) + entries + bytes(4)
    assert reason(data).startswith("60000x60000 pixels of TIFF (L), which take 43200 MB to decode")
