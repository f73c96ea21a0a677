import io
import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from fne.datasets.readers import read_dataset
from fne.extraction.preprocess import RESIZES
from fne.extraction.read_images import read_pixels
from fne.store.catalog import read_captions, read_images
from fne.store.images import decode
from fne.store.rows import Rows
from fne.store.verify import image_faults
from stages.catalog import main as catalog
from stages.extract import main as extract
from tests.support.datasets import encoded, picture
from tests.support.projects import change_params
from tests.support.refusals import refused
from tests.support.stages import run

__all__ = ["run"]


LISTS = ["data/images.jsonl", "data/captions.jsonl", "data/rejects.csv", "data/catalog.json"]


def png(seed: int) -> bytes:
    return encoded(picture(seed, width=20, height=16), "PNG")


def pack(path: Path, files: dict[str, bytes | str], kind: bytes = tarfile.REGTYPE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size, info.type = len(data), kind
            tar.addfile(info, io.BytesIO(data))
    return path


def read(root: Path):
    return read_dataset(root, "auto", "auto")


def test_samples_have_captions_of_text_and_json_and_splits_of_json_or_the_name_of_the_shard(tmp_path):
    described = {
        "captions": ["One.", "Two."],
        "split": "test",
        "tags": ["dog", "cat"],
        "url": "x",
        "sha256": 1,
    }
    pack(tmp_path / "train-0001.tar", {"b.png": png(1), "b.txt": "A cat.\n\nA dog.\n", "b.cls": "7"})
    files = {"x/a.json": json.dumps(described), "x/a.png": png(2), "x/a.txt": "Not this."}
    files |= {"c.json": json.dumps({"caption": "Only here."}), "c.PNG": png(3), "lonely.txt": "No image."}
    pack(tmp_path / "train-0000.tar", files)
    reading = read(tmp_path)
    assert [(each.id, each.split, each.captions, each.tags) for each in reading.records] == [
        ("train-0000.tar/x/a.png", "test", ("One.", "Two."), ("cat", "dog")),
        ("train-0000.tar/c.PNG", "train", ("Only here.",), ()),
        ("train-0001.tar/b.png", "train", ("A cat.", "A dog."), ()),
    ]
    assert reading.counts == {
        "samples without an image, skipped": 1,
        "files of samples that are neither images nor captions, skipped ('b.cls')": 1,
    }


@pytest.mark.usefixtures("run")
def test_shards_are_cataloged_and_extracted_and_images_stay_in_them(tmp_path):
    root = tmp_path / "shards"
    names = [("train", 0), ("train", 1), ("val", 0), ("test", 0)]
    for number, (split, shard) in enumerate(names):
        files = {f"{split}{shard}{each}.png": png(10 * number + each) for each in range(4)}
        files |= {f"{split}{shard}{each}.txt": f"a {split} picture {each}\nred {each}" for each in range(4)}
        pack(root / f"{split}-{shard:04d}.tar", files)
    change_params(tmp_path, {"catalog": {"root": str(root)}})
    for stage, arguments in ((catalog, LISTS), (extract, ["data/images.jsonl", "features/activations"])):
        done = CliRunner().invoke(stage, arguments)
        assert done.exit_code == 0, done.output
    before = Path("data/images.jsonl").read_bytes()
    assert CliRunner().invoke(catalog, LISTS).exit_code == 0
    assert Path("data/images.jsonl").read_bytes() == before
    images, artifact = read_images(Path("data/images.jsonl"))
    assert len(images) == 16
    assert [each.split for each in read_captions(Path("data/captions.jsonl"))[0]].count("train") == 8
    for image in images:
        assert read_pixels(image, root, RESIZES["squash"]).shape == (3, 256, 256)
    assert sorted(Rows.open(Path("features/activations")).ids) == [image.id for image in images]
    assert image_faults(artifact) == []
    pack(root / "val-0000.tar", {"val00.png": png(99)})
    assert image_faults(artifact)[0].startswith("data/images.jsonl: 1 of 16 images are not the listed files")


@pytest.mark.usefixtures("run")
def test_a_name_that_leads_out_of_the_archive_is_refused_and_nothing_is_written(tmp_path):
    root = tmp_path / "shards"
    pack(root / "train-0.tar", {"../../evil.png": png(1), "../../evil.txt": "x"})
    change_params(tmp_path, {"catalog": {"root": str(root)}})
    result = CliRunner().invoke(catalog, LISTS)
    assert result.exit_code == 2
    assert "points outside the image folder" in result.stderr
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_no_files(tmp_path, kind):
    pack(tmp_path / "a.tar", {"a.png": b""}, kind)
    with refused(f"{tmp_path}/a.tar: no images; nothing to catalog"):
        read(tmp_path)
    with pytest.raises(ValueError, match="no such file"):
        decode(tmp_path / "a.tar/a.png")


def test_damaged_and_compressed_archives_are_refused(tmp_path):
    path = pack(tmp_path / "a.tar", {"a.png": png(1), "a.txt": "x" * 5000})
    content = path.read_bytes()
    path.write_bytes(content[:3000])
    with refused(f"{path}: ends within 'a.txt'; write or download it again"):
        read(tmp_path)
    path.write_bytes(b"\x1f\x8b" + content)
    with refused(f"{path}: not an uncompressed tar archive, or damaged ("):
        read(tmp_path)


def test_a_huge_header_is_refused_before_it_is_read(tmp_path):
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    (tmp_path / "a.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024)
    with refused("a header of "):
        read(tmp_path)


def test_a_large_text_file_and_several_images_of_a_sample_are_refused(tmp_path):
    path = pack(tmp_path / "a.tar", {"a.png": png(1), "a.jpg": b"x", "b.txt": "x" * (1 << 20) + "y"})
    several = "sample 'a' has several images (a.png, a.jpg)"
    with refused(f"{path}: {several}; 'b.txt' has 1048577 bytes, more than 1048576; fix or remove"):
        read(tmp_path)


def test_archives_beside_images_or_annotations_are_not_read_by_themselves(tmp_path):
    pack(tmp_path / "images.tar", {"a.png": png(1), "a.txt": "x"})
    (tmp_path / "photo.png").write_bytes(png(2))
    assert [each.id for each in read(tmp_path).records] == ["photo.png"]
    (tmp_path / "captions.csv").write_text("image,caption\nphoto.png,Red.\n")
    assert read(tmp_path).records[0].captions == ("Red.",)
    assert [each.id for each in read_dataset(tmp_path, "webdataset", "auto").records] == ["images.tar/a.png"]
