import os
from pathlib import Path

import numpy as np
import pytest

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
from tests.support.commands import fne, refused
from tests.support.features import write_store

MADE_FROM = {"images": {"digest": "a" * 64, "settings": {}}}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


CONV = [Layer("conv", 3)]


def inspect(*paths) -> list[str]:
    result = fne("inspect", *paths)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def fault(path) -> str:
    return refused("inspect", path).removeprefix("Error: ")


def write(name: str, ids, kind="activations", layers=CONV, **options) -> None:
    """Write a row store of zeros."""
    rows = dict.fromkeys(ids, np.zeros(sum(layer.features for layer in layers), np.float32))
    write_store(Path(name), kind, layers, rows, **options)


def test_a_row_store_tells_its_rows_layers_and_origin():
    layers = [Layer("conv", 1), Layer("fc", 2)]
    write("s", "ab", layers=layers, settings={"crops": "ten"}, lineage=MADE_FROM)
    lines = inspect("s")
    assert lines[0].startswith("s: activations, 2 rows of 3 values, ")
    assert lines[1] == "  type      float32"
    said = ["  layers    conv 1, fc 2", "  made with", "    crops: ten", "  made from"]
    assert lines[3:] == [*said, f"    images         {'a' * 64}"]


def test_rows_are_counted_by_the_splits_of_the_catalog(folder):
    records = [Captioned("a", "train", ("x", "y"), ()), Captioned("b", "gallery", (), ())]
    write_captions(folder / "data/captions.jsonl", records)
    write("images", "abc", "vectors")
    write("captions", ["a#0", "a#1"], "vectors")
    lines = inspect("images", "captions")
    assert "  rows      1 train, 1 gallery, 1 not in the catalog" in lines
    assert "  rows      2 train" in lines


def test_a_damaged_row_store_is_not_described_as_if_it_were_whole(folder):
    write("s", "ab")
    (folder / "s/shard-0000.h5").write_bytes(b"<html>")
    assert fault("s").startswith("s/shard-0000.h5: damaged: expected ")


def test_the_stage_that_makes_an_artifact_is_named(folder):
    Path("dvc.yaml").write_text("stages: {tokenize: {cmd: x, outs: [vocabulary.json]}}")
    write_vocabulary(folder / "vocabulary.json", ["<unk>", "a"], {})
    assert inspect("vocabulary.json")[-1] == "  made by   stage tokenize"


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


RECALLS = {"R@1": 10.0, "R@5": 20.0, "R@10": 30.0}


def figures(images: int, chance: float, **more: float) -> dict[str, object]:
    both = dict.fromkeys(("image_to_text", "text_to_image"), RECALLS | more)
    return both | {"rsum": 120.0, "chance": chance, "images": images, "captions": 5 * images}


def test_metrics_come_as_a_table(folder):
    write_metrics(folder / "m.json", {"test_full": figures(50, 62.2, median_rank=4.0, mean_rank=5.25)})
    assert inspect("m.json") == [
        "m.json: test_full, 50 images, 250 captions",
        "                  R@1   R@5  R@10  median rank  mean rank",
        "  image to text  10.0  20.0  30.0          4.0        5.2",
        "  text to image  10.0  20.0  30.0          4.0        5.2",
        "  sum of recalls 120.0 of 600; chance 62.2",
    ]


@pytest.mark.parametrize(
    ("split", "images", "chance", "warning"),
    [
        (
            "val_full",
            50,
            62.2,
            "these images chose the epoch, so the figures are the best of many and too high",
        ),
        (
            "test_full",
            4,
            429.0,
            "among 4 images chance scores 429.0 of 600, so the sum of recalls says little",
        ),
    ],
)
def test_figures_that_say_too_much_or_too_little_carry_a_warning(folder, split, images, chance, warning):
    write_metrics(folder / "m.json", {split: figures(images, chance)})
    *_, scored, said = inspect("m.json")
    assert scored == f"  sum of recalls 120.0 of 600; chance {chance}"
    assert said.startswith(f"  Warning: {warning}; ")


