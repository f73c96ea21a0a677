import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from fne.cli import main
from fne.core.errors import InputError
from fne.datasets.readers.table import read_table
from fne.describing.model_file import read_describing_file, read_describing_model
from fne.describing.settings import CAPTIONER, TAGGER, Writing
from fne.describing.write import Writer, caption_search
from fne.search.describe_photo import Described, Wanted, check_table, describe_tags
from fne.store.catalog import read_captions, write_captions
from fne.store.rows import Rows
from fne.store.tensors import read_sealed, write_sealed
from stages.train_captioner import main as train_captioner
from tests.support.projects import change_params
from tests.support.search import draw

MODEL = Path("models/tagger.safetensors")


def run(*words):
    return CliRunner().invoke(main, ["describe", *words])


def said(*words):
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_an_image_of_the_catalog_gets_tags_concepts_and_its_true_tags(project):
    lines = said("red-circle.png").splitlines()
    assert lines[0] == "red-circle.png"
    assert lines[1].startswith("  tags       ")
    assert lines[2] == "  true tags  red, circle"
    assert lines[3].startswith("  concepts   ")
    assert len(lines) == 4


def test_the_answer_is_what_the_model_says(project):
    tagger, file = read_describing_model(MODEL, TAGGER)
    rows = Rows.open(Path("features/embeddings")).read(["blue-line.png"]).astype(np.float32)
    expected = Writer(tagger, file.vocabulary).tag(rows)
    found = json.loads(said("blue-line.png", "--json", "--k", "3"))
    names = file.vocabulary.concepts.names
    assert found["tags"] == [names[number] for number in expected.written[0]]
    assert list(found["concepts"].values()) == pytest.approx(
        sorted(expected.probabilities[0].tolist(), reverse=True)[:3], abs=1e-4
    )
    assert (found["image"], found["file"]) == ("blue-line.png", "photos/blue-line.png")


def test_a_photo_is_described_like_its_copy_in_the_catalog(project, tmp_path):
    draw(tmp_path / "elsewhere.png", "red", "circle")
    copy, original = json.loads(said(str(tmp_path / "elsewhere.png"), "red-circle.png", "--json"))
    assert (copy["tags"], copy["concepts"]) == (original["tags"], original["concepts"])
    # Another picture is not in the catalog: its embedding is computed as those of the catalog were.
    draw(tmp_path / "new.png", "black", "line")
    new = json.loads(said(str(tmp_path / "new.png"), "--json"))
    assert new["image"] == str(tmp_path / "new.png")
    assert "true_tags" not in new
    assert len(new["concepts"]) == 9  # the training images are circles of eight colors


def test_a_folder_becomes_a_table_that_the_catalog_reads(project, tmp_path):
    photos = tmp_path / "photos"
    draw(photos / "a/one.png", "red", "circle")
    draw(photos / "=two.png", "blue", "line")
    (photos / "broken.jpg").write_bytes(b"no image")
    result = run("--in", str(photos), "--output", str(photos / "tags.csv"))
    assert result.exit_code == 0, result.output
    assert "1 file skipped, not readable as images: broken.jpg" in result.stderr
    assert "2 images described" in result.stderr
    rows = list(csv.DictReader((photos / "tags.csv").read_text().splitlines()))
    assert [row["image"] for row in rows] == ["./=two.png", "a/one.png"]
    assert all(row["written_by"].startswith("fne describe (tagger.safetensors ") for row in rows)
    one = json.loads(said("red-circle.png", "--json"))
    assert rows[1]["tags"].split(";") == (one["tags"] or [""])
    records = read_table(photos, [photos / "tags.csv"]).records
    assert [record.id for record in records] == ["=two.png", "a/one.png"]
    assert records[1].tags == tuple(sorted(one["tags"]))
    # Its own table is replaced, and no other one.
    assert run("--in", str(photos), "--output", str(photos / "tags.csv")).exit_code == 0
    (tmp_path / "mine.csv").write_text("image,caption\n")
    refused = run("--in", str(photos), "--output", str(tmp_path / "mine.csv"))
    assert refused.exit_code == 2
    assert "this command did not write it, so it is not replaced" in refused.stderr


def test_a_table_can_be_jsonl(project, tmp_path):
    said("red-circle.png", "blue-line.png", "--output", str(tmp_path / "t.jsonl"), "--only", "tags")
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [row["image"] for row in rows] == ["red-circle.png", "blue-line.png"]
    assert [sorted(row) for row in rows] == [["image", "tags", "written_by"]] * 2


