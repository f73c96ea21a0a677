import json
import os
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML
from safetensors.numpy import save

from fne.core.errors import InputError
from fne.core.files import file_digest
from fne.core.settings import flattened
from fne.experiments.missing_experiments import (
    data_set_fault,
    find_missing,
    find_unfilled,
    plan,
    row_obstacle,
    runnable_methods,
)
from fne.experiments.presets import load, preset
from fne.extraction.settings import INPUTS
from fne.extraction.weights import DESCRIPTION
from tests.support import paper_runs
from tests.support.commands import fne
from tests.support.imports import ROOT
from tests.support.paper_tables import project, run, sections
from tests.support.projects import change_params, commit, dvc

PARAMS = {"catalog": {"root": "data/demo"}, "extract": {"weights": "weights/random.yaml", "shards": 4}}


def recorded(name, seed, extract=PARAMS["extract"]):
    found = sections(name, "demo")
    found["train"]["seed"] = seed
    found["catalog"] |= flattened(PARAMS["catalog"])
    return found | {"extract": found.get("extract", {}) | extract}


def test_every_method_of_a_table_is_planned_once_per_seed():
    assert len(plan("2", "flickr8k", "paper", 1)) == len(runnable_methods("2")) == 20
    assert len(plan("5", "demo", "paper", 5)) == 30
    [one, two] = plan("4", "coco", "code", 2, ["FNE-SH"])
    assert [(each.preset.name, each.seed) for each in (one, two)] == [("FNE-SH", 0), ("FNE-SH", 1)]


def test_a_run_with_the_same_data_and_weights_is_not_missing():
    wanted = plan("5", "demo", "paper", 2, ["FC7-MOE-bl"])
    found = find_missing(wanted, [recorded("FC7-MOE-bl", 1), recorded("FNE-MOE-bl", 0)], PARAMS)
    assert [each.seed for each in found] == [0]
    other_weights = recorded("FC7-MOE-bl", 1, {"weights": "weights/imagenet.yaml", "shards": 4})
    assert len(find_missing(wanted, [other_weights], PARAMS)) == 2
    other_shards = recorded("FC7-MOE-bl", 1, {"weights": "weights/random.yaml", "shards": 9})
    assert len(find_missing(wanted, [other_shards], PARAMS)) == 1


def test_a_run_that_scored_something_else_is_missing():
    """A run on COCO's 5,000 test images fills no row of Table 4, so its preset is still to be run."""
    wanted = plan("4", "coco", "paper", 1, ["FNE-SH"])
    done = sections("FNE-SH", "coco")
    done["train"]["seed"] = 0
    params = {"catalog": {"root": "coco"}, "extract": {}}
    done["catalog"]["root"] = "coco"
    assert find_missing(wanted, [done], params) == []
    done["evaluate"]["protocol"] = "full"
    assert find_missing(wanted, [done], params) == wanted


def write_dataset(folder, **splits):
    """Write a data set in Karpathy's form with so many images of each split."""
    images = [
        {"filename": f"{split}{number}.jpg", "split": split, "sentences": [{"raw": "a dog"}] * 6}
        for split, count in splits.items()
        for number in range(count)
    ]
    folder.mkdir()
    (folder / "dataset.json").write_text(json.dumps({"images": images}))


@pytest.fixture
def coco(tmp_path, monkeypatch):
    """Make a tiny COCO, count it as the paper's, and return parameters that name it."""
    monkeypatch.chdir(tmp_path)
    write_dataset(Path("coco"), train=4, restval=3, val=1003, test=2)
    Path("vgg16.safetensors").write_bytes(save({"x": np.zeros(1)}))
    monkeypatch.setitem(load("datasets")["coco"], "images", {"train": 4, "val": [1000], "test": 2})
    monkeypatch.setitem(load("weights"), "sha256", [file_digest(Path("vgg16.safetensors"))])
    shipped = YAML(typ="safe", pure=True).load(ROOT / "params.yaml")
    shipped["catalog"]["root"] = "coco"
    shipped["extract"]["weights"] = "vgg16.safetensors"
    return shipped


def obstacle(params, section=None, key=None, value=None):
    changed = {name: dict(keys) for name, keys in params.items()}
    if section:
        changed[section][key] = value
    return row_obstacle(preset("FNE-SH", "coco"), changed)


def test_a_row_can_be_filled_with_the_papers_images_and_weights_whatever_else_params_yaml_says(coco):
    assert obstacle(coco) is None
    # The preset sets these.
    assert obstacle(coco, "extract", "crops", "center") is None
    assert obstacle(coco, "extract", "backbone", "resnet18") is None
    assert obstacle(coco, "catalog", "restval", "train") is None
    assert obstacle(coco, "catalog", "val_images", 7) is None


