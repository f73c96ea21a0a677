import json
from pathlib import Path

import pytest
from PIL import Image

from fne.core.errors import InputError
from fne.datasets.read import Catalog
from fne.projects.look_at_data import look_at


def images(folder: Path, count: int = 10) -> list[str]:
    folder.mkdir(parents=True)
    names = [f"{number}.png" for number in range(count)]
    for number, name in enumerate(names):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / name)
    return names


def table(folder: Path, head: str, line: str) -> None:
    names = images(folder)
    (folder / "captions.csv").write_text("\n".join([head, *(line.format(name) for name in names)]))


def test_a_table_is_described_with_the_splits_that_are_drawn(tmp_path):
    table(tmp_path / "photos", "image,caption,tags", "{},A dog {}.,dog;log".replace("dog {}", "dog"))
    look = look_at(tmp_path / "photos", "photos")
    assert look.catalog == {"root": "photos", "format": "table", "images": "auto"}
    assert look.found[0].endswith("format table, 10 images, 10 captions, with tags")
    assert look.found[1] == (
        "  splits    train 8 (8 captions), val 1 (1 captions), test 1 (1 captions); drawn by catalog.val_share "
        "and catalog.test_share"
    )
    assert (look.missing, look.has_captions, look.has_tags) == ([], True, True)


def karpathy(folder: Path, splits: list[str]) -> None:
    names = images(folder / "images", len(splits))
    listed = [
        {"filename": name, "imgid": number, "split": split, "sentences": [{"raw": "A dog."}]}
        for number, (name, split) in enumerate(zip(names, splits, strict=True))
    ]
    (folder / "dataset.json").write_text(json.dumps({"images": listed, "dataset": "mine"}))


def test_splits_without_test_images_hold_some_out(tmp_path):
    karpathy(tmp_path / "set", ["train"] * 10 + ["val"] * 2)
    look = look_at(tmp_path / "set", "set")
    assert look.catalog == {"root": "set", "format": "karpathy", "test_from_train": 0.1, "images": "images"}
    assert "train 9 (9 captions), val 2 (2 captions), test 1 (1 captions)" in look.found[1]
    Catalog(**look.catalog)


def test_what_is_missing_is_said_with_what_to_do(tmp_path):
    karpathy(tmp_path / "set", ["train"] * 10 + ["test"])
    (tmp_path / "set/images/3.png").unlink()
    look = look_at(tmp_path / "set/dataset.json", "set")
    assert look.missing == [
        "no image with captions is in split 'val', which training needs to choose its best epoch; give it some "
        "training images",
        f"1 of 11 images are not in {tmp_path}/set/images, the first is '3.png'; add them, or set catalog.max_rejects",
    ]


@pytest.mark.parametrize(
    ("tags", "advice"), [(True, "`fne init --with tagging`"), (False, "look-alikes can be found")]
)
def test_images_without_captions_can_start_a_project(tmp_path, tags, advice):
    if tags:
        table(tmp_path / "photos", "image,tags", "{},dog;log")
    else:
        images(tmp_path / "photos")
    look = look_at(tmp_path / "photos", "photos")
    assert (look.has_captions, look.has_tags) == (False, tags)
    assert len(look.missing) == 1
    assert advice in look.missing[0]


def test_annotations_without_their_images_can_start_a_project(tmp_path):
    karpathy(tmp_path / "set", ["train"] * 8 + ["val", "test"])
    (tmp_path / "set/images").rename(tmp_path / "elsewhere")
    look = look_at(tmp_path / "set", "set")
    assert "images" not in look.catalog
    assert "none of the images was found" in look.missing[0]


def test_a_folder_that_is_no_data_set_is_refused(tmp_path):
    with pytest.raises(InputError, match="no data set found"):
        look_at(tmp_path, ".")
