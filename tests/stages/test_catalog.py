import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fne.datasets.readers.table import COLUMNS
from stages.catalog import main
from tests.support.datasets import encoded, entry, picture, write_images, write_karpathy

RUNTIME = {"device": "cpu", "engine": "local", "threads": 0, "workers": 0, "batch": 0, "algorithm": "auto"}
NO_VAL = (
    "note: no image with captions is in split 'val', which training needs to choose its best epoch; "
    "give it some training images"
)
OUTPUTS = ("images.jsonl", "captions.jsonl", "rejects.csv", "catalog.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_karpathy(
        tmp_path / "set",
        entry("b.jpg", "train", "A dog .", "A\tdog ."),
        entry("a.jpg", "train", "Snow"),
        entry("c.jpg", "test", "A cat"),
    )
    return tmp_path


def run(folder: Path, **changes: object) -> Result:
    catalog = {"root": str(folder / "set"), "columns": dict.fromkeys(COLUMNS, "auto")} | changes
    params = {"catalog": catalog, "runtime": RUNTIME | {"scratch": str(folder / "scratch")}}
    (folder / "params.yaml").write_text(json.dumps(params))
    outs = [str(folder / name) for name in OUTPUTS]
    return CliRunner().invoke(main, [*outs, "--params", str(folder / "params.yaml")])


def fault(folder: Path, **changes: object) -> str:
    result = run(folder, **changes)
    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    return result.output.replace(str(folder), "HERE").rstrip()


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def test_the_stage_writes_two_sorted_files_and_a_summary(folder):
    result = run(folder)
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "split       images  captions   rejects",
        "train            2         3         0",
        "test             1         1         0",
        "all              3         4         0",
        "captions that repeat another one of the same image, kept: 1",
        "captions with control characters, line breaks or repeated spaces, replaced by single spaces: 1",
        f"rejects, in {folder}/rejects.csv: 0",
        NO_VAL,
    ]
    assert [image["id"] for image in records(folder / "images.jsonl")] == ["a.jpg", "b.jpg", "c.jpg"]
    known = {"id": "b.jpg", "split": "train", "captions": ["A dog .", "A dog ."], "position": 0}
    assert records(folder / "captions.jsonl")[1] == known | {"tags": [], "user_tags": []}
    assert (folder / "rejects.csv").read_text() == "id,path,caption,reason\n"


def test_a_second_run_gives_the_same_bytes(folder):
    run(folder)
    first = [(folder / name).read_bytes() for name in OUTPUTS]
    assert run(folder).exit_code == 0
    assert [(folder / name).read_bytes() for name in OUTPUTS] == first


def test_more_rejects_than_allowed_stop_the_stage_and_the_table_is_written(folder):
    (folder / "set/images/a.jpg").write_bytes(b"")
    (folder / "set/images/c.jpg").unlink()
    found = fault(folder, max_rejects=1)
    assert found.startswith(
        "Error: HERE/rejects.csv: 2 rejects, more than catalog.max_rejects = 1: 'a.jpg' (the"
    )
    assert found.endswith("; fix them, or set catalog.max_rejects to 2 to continue without them")
    assert (folder / "rejects.csv").read_text() == (
        "id,path,caption,reason\na.jpg,images/a.jpg,,the file is empty\nc.jpg,images/c.jpg,,no such file\n"
    )
    assert not (folder / "images.jsonl").exists()


def test_allowed_rejects_are_counted_in_their_split(folder):
    (folder / "set/images/a.jpg").write_bytes(b"")
    result = run(folder, max_rejects=1)
    assert result.exit_code == 0
    assert "train            1         2         1" in result.output
    assert f"rejects, in {folder}/rejects.csv: 1" in result.output
    assert [image["id"] for image in records(folder / "images.jsonl")] == ["b.jpg", "c.jpg"]


def test_a_caption_that_cannot_be_written_is_escaped_in_the_table(folder):
    write_karpathy(folder / "set", entry("a.jpg", "train", "A dog", "\ud83d, a\ndog"))
    result = run(folder, max_rejects=1)
    assert result.exit_code == 0
    assert (folder / "rejects.csv").read_text() == (
        'id,path,caption,reason\na.jpg,images/a.jpg,"\\ud83d, a\ndog",'
        "caption 1 is not valid Unicode (a lone surrogate)\n"
    )


def test_an_image_in_two_splits_stops_the_stage(folder):
    (folder / "set/images/c.jpg").write_bytes((folder / "set/images/a.jpg").read_bytes())
    same = "Error: HERE/set: 'a.jpg' (train) and 'c.jpg' (test) are the same image; remove one of them"
    assert fault(folder).startswith(same)


@pytest.mark.parametrize(
    "content", [b'{"images": NaN}', b"\xff", b'{"images": [], "images": []}', b"[" * 99_999]
)
def test_bad_json_stops_the_stage_with_one_line(folder, content):
    (folder / "set/dataset.json").write_bytes(content)
    assert fault(folder).startswith("Error: HERE/set/dataset.json: ")