def test_only_some_values_can_be_wanted(project):
    assert json.loads(said("red-circle.png", "--json", "--only", "concepts")).keys() == {
        "image",
        "file",
        "concepts",
    }


def test_without_a_model_the_command_that_makes_it_is_named(project):
    MODEL.unlink()
    result = run("red-circle.png", "--only", "tags")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: nothing can be described yet: no models/tagger.safetensors (tags and concepts); "
        "`dvc repro pipelines/tagging/dvc.yaml` makes it\n",
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["red-circle.png", "--only", "tag"], "--only: 'tag' is not one of 'caption', 'concepts', 'tags'"),
        (["red-circl.png"], "catalog (did you mean 'red-circle.png'?); name an image"),
        (["params.yaml"], "; use an image file"),
        (["--in", "empty"], "has no readable images"),
        ([], "give images, or --in FOLDER"),
        (["red-circle.png", "--in", "photos"], "give images, or --in FOLDER"),
    ],
)
def test_what_cannot_be_described_is_refused_with_what_helps(project, words, reason):
    Path("empty").mkdir()
    result = run(*words)
    assert result.exit_code == 2
    assert reason in result.stderr


def test_a_catalog_of_another_data_set_is_refused_with_both_digests(project):
    captioned, _ = read_captions(Path("data/captions.jsonl"))
    write_captions(Path("data/captions.jsonl"), captioned[1:])
    result = run("red-circle.png")
    assert result.exit_code == 2
    assert "was made from captions" in result.stderr
    assert "data/captions.jsonl holds captions" in result.stderr


def test_a_damaged_model_is_refused(project):
    content = bytearray(MODEL.read_bytes())
    content[-5] ^= 1
    MODEL.write_bytes(content)
    assert "damaged: expected" in run("red-circle.png").stderr


def test_a_model_of_another_task_is_refused(project):
    description, tensors = read_sealed(MODEL)
    write_sealed(MODEL, description | {"name": "captioner"}, tensors)
    result = run("red-circle.png", "--only", "tags")
    assert result.stderr == (
        "Error: models/tagger.safetensors: is a captioner, not a tagger; run `dvc repro pipelines/tagging/dvc.yaml`\n"
    )


def test_torch_is_imported_only_where_something_is_described(project):
    code = "import sys, fne.search.describe_photo; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_tag_with_a_semicolon_cannot_be_written_as_csv(project, tmp_path):
    description, tensors = read_sealed(MODEL)
    names = description["vocabulary"]["concepts"]["names"]
    description["vocabulary"]["concepts"]["names"] = [f"{name};" for name in names]
    description["shape"]["outputs"] = 0  # so that the likeliest concepts are the tags
    kept = {name: value for name, value in tensors.items() if not name.startswith("decoder.")}
    write_sealed(MODEL, description, kept)
    result = run("red-circle.png", "--output", str(tmp_path / "t.csv"))
    assert result.exit_code == 2
    assert "has a ';', which separates tags in CSV; use a name that ends with .jsonl" in result.stderr
    assert run("red-circle.png", "--output", str(tmp_path / "t.jsonl")).exit_code == 0


def test_a_table_needs_a_known_ending(tmp_path):
    with pytest.raises(InputError) as caught:
        check_table(tmp_path / "t.txt")
    assert caught.value.message == f"--output: {tmp_path}/t.txt must end with .csv or .jsonl"


def test_user_tags_of_the_catalog_are_read(project, tmp_path):
    """A tagger that reads user tags says something else about an image that has one."""
    description, tensors = read_sealed(MODEL)
    concepts = len(description["vocabulary"]["concepts"]["names"])
    description["vocabulary"]["user_tags"] = ["sunset"]
    description["shape"] |= {"user_tags": 1, "user_tag_hidden": 1}
    tensors |= {
        "user_tag_reader.hidden.0.weight": torch.ones(1, 1),
        "user_tag_reader.hidden.0.bias": torch.zeros(1),
        "user_tag_reader.concepts.weight": torch.full((concepts, 1), 3.0),
        "user_tag_reader.concepts.bias": torch.zeros(concepts),
    }
    path = tmp_path / "reader.safetensors"
    write_sealed(path, description, tensors)
    rows = np.zeros((2, description["shape"]["features"]), np.float32)
    images = [Described("a", None), Described("b", None, ["sunset", "unknown"])]
    plain, informed = describe_tags(read_describing_file(path, TAGGER), images, rows, Wanted(concepts))
    assert all(informed["concepts"][name] > plain["concepts"][name] for name in plain["concepts"])