NEED_WEIGHTS = "and rows of the paper need weights that papers/fne/weights.yaml lists (for example Caffe's"


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("embed", "source", "features/imported", "and rows of the paper need features/activations"),
        ("catalog", "images", "none", "and rows of the paper need images"),
        ("extract", "weights", "other.safetensors", NEED_WEIGHTS),
        ("extract", "weights", "random.yaml", NEED_WEIGHTS),
        ("catalog", "root", "smaller", "with 1 train, 1 val images, which are not the splits of MSCOCO"),
    ],
)
def test_what_keeps_results_out_of_the_papers_rows_is_printed(coco, section, key, value, message):
    Path("other.safetensors").write_bytes(save({"y": np.zeros(1)}))
    Path("random.yaml").write_text("kind: random\nseed: 0\n")
    write_dataset(Path("smaller"), train=1, val=1)
    said = obstacle(coco, section, key, value)
    assert said.startswith(f"params.yaml: {section}.{key} is '{value}'")
    assert message in said


def test_weights_converted_from_a_listed_file_and_named_by_a_yaml_file_fill_rows(coco, monkeypatch):
    described = {"input": INPUTS["caffe"].model_dump(), "source_sha256": "5" * 64}
    Path("caffe.safetensors").write_bytes(save({"x": np.ones(1)}, {DESCRIPTION: json.dumps(described)}))
    digest = file_digest(Path("caffe.safetensors"))
    Path("caffe.yaml").write_text(f"kind: file\nfile: caffe.safetensors\nsha256: {digest}\ninput: caffe\n")
    for name in ("caffe.safetensors", "caffe.yaml"):
        monkeypatch.setitem(load("weights"), "sources", [])
        assert "rows of the paper need weights" in obstacle(coco, "extract", "weights", name)
        monkeypatch.setitem(load("weights"), "sources", ["5" * 64])
        assert obstacle(coco, "extract", "weights", name) is None


def test_rows_of_another_paper_need_its_weights_and_its_word_vectors(coco, monkeypatch):
    wanted = preset("two-branch/VGG19-K1", "coco")
    assert "papers/two-branch/weights.yaml lists" in row_obstacle(wanted, coco)
    monkeypatch.setitem(load("weights", "two-branch"), "sha256", load("weights")["sha256"])
    Path("glove.txt").write_text("dog 1 2\n")
    coco["tokenize"]["vectors"] = "glove.txt"
    said = "tokenize.vectors is 'glove.txt', and rows of the paper need word vectors that papers/two-branch/weights.yaml"
    assert said in row_obstacle(wanted, coco)
    monkeypatch.setitem(load("weights", "two-branch"), "vectors", [file_digest(Path("glove.txt"))])
    assert "which are not the splits of MSCOCO (1,000 test images)" in row_obstacle(wanted, coco)


def test_on_the_embedded_data_set_nothing_is_an_obstacle():
    assert row_obstacle(preset("FNE-SH", "demo"), PARAMS) is None


def test_a_row_is_missing_until_a_run_belongs_to_it(monkeypatch):
    monkeypatch.setitem(load("weights"), "sha256", [paper_runs.CAFFE])
    wanted = plan("2", "flickr8k", "paper", 2, ["FNE-SH", "FC7-SH"])
    done = [paper_runs.run(seed=1), paper_runs.run("FC7-SH", stored=paper_runs.ranks(weights="d" * 64))]
    missing = [(each.preset.name, each.seed) for each in find_unfilled(wanted, done, "flickr8k", "fne")]
    assert missing == [("FC7-SH", 0), ("FC7-SH", 1), ("FNE-SH", 0)]


def test_one_run_fills_the_rows_of_two_methods_with_the_same_settings(monkeypatch):
    """On Flickr8k, the authors' launcher of FC7-SOE-bl makes it the same as FC7-SOE."""
    monkeypatch.setitem(load("weights"), "sha256", [paper_runs.CAFFE])
    wanted = plan("2", "flickr8k", "code", 1, ["FC7-SOE-bl", "FC7-SOE"])
    done = paper_runs.run("FC7-SOE", following="code")
    assert find_unfilled(wanted, [done], "flickr8k", "fne") == []


def test_the_shell_splits_a_command_into_its_arguments():
    [each] = plan("2", "flickr8k", "paper", 1, ["FNE-POE"])
    command = shlex.split(each.shell_command())
    assert command[:5] == ["dvc", "exp", "run", "--queue", "-S"]
    assert "++embed.kind=fne" in command
    assert command[-2:] == ["-S", "++train.seed=0"]


def test_a_method_of_another_table_is_refused():
    with pytest.raises(InputError, match="^Table 5: 'FNE-SH' is not one of 'FC7-MOE-bl', 'FC7-MOE-bl-abs', "):
        plan("5", "flickr8k", "paper", 1, ["FNE-SH"])


def test_parameters_with_another_data_set_are_a_fault():
    assert data_set_fault("demo", PARAMS) is None
    said = data_set_fault("flickr8k", PARAMS)
    assert "catalog.root is 'data/demo', which is not Flickr8k; set it to" in said
    assert "not the embedded data set" in data_set_fault("demo", {"catalog": {"root": "other"}})


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = project(tmp_path_factory.mktemp("plan") / "project", "FC7-MOE-bl", "demo")
    run(folder)
    return folder