@pytest.mark.parametrize(
    ("root", "more", "message"),
    [
        ("nowhere", {}, "catalog.root: 'HERE/nowhere': no such file or folder; set it to the folder"),
        ("set/dataset.json", {"annotations": "dataset.json"}, "is a file, but catalog.annotations is 'dataset.json'; set"),
        ("set/notes.pdf", {}, "HERE/set: the format of 'notes.pdf' is not clear from its name; set catalog.format to one"),
        ("some", {}, "HERE/some/c.csv: 1 of 2 images have no split (first 'b.jpg', line 3); give every image a split"),
        ("name", {}, "HERE/name/c.csv: the header has the unknown name 'splits' (did you mean 'split'?); rename"),
    ],
)  # fmt: skip
def test_a_root_that_cannot_be_read_stops_the_stage(folder, root, more, message):
    (folder / "set/notes.pdf").touch()
    for name, column, other in (("some", "split", " "), ("name", "splits", "train")):
        write_images(folder / name, "a.jpg", "b.jpg")
        lines = f"image,caption,{column}\na.jpg,A dog,train\nb.jpg,A cat,{other}\n"
        (folder / name / "c.csv").write_text(lines)
    assert message in fault(folder, root=str(folder / root), **more)


def test_an_annotation_file_can_be_the_root(folder):
    assert run(folder).exit_code == 0
    expected = [(folder / name).read_bytes() for name in OUTPUTS[:2]]
    (folder / "set/dataset_other.json").touch()  # the folder alone would be ambiguous
    assert run(folder, root=str(folder / "set/dataset.json")).exit_code == 0
    assert [(folder / name).read_bytes() for name in OUTPUTS[:2]] == expected


def test_the_images_of_an_annotation_file_of_coco_are_found_in_the_parent_folder(folder):
    write_images(folder / "coco", "val2017/c.jpg")
    (folder / "coco/annotations").mkdir()
    file = folder / "coco/annotations/captions_val2017.json"
    file.write_text('{"images": [{"id": 1, "file_name": "c.jpg"}], "annotations": []}')
    assert run(folder, root=str(file)).exit_code == 0
    assert [image["path"] for image in records(folder / "images.jsonl")] == ["val2017/c.jpg"]


def test_without_images_the_list_of_images_is_empty(folder):
    (folder / "set/images/a.jpg").unlink()
    result = run(folder, images="none")
    assert result.exit_code == 0
    assert records(folder / "images.jsonl") == []
    assert len(records(folder / "captions.jsonl")) == 3


def test_all_images_of_a_plain_folder_are_in_the_gallery(folder):
    write_images(folder / "photos", "one.jpg", "album/two.jpg")
    (folder / "photos/three.jpg").write_bytes(encoded(picture(3).convert("RGBA"), "PNG"))
    result = run(folder, root=str(folder / "photos"))
    assert result.exit_code == 0
    assert result.output.splitlines()[1:] == [
        "gallery          3         0         0",
        "all              3         0         0",
        "images named like another format, read by their content: 1",
        "images transparent, composited on white: 1",
        f"rejects, in {folder}/rejects.csv: 0",
    ]


def test_files_that_are_not_read_are_reported(folder):
    write_images(folder / "photos", "one.jpg")
    (folder / "photos/captions.xlsx").touch()
    result = run(folder, root=f"{folder}/./photos/")
    assert result.exit_code == 0
    assert "files that are neither images nor annotations, skipped ('captions.xlsx'): 1\n" in result.output
    assert "note:" not in result.output


def test_splits_without_captions_are_noted(folder):
    write_karpathy(folder / "set", entry("a.jpg"))
    result = run(folder)
    assert result.exit_code == 0
    no_val, no_test = result.output.splitlines()[-2:]
    assert no_val == NO_VAL
    assert "in split 'test', which results are reported on; hold out" in no_test
    assert "images with catalog.test_from_train=0.1, or set evaluate.split to val" in no_test


@pytest.mark.parametrize("target", ["loop.png", "nowhere.png"])
def test_a_link_that_leads_nowhere_is_rejected_with_its_reason_and_no_traceback(folder, target):
    (folder / "set/images/loop.png").symlink_to(target)
    assert run(folder).exit_code == 0
    photos = folder / "photos"
    photos.mkdir()
    for number in range(3):
        (photos / f"{number}.png").write_bytes(encoded(picture(number)))
    (photos / "loop.png").symlink_to(target)
    (photos / "loop").symlink_to("loop")
    result = run(folder, root=str(photos), max_rejects=1)
    assert result.exit_code == 0, result.output
    _, reject = (folder / "rejects.csv").read_text().splitlines()
    assert reject.startswith("loop.png,")
