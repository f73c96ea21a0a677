from collections import Counter

import pytest
from click.testing import CliRunner

from examples.nus_wide import main
from fne.datasets.readers.table import read_table


@pytest.fixture
def folder(tmp_path):
    """Forty images; every fourth has no label, and the file of the second is missing."""
    names = [f"sky\\{number:04d}_{1000 + number}.jpg" for number in range(40)]
    for place in ("ImageList", "Groundtruth/AllLabels", "NUS_WID_Tags", "Flickr/sky"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "ImageList/Imagelist.txt").write_text("\r\n".join(names) + "\r\n")
    labels = {"sky": [int(number % 4 != 0) for number in range(40)], "map": [0, 0, 1] + [0] * 37}
    for label, marks in labels.items():
        text = "".join(f"{mark}\n" for mark in marks)
        (tmp_path / f"Groundtruth/AllLabels/Labels_{label}.txt").write_text(text)
    tags = "".join(f"{1000 + number}  nikon été{number}\n" for number in range(40))
    (tmp_path / "NUS_WID_Tags/All_Tags.txt").write_text(tags)
    for number, name in enumerate(names):
        if number != 1:
            (tmp_path / "Flickr" / name.replace("\\", "/")).touch()
    return tmp_path


def test_the_table_has_labeled_images_with_their_user_tags(folder):
    result = CliRunner().invoke(main, [str(folder)])
    assert result.stdout.endswith("table.jsonl: 29 of 40 images have labels and a file\n")
    records = {record.id: record for record in read_table(folder, [folder / "table.jsonl"]).records}
    assert Counter(record.split for record in records.values()) == {"train": 20, "val": 1, "test": 8}
    assert records["Flickr/sky/0002_1002.jpg"].tags == ("map", "sky")
    assert records["Flickr/sky/0002_1002.jpg"].user_tags == ("nikon", "été2")
    assert not {f"Flickr/sky/{name}.jpg" for name in ("0000_1000", "0001_1001", "0004_1004")} & records.keys()


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        ("Groundtruth/AllLabels/Labels_map.txt", "1\n", "1 lines, but ImageList/Imagelist.txt has 40"),
        ("NUS_WID_Tags/All_Tags.txt", "7 nikon\n" * 40, "a line begins with 7, but ImageList/Imagelist.txt"),
    ],
)
def test_files_that_do_not_fit_each_other_are_refused(folder, file, text, fault):
    (folder / file).write_text(text)
    result = CliRunner().invoke(main, [str(folder)])
    assert result.exit_code == 2
    assert fault in result.output
    assert not (folder / "table.jsonl").exists()
