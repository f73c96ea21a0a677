import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fne.cli import main
from fne.matching.classifier_file import write_classifier
from fne.matching.instance_loss import Classes, new_instance
from fne.matching.model import Shape, new_matcher
from fne.matching.model_file import write_model
from fne.matching.settings import InstanceLoss
from fne.store.arrays import write_arrays
from fne.store.artifact import Artifact
from fne.store.catalog import Captioned, Image, write_captions, write_images
from fne.store.checksums import write_metrics
from fne.store.layout import Layer
from fne.store.rows import write_rows
from fne.text.vocabulary import write_vocabulary

MADE_FROM = {"images": {"digest": "a" * 64, "settings": {}}}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def inspect(*paths) -> list[str]:
    result = CliRunner().invoke(main, ["inspect", *paths])
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def fault(path) -> str:
    result = CliRunner().invoke(main, ["inspect", path])
    assert result.exit_code == 2
    return result.stderr


def test_a_row_store_tells_its_rows_layers_and_origin(folder):
    rows = np.zeros((2, 3), dtype=np.float32)
    layers = [Layer("conv", 1), Layer("fc", 2)]
    write_rows(
        folder / "s", "activations", layers, "float32", [(0, ["a", "b"], rows)], {"crops": "ten"}, MADE_FROM
    )
    lines = inspect("s")
    assert lines[0].startswith("s: activations, 2 rows of 3 values, ")
    assert lines[1:2] + lines[3:] == [
        "  type      float32",
        "  layers    conv 1, fc 2",
        "  made with",
        "    crops: ten",
        "  made from",
        f"    images         {'a' * 64}",
    ]


def test_rows_are_counted_by_the_splits_of_the_catalog(folder):
    records = [Captioned("a", "train", ("x", "y"), ()), Captioned("b", "gallery", (), ())]
    write_captions(folder / "data/captions.jsonl", records)
    for name, ids in (("images", ["a", "b", "c"]), ("captions", ["a#0", "a#1"])):
        rows = np.zeros((len(ids), 3), dtype=np.float32)
        write_rows(folder / name, "vectors", [Layer("joint", 3)], "float32", [(0, ids, rows)], {}, {})
    lines = inspect("images", "captions")
    assert "  rows      1 train, 1 gallery, 1 not in the catalog" in lines
    assert "  rows      2 train" in lines


def test_the_stage_that_makes_an_artifact_is_named(folder):
    Path("dvc.yaml").write_text("stages: {tokenize: {cmd: x, outs: [vocabulary.json]}}")
    write_vocabulary(folder / "vocabulary.json", ["<unk>", "a"], {})
    assert inspect("vocabulary.json")[-1] == "  made by   stage tokenize"


def test_a_damaged_row_store_is_not_described_as_if_it_were_whole(folder):
    rows = np.zeros((2, 3), dtype=np.float32)
    write_rows(folder / "s", "activations", [Layer("conv", 3)], "float32", [(0, ["a", "b"], rows)], {}, {})
    (folder / "s/shard-0000.h5").write_bytes(b"<html>")
    assert fault("s").startswith("Error: s/shard-0000.h5: damaged: expected ")


def test_a_file_of_arrays_tells_types_and_shapes(folder):
    write_arrays(folder / "a.h5", "statistics", {"mean": np.zeros(3), "ids": ["x"]}, {"images": 1}, MADE_FROM)
    lines = inspect("a.h5")
    assert lines[0].startswith("a.h5: statistics, ")
    assert lines[2:4] == ["  ids                  text (1,)", "  mean                 float64 (3,)"]


def test_a_model_tells_its_weights_and_settings(folder):
    matcher = new_matcher(
        Shape("linear", "gru", "cosine", False, 4, 3, 2, 2, text_encoder_settings={"initial": "torch"}),
        seed=0,
    )
    write_model(folder / "m.safetensors", matcher, {"margin": 0.2}, MADE_FROM)
    lines = inspect("m.safetensors")
    assert lines[0].startswith("m.safetensors: model, 50 weights, ")
    assert "    margin: 0.2" in lines