def test_the_metrics_of_the_baseline_come_as_a_table_too(folder):
    values = figures(50, 62.2, median_rank=4.0, mean_rank=5.25)
    write_metrics(folder / "m.json", {"test_full": values, "made_with": {"dim": 512}, "made_from": {}})
    assert "  sum of recalls 120.0 of 600; chance 62.2" in inspect("m.json")


def test_training_metrics_say_how_the_training_went(folder):
    went = {"best_epoch": 3, "epochs": 12, "updates": 1200, "started": False, "collapsed": True}
    write_metrics(folder / "training.json", {"validation": figures(50, 62.2)} | went)
    found = inspect("training.json")
    assert found[0] == "training.json: validation, 50 images, 250 captions"
    said = "  training  did not start, collapsed to one point; best epoch 3 of 12, 1,200 updates"
    assert found[-1] == said


def test_damaged_training_metrics_are_refused_in_one_line(folder):
    write_metrics(folder / "training.json", {})
    said = "training.json: damaged ({}); run `dvc repro train`\n".format
    assert fault("training.json") == said("KeyError('started')")
    (folder / "training.json").write_text("{}")
    assert fault("training.json") == said("it has no seal")


def test_the_report_tells_how_to_open_it(folder):
    (folder / "index.html").write_text("")
    assert inspect("index.html") == [f"index.html: the report; open file://{folder}/index.html in a browser"]


UNKNOWN = "not an artifact of the pipeline; known kinds: row stores, "


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("models/x", None, "no such file or folder; run `dvc repro`, or `dvc pull` to fetch it\n"),
        ("a.txt", "", UNKNOWN),
        ("noext", "", UNKNOWN),
        *(("x.json", content, UNKNOWN) for content in ("{}", "[]", '{"test": 1}')),
        ("x.json", '{"test": {"image_to_text": {"R@1": [1, 2]}}}', UNKNOWN),
        ("x.json", "{", "damaged ("),
        *(("tuning.json", content, "damaged (") for content in ("{", "[]", '{"epochs": 1}')),
        ("tuning.json", '{"epochs": 1, "sha256": ["0"]}', "damaged ("),
    ],
)
def test_something_else_is_refused_with_what_could_be_inspected(folder, name, content, said):
    if content is not None:
        (folder / name).write_text(content)
    assert fault(name).startswith(f"{name}: {said}")


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
    assert fault("empty").startswith("empty: not an artifact of the pipeline")


@pytest.mark.parametrize(
    ("processors", "said"),
    [("EPYC", "EPYC"), ({"EPYC": ["a", "b"], "Xeon": ["c"]}, "EPYC (2 rows), Xeon (1 rows)")],
)
def test_the_processors_that_computed_a_row_store_are_printed(folder, processors, said):
    shards = [(0, ["a", "b", "c"], np.zeros((3, 1), np.float32))]
    write_rows(folder / "s", "activations", [Layer("conv", 1)], "float32", shards, {}, {}, processors)
    assert f"  computed  by {said}" in inspect("s")


@pytest.mark.parametrize("command", ["inspect", "verify"])
@pytest.mark.parametrize(
    "name", ["f.json", "f.h5", "f.safetensors", "images.jsonl", "rejects.csv", "vocabulary.json"]
)
def test_a_pipe_in_the_place_of_an_artifact_is_refused_at_once(command, name):
    os.mkfifo(name)
    said = refused(command, name)
    assert "not a regular file" in said or "not an artifact" in said


def test_a_classifier_tells_its_classes(folder):
    settings = InstanceLoss(classes=0, dropout=0.5, bias=False, bias_rate=2.0)
    classes = Classes(new_instance(3, 4, settings, seed=0), {"a": 0, "b": 1, "c": 2})
    made_from = Artifact(Path("m"), "model", "d" * 64, {}, {})
    write_classifier(folder / "classifier.safetensors", classes, {"seed": 0}, made_from)
    said = "classifier.safetensors: classifier, 3 classes of 3 training images, 4 dimensions, "
    assert inspect("classifier.safetensors")[0].startswith(said)
