"""The stages that measure layers and draw them, in a finished project."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fne.cli import main as cli
from fne.report.frame import Frame
from fne.report.layers_page import render_layers
from fne.store.catalog import read_captions, write_captions
from fne.store.rows import write_without_rows
from stages.layers_page import main as layers_page
from stages.probe_layers import main as probe_layers
from tests.support.projects import change_params

MEASURE = ["data/captions.jsonl", "metrics/layers.json"]
DRAW = ["metrics/layers.json", "data/images.jsonl", "data/captions.jsonl", "report/layers.html"]


@pytest.fixture
def project(finished, tmp_path, monkeypatch):
    shutil.copytree(finished, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")


def run(command, arguments):
    return CliRunner().invoke(command, arguments)


def test_layers_are_measured_listed_verified_and_drawn(project):
    result = run(probe_layers, MEASURE)
    assert result.exit_code == 0, result.output
    assert "best single layer by recall: " in result.output
    found = json.loads(Path("metrics/layers.json").read_text())
    assert [layer["name"] for layer in found["layers"]][:2] == ["conv1", "conv2"]
    result = run(layers_page, DRAW)
    assert result.exit_code == 0, result.output
    page = Path("report/layers.html").read_text()
    assert "Untrained weights:" in page
    assert page.count("<rect ") == len(found["layers"]) ** 2
    assert page.count("data:image/jpeg") >= 3
    listed = run(cli, ["inspect", "metrics/layers.json"])
    assert "all    all layers" in listed.output
    checked = run(cli, ["verify", "metrics/layers.json", "report/layers.html"])
    assert checked.exit_code == 0, checked.output


def test_tags_are_probed_without_captions(project):
    shutil.rmtree("captions")  # the stage `tokenize` refuses such a data set
    records, _ = read_captions(Path("data/captions.jsonl"))
    tagged = [
        replace(each, captions=(), tags=("a",) * ("e" in each.id.partition("-")[0])) for each in records
    ]
    write_captions(Path("data/captions.jsonl"), tagged)
    result = run(probe_layers, MEASURE)
    assert result.exit_code == 0, result.output
    assert "no captions: recall and similarity with the text were not measured" in result.output
    found = json.loads(Path("metrics/layers.json").read_text())
    assert found["label_metric"] == "mAP"
    assert all({"probe", "cosine", "euclidean"} <= set(layer) for layer in found["layers"])
    assert run(layers_page, DRAW).exit_code == 0
    assert "There are no captions" in Path("report/layers.html").read_text()


def test_a_store_without_rows_names_the_key(project):
    change_params(Path(), {"embed": {"source": "features/nothing"}})
    write_without_rows(Path("features/nothing"), "activations", "embed.source was 'x'", {})
    result = run(probe_layers, MEASURE)
    assert result.exit_code == 2
    assert "features/nothing: has no rows to measure; set embed.source" in result.output
    assert not Path("metrics/layers.json").exists()


def test_images_without_a_validation_split_are_refused_in_one_line(project):
    records, _ = read_captions(Path("data/captions.jsonl"))
    write_captions(Path("data/captions.jsonl"), [each for each in records if each.split != "val"])
    result = run(probe_layers, MEASURE)
    assert result.exit_code == 2
    assert "and 0 validation images have rows" in result.output


def test_a_damaged_file_is_refused_by_the_page_and_by_inspect(project):
    assert run(probe_layers, MEASURE).exit_code == 0
    path = Path("metrics/layers.json")
    path.write_text(path.read_text().replace('"dead": 0', '"dead": 1', 1))
    for result in (run(layers_page, DRAW), run(cli, ["inspect", "metrics/layers.json"])):
        assert result.exit_code == 2
        assert "metrics/layers.json: damaged" in result.output
        assert "dvc repro pipelines/layers/dvc.yaml" in result.output


def test_names_of_layers_and_images_are_shown_and_never_run():
    hostile = "<script>alert(1)</script>"
    part = {"kind": "layer", "name": hostile, "features": 2, "rsum": 10.0, "low": 9.0, "high": 11.0}
    found = {
        "images": {"train": 5, "val": 2},
        "chance": 5.0,
        "labels": 0,
        "label_metric": None,
        "layers": [{"name": hostile, "features": 2, "cka_text": None}],
        "sets": [part],
        "cka": [[None]],
        "agreement": {"cka_text": None},
        "neighbors": {hostile: {hostile: [hostile]}},
    }
    page = render_layers(found, Frame({}, [], "demo", "{}", {}))
    assert hostile not in page
    assert "&lt;script&gt;alert(1)" in page