def test_catalog_files_and_vocabulary_tell_their_counts(folder):
    write_images(folder / "images.jsonl", [Image("a", "a", "0", 1000, 2, 3)])
    write_captions(folder / "captions.jsonl", [Captioned("a", "train", ("x", "y"), ())])
    write_vocabulary(folder / "vocabulary.json", ["<unk>", "a", "dog"], {"min_count": 1})
    lines = inspect("images.jsonl", "captions.jsonl", "vocabulary.json")
    size = {name: (folder / name).stat().st_size for name in os.listdir(folder)}
    assert f"images.jsonl: catalog of 1 images, {size['images.jsonl']} bytes" in lines
    assert "  images    1,000 bytes in all" in lines
    assert f"captions.jsonl: catalog of 2 captions of 1 images, {size['captions.jsonl']} bytes" in lines
    assert "  train     1 images, 2 captions" in lines
    assert f"vocabulary.json: vocabulary, 2 words, {size['vocabulary.json']} bytes" in lines
    assert "  frequent  a dog" in lines


def test_metrics_come_as_a_table(folder):
    direction = {"R@1": 10.0, "R@5": 20.0, "R@10": 30.0, "median_rank": 4.0, "mean_rank": 5.25}
    metrics = {
        "image_to_text": direction,
        "text_to_image": direction,
        "rsum": 120.0,
        "chance": 62.2,
        "images": 5,
        "captions": 25,
    }
    write_metrics(folder / "m.json", {"test_full": metrics})
    assert inspect("m.json") == [
        "m.json: test_full, 5 images, 25 captions",
        "                         R@1          R@5         R@10  median rank    mean rank",
        "  image to text         10.0         20.0         30.0          4.0          5.2",
        "  text to image         10.0         20.0         30.0          4.0          5.2",
        "  sum of recalls 120.0 of 600; chance 62.2",
    ]


def test_figures_of_the_split_that_chose_the_epoch_carry_a_warning(folder):
    direction = {"R@1": 10.0}
    metrics = {
        "image_to_text": direction,
        "text_to_image": direction,
        "rsum": 20.0,
        "chance": 6.4,
        "captions": 250,
    }
    write_metrics(folder / "m.json", {"val_full": metrics | {"images": 50}})
    assert inspect("m.json")[-1] == (
        "  Warning: these images chose the epoch, so the figures are the best of many and too high; "
        "report a test split"
    )


def test_what_chance_would_score_is_shown_beside_the_sum_of_recalls(folder):
    direction = {"R@1": 10.0, "R@5": 20.0, "R@10": 30.0}
    metrics = {"image_to_text": direction, "text_to_image": direction, "rsum": 120.0, "captions": 250}
    for images, chance, more in (
        (50, 62.2, []),
        (
            4,
            429.0,
            [
                "  Warning: among 4 images chance scores 429.0 of 600, so the sum of recalls says little; "
                "score 100 images or more"
            ],
        ),
    ):
        content = metrics | {"images": images, "chance": chance}
        write_metrics(folder / "m.json", {"test_full": content})
        expected = [f"  sum of recalls 120.0 of 600; chance {chance}", *more]
        assert inspect("m.json")[-len(expected) :] == expected


def test_training_metrics_say_how_the_training_went(folder):
    direction = {"R@1": 10.0, "R@5": 20.0, "R@10": 30.0}
    figures = {"rsum": 120.0, "chance": 62.2, "images": 50, "captions": 250}
    content = {
        "validation": {"image_to_text": direction, "text_to_image": direction} | figures,
        "best_epoch": 3,
        "epochs": 12,
        "updates": 1200,
        "started": False,
        "collapsed": True,
    }
    write_metrics(folder / "training.json", content)
    found = inspect("training.json")
    assert found[0] == "training.json: validation, 50 images, 250 captions"
    assert found[-1] == (
        "  training  did not start, collapsed to one point; best epoch 3 of 12, 1,200 updates"
    )


def test_damaged_training_metrics_are_refused_in_one_line(folder):
    for content, reason in (({}, "KeyError('started')"), (None, "it has no seal")):
        if content is None:
            (folder / "training.json").write_text("{}")
        else:
            write_metrics(folder / "training.json", content)
        result = CliRunner().invoke(main, ["inspect", "training.json"])
        expected = f"Error: training.json: damaged ({reason}); run `dvc repro train`\n"
        assert (result.exit_code, result.stderr) == (2, expected)


def test_the_report_tells_how_to_open_it(folder):
    (folder / "index.html").write_text("")
    assert inspect("index.html") == [f"index.html: the report; open file://{folder}/index.html in a browser"]


def test_nothing_there_says_how_to_get_it():
    assert fault("models/x") == (
        "Error: models/x: no such file or folder; run `dvc repro`, or `dvc pull` to fetch it\n"
    )