@pytest.fixture
def table(original, monkeypatch):
    monkeypatch.chdir(original)
    return lambda *arguments: fne("table", *arguments)


def test_missing_experiments_are_printed_and_not_missing_once_they_are_queued(table):
    wanted = ("5", "--dataset", "demo", "--model", "FC7-MOE-bl", "--seeds", "2", "--dry")
    dry = table(*wanted)
    assert dry.exit_code == 0, dry.output
    lines = dry.stdout.splitlines()
    assert lines[0] == "# FC7-MOE-bl, seed 1"
    assert lines[1].startswith("dvc exp run --queue -S ++catalog.restval=drop ")
    assert lines[2:] == ["# 1 experiments; queue them, then `dvc queue start` runs them"]
    dvc(Path(), *shlex.split(lines[1])[1:])
    again = table(*wanted)
    assert again.stdout == "nothing is missing\n"
    assert again.stderr == "in DVC's queue: 1 more; `dvc queue start` runs them\n"


OWN_ROWS = "--own-rows plans its methods for rows of their own\n"
NO_ROW = "no row of the table can be filled: params.yaml: "


def test_parameters_with_another_data_set_fill_no_row_and_own_rows_give_a_warning(table):
    fault = "catalog.root is 'data/demo', which is not Flickr8k; set it to the folder of that data set"
    dry = table("2", "--dry", "--model", "FNE-SH")
    assert (dry.exit_code, dry.stdout) == (0, f"{NO_ROW}{fault}; {OWN_ROWS}")
    own = table("2", "--dry", "--model", "FNE-SH", "--own-rows")
    assert (own.exit_code, own.stderr) == (0, f"Warning: params.yaml: {fault}\n")
    assert own.stdout.startswith("# FNE-SH, seed 0\ndvc exp run ")


def test_weights_that_keep_results_out_of_the_papers_rows_need_own_rows(table, original):
    change_params(original, {"catalog": {"root": "coco"}})
    dry = table("4", "--dry")
    assert dry.exit_code == 0
    assert dry.stdout.startswith(f"{NO_ROW}extract.weights is 'weights/random.yaml', {NEED_WEIGHTS}")
    assert dry.stdout.endswith(OWN_ROWS)
    own = table("4", "--own-rows", "--dry")
    assert own.stdout.count("dvc exp run --queue") == 20
    assert "-S extract." not in own.stdout
    change_params(original, {"catalog": {"root": "data/demo"}})


COCO = '{"splits": {"train": 8, "val": 4, "test": 6}, "weights": "", "kind": "file"}'


@pytest.fixture
def table_4(tmp_path, monkeypatch):
    """Return the command, in a project with a tiny COCO that counts as the paper's."""
    folder = project(tmp_path / "project", "FNE-MH", "demo", COCO)
    write_dataset(folder / "coco", train=8, restval=3, val=4, test=6)
    for name, value in (("papers", 0), ("others", 1)):
        (folder / f"{name}.safetensors").write_bytes(save({"x": np.full(1, value)}))
    extract = {"weights": "papers.safetensors", "crops": "center", "backbone": "resnet18"}
    change_params(folder, {"catalog": {"root": "coco"}, "extract": extract})
    commit(folder)
    facts = load("datasets")["coco"]
    monkeypatch.setitem(facts, "images", {"train": 8, "val": 4, "test": 6})
    monkeypatch.setitem(facts, "scored", {"images": 6, "captions": [30, 30]})
    monkeypatch.setitem(load("weights"), "sha256", [file_digest(folder / "papers.safetensors")])
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return lambda *arguments: fne("table", *arguments)


def run_printed(stdout):
    """Run the commands that `--dry` printed at once, in temporary copies as `dvc queue start` does."""
    for line in stdout.splitlines():
        if not line.startswith("#"):
            dvc(Path(), *shlex.split(line.replace("--queue", "--temp"))[1:])


def test_running_table_4_on_a_synthetic_coco_fills_its_rows_and_then_nothing_is_missing(table_4):
    wanted = ("4", "--dry", "--model", "FNE-SH")
    run_printed(table_4(*wanted).stdout)
    done = table_4("4", "--format", "csv")
    assert done.exit_code == 0, done.output
    assert 'FNE-SH,"ours, paper",' in done.stdout
    assert table_4(*wanted).stdout == "nothing is missing\n"
    # With other weights, methods fill rows of their own, and keep the network of params.yaml.
    change_params(Path(), {"extract": {"weights": "others.safetensors"}})
    commit(Path())
    wanted = ("4", "--dry", "--model", "FC7-SH")
    assert table_4(*wanted).stdout.startswith(f"{NO_ROW}extract.weights is 'others.safetensors', ")
    run_printed(table_4(*wanted, "--own-rows").stdout)
    done = table_4("4", "--format", "csv")
    assert 'FC7-SH,"ours, paper"' not in done.stdout
    assert '"FC7-SH, resnet18 with weights' in done.stdout
    assert table_4(*wanted, "--own-rows").stdout == "nothing is missing\n"