@pytest.fixture
def captioned(project):
    """Train a captioner in the project, too."""
    small = {"units": 8, "word_dim": 6, "batch": 8, "epochs": 1, "min_count": 1}
    change_params(project, {"train_captioner": small})
    words = "features/embeddings data/captions.jsonl models/captioner.safetensors models/captioner_history"
    result = CliRunner().invoke(train_captioner, words.split())
    assert result.exit_code == 0, result.output
    return project


def test_a_sentence_and_its_alternatives_come_first(captioned):
    lines = said("red-circle.png", "--beam", "4").splitlines()
    assert [line[:12].split() for line in lines] == [
        ["red-circle.p"], ["sentence"], [], [], [], ["tags"], ["true", "tags"], ["concepts"],
    ]  # fmt: skip
    assert all(line.endswith(")") for line in lines[1:5])


def test_the_sentence_is_what_the_captioner_writes(captioned):
    captioner, file = read_describing_model(Path("models/captioner.safetensors"), CAPTIONER)
    writer = Writer(captioner, file.vocabulary)
    ids = ["blue-line.png", "red-circle.png"]
    rows = Rows.open(Path("features/embeddings")).read(ids)
    for beam in (1, 3, 7):
        expected = writer.caption(ids, rows, caption_search(Writing(beam=beam)), top=3)
        found = json.loads(said(*ids, "--json", "--only", "caption", "--beam", str(beam)))
        for each, written in zip(found, expected, strict=True):
            assert each.keys() == {"image", "file", "caption", "sentences"}
            assert each["caption"] == written.caption
            assert [sentence["text"] for sentence in each["sentences"]] == [
                sentence.text for sentence in written.sentences
            ]
            assert each["sentences"][0]["log_probability"] == pytest.approx(
                written.sentences[0].log_probability, abs=1e-3
            )


def test_the_beam_of_the_parameter_file_is_used_unless_another_is_given(captioned):
    change_params(captioned, {"write_captions": {"beam": 2}})
    assert len(json.loads(said("red-circle.png", "--json"))["sentences"]) == 2


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"beam": "two"}, "beam: input should be a valid integer, got 'two'"),
        ({"beam": 0}, "beam: input should be greater than or equal to 1, got 0"),
        ({"beam": -2}, "beam: input should be greater than or equal to 1, got -2"),
        ({"beam": 2.5}, "beam: input should be a valid integer, got 2.5"),
        ({"max_length": 0}, "max_length: input should be greater than or equal to 1, got 0"),
        ({"length_power": 5000.0}, "length_power: input should be less than or equal to 10, got 5000.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused_where_sentences_are_wanted(captioned, changes, fault):
    change_params(captioned, {"write_captions": changes})
    result = run("red-circle.png")
    assert (result.exit_code, result.stderr) == (
        2,
        f"Error: params.yaml: section 'write_captions': {fault}\n",
    )
    assert run("red-circle.png", "--only", "tags").exit_code == 0


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--json"], "give --json or --output, not both"),
        (["--only", "concepts"], "--output: a table for `catalog` has no concepts; use --json"),
    ],
)
def test_options_that_a_table_would_ignore_are_refused(captioned, options, fault):
    result = run("red-circle.png", "--output", "new.csv", *options)
    assert result.exit_code == 2
    assert result.stderr.endswith(f"Error: {fault}\n")
    assert not Path("new.csv").exists()


def test_a_table_of_sentences_is_a_data_set(captioned, tmp_path):
    photos = tmp_path / "photos"
    draw(photos / "one.png", "red", "circle")
    assert (
        run("--in", str(photos), "--output", str(photos / "written.csv"), "--only", "caption").exit_code == 0
    )
    (record,) = read_table(photos, [photos / "written.csv"]).records
    assert record.captions == (json.loads(said(str(photos / "one.png"), "--json"))["caption"],)


def test_a_captioner_alone_says_how_to_make_the_other(captioned):
    MODEL.unlink()
    result = run("red-circle.png")
    assert result.exit_code == 0
    assert result.stderr == (
        "Note: no models/tagger.safetensors (tags and concepts); `dvc repro pipelines/tagging/dvc.yaml` makes it\n"
    )
