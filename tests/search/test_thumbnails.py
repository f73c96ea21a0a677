import base64
import io

from PIL import Image

from fne.search.thumbnails import SIDE, thumbnail

PREFIX = "data:image/jpeg;base64,"


def test_a_thumbnail_is_a_small_jpeg_that_keeps_the_aspect(tmp_path):
    Image.new("RGB", (400, 200), "red").save(tmp_path / "red.png")
    uri = thumbnail(tmp_path / "red.png")
    assert uri is not None
    picture = Image.open(io.BytesIO(base64.b64decode(uri.removeprefix(PREFIX))))
    assert (picture.format, picture.size) == ("JPEG", (SIDE, SIDE // 2))


def test_a_file_that_cannot_be_read_has_none(tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    assert thumbnail(tmp_path / "broken.jpg") is None
    assert thumbnail(tmp_path / "gone.jpg") is None