@pytest.mark.parametrize("name", ["a.txt", "noext"])
def test_something_else_is_refused_with_what_could_be_inspected(folder, name):
    (folder / name).write_text("")
    assert fault(name).startswith(
        f"Error: {name}: not an artifact of the pipeline; known kinds: row stores, "
    )


@pytest.mark.parametrize(
    "content", ["{}", "[]", '{"test": 1}', '{"test": {"image_to_text": {"R@1": [1, 2]}}}']
)
def test_another_json_file_is_refused(folder, content):
    (folder / "x.json").write_text(content)
    assert fault("x.json").startswith(
        "Error: x.json: not an artifact of the pipeline; known kinds: row stores, "
    )


def test_a_damaged_json_file_is_refused(folder):
    (folder / "x.json").write_text("{")
    assert fault("x.json").startswith("Error: x.json: damaged (")


@pytest.mark.parametrize("content", ["{", "[]", '{"epochs": 1, "sha256": ["0"]}', '{"epochs": 1}'])
def test_damaged_metrics_of_tuning_are_one_line(folder, content):
    (folder / "tuning.json").write_text(content)
    assert fault("tuning.json").startswith("Error: tuning.json: damaged (")


def test_whatever_else_a_stage_makes_tells_its_size_and_the_stage(folder):
    Path("dvc.yaml").write_text("stages: {render: {cmd: x, outs: [photos, rejects.csv, x.json]}}")
    (folder / "photos/more").mkdir(parents=True)
    (folder / "photos/more/a").write_text("abc")
    (folder / "rejects.csv").write_text("id\n")
    (folder / "x.json").write_text("{}")
    assert inspect("photos")[::2] == ["photos: 1 files, 3 bytes", "  made by   stage render"]
    assert inspect("rejects.csv") == [
        "rejects.csv: 1 files, 3 bytes",
        "  md5       49f96038f20aa062772267b640a18d79",
        "  made by   stage render",
    ]
    assert inspect("x.json")[0] == "x.json: 1 files, 2 bytes"
    assert inspect(str(folder / "x.json"))[-1] == "  made by   stage render"


def test_a_folder_without_a_store_is_refused(folder):
    (folder / "empty").mkdir()
    assert fault("empty").startswith("Error: empty: not an artifact of the pipeline")


@pytest.mark.parametrize(
    ("processors", "said"),
    [("EPYC", "EPYC"), ({"EPYC": ["a", "b"], "Xeon": ["c"]}, "EPYC (2 rows), Xeon (1 rows)")],
)
def test_the_processors_that_computed_a_row_store_are_printed(folder, processors, said):
    rows = np.zeros((3, 1), dtype=np.float32)
    shards = [(0, ["a", "b", "c"], rows)]
    write_rows(folder / "s", "activations", [Layer("conv", 1)], "float32", shards, {}, {}, processors)
    assert f"  computed  by {said}" in inspect("s")


@pytest.mark.parametrize("command", ["inspect", "verify"])
@pytest.mark.parametrize(
    "name", ["f.json", "f.h5", "f.safetensors", "images.jsonl", "rejects.csv", "vocabulary.json"]
)
def test_a_pipe_in_the_place_of_an_artifact_is_refused_at_once(tmp_path, monkeypatch, command, name):
    monkeypatch.chdir(tmp_path)
    os.mkfifo(name)
    result = CliRunner().invoke(main, [command, name])
    assert result.exit_code == 2
    assert "not a regular file" in result.stderr or "not an artifact" in result.stderr


def test_a_classifier_tells_its_classes(folder):
    made_from = Artifact(Path("m"), "model", "d" * 64, {}, {})
    settings = InstanceLoss(classes=0, dropout=0.5, bias=False, bias_rate=2.0)
    classes = Classes(new_instance(3, 4, settings, seed=0), {"a": 0, "b": 1, "c": 2})
    path = folder / "classifier.safetensors"
    write_classifier(path, classes, {"seed": 0}, made_from)
    lines = inspect("classifier.safetensors")
    assert lines[0].startswith(
        "classifier.safetensors: classifier, 3 classes of 3 training images, 4 dimensions, "
    )
    write_classifier(path, None, {"seed": 0}, made_from)
    assert inspect("classifier.safetensors")[0].startswith(
        "classifier.safetensors: classifier, empty: no instance loss, "
    )
