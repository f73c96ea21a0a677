import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from fne.cli import main
from fne.store.catalog import Captioned, write_captions
from fne.store.layout import Layer
from fne.store.writer import write_rows
from tests.imports import ROOT


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the shipped parameters and weights."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "weights", tmp_path / "weights")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(*arguments):
    return CliRunner().invoke(main, ["check", *arguments])


def change(old: str, new: str) -> None:
    params = Path("params.yaml")
    assert old in params.read_text()
    params.write_text(params.read_text().replace(old, new))


def test_the_shipped_parameters_are_valid(project):
    result = check("--demo")
    assert (result.output, result.exit_code) == ("params.yaml: 9 sections, all valid\n", 0)


def test_all_faults_of_all_sections_are_named(project):
    change("kind: fne", "kind: fnee")
    change("margin:", "margn:")
    change("evaluate:", "evaluat:")
    result = check()
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: params.yaml: unknown section 'evaluat' (did you mean 'evaluate'?)\n"
        "params.yaml: section 'embed': kind: 'fnee' is not one of 'fne', 'layer', 'raw', 'zscore'\n"
        "params.yaml: section 'train': missing key 'margin'; unknown key 'margn' (did you mean 'margin'?)\n"
        "params.yaml: section 'evaluate': the section is missing\n"
    )


def test_missing_files_are_named_with_what_to_use(project):
    change("root: data/demo", "root: data/mine")
    change("weights: weights/random.yaml", "weights: weights/vgg.pth")
    result = check()
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: params.yaml: section 'catalog': root: there is no folder or file 'data/mine'; name your data set's folder\n"
        "params.yaml: section 'extract': weights: there is no file 'weights/vgg.pth'; use weights/random.yaml, "
        "weights/imagenet.yaml or a weights file of your own\n"
    )


def test_an_annotation_file_may_be_the_root(project):
    (project / "mine.csv").touch()
    change("root: data/demo", "root: mine.csv")
    assert check().exit_code == 0
    change("annotations: auto", "annotations: other.csv")
    result = check()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: section 'catalog': root: 'mine.csv' is a file, and catalog.annotations names "
        "'other.csv'; set catalog.annotations to auto\n",
    )


def test_a_weights_file_that_names_nothing_is_a_fault(project):
    (project / "weights/random.yaml").write_text("kind: random\n")
    result = check()
    assert result.exit_code == 2
    assert "section 'extract': weights: weights/random.yaml: random.seed: Field required" in result.stderr


def test_named_weights_that_the_backbone_does_not_have_are_a_fault(project):
    change("backbone: vgg16", "backbone: resnet50")
    change("weights: weights/random.yaml", "weights: weights/imagenet.yaml")
    result = check()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: section 'extract': weights: weights/imagenet.yaml names none for resnet50, only for vgg16\n",
    )


def test_a_layer_that_the_backbone_does_not_have_is_a_fault(project):
    change("kind: fne", "kind: layer")
    change("layer: fc7", "layer: fc8")
    result = check()
    assert result.exit_code == 2
    assert "section 'embed': layer: 'fc8' is not one of 'conv1_1', 'conv1_2'" in result.stderr
    assert result.stderr.endswith("'fc6', 'fc7', the layers of vgg16\n")


@pytest.mark.parametrize(
    ("backbone", "layers", "fault"),
    [
        ("resnet18", "fc", "resnet18 has no fc layers; it has conv1, "),
        ("vgg16", "[fc6, fc8]", "vgg16 has no layer 'fc8'; it has conv1_1, "),
    ],
)
def test_layers_that_the_backbone_does_not_have_are_a_fault(project, backbone, layers, fault):
    change("backbone: vgg16", f"backbone: {backbone}")
    change("layers: all", f"layers: {layers}")
    result = check()
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: params.yaml: section 'embed': layers: {fault}")


def test_a_source_without_a_store_is_a_fault(project):
    change("source: features/activations", "source: features/imported")
    result = check()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: section 'embed': source: there is no store in 'features/imported'; use features/activations "
        "or the folder of a store that `fne import` wrote\n",
    )


def test_the_layers_of_an_imported_store_are_its_own(project):
    write_rows(project / "mine", "activations", [Layer("pool", 1)], "float32", [], {}, {})
    change("source: features/activations", "source: mine")
    change("layers: all", "layers: [pool]")
    assert check().exit_code == 0


def test_an_unknown_algorithm_is_a_fault(project):
    change("algorithm: auto", "algorithm: fft")
    result = check()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: section 'runtime': algorithm: 'fft' is not one of 'auto', 'plain', 'sharing', 'winograd'\n",
    )


def test_the_demo_refuses_to_start_hours_of_work_on_another_data_set(project):
    (project / "mine").mkdir()
    change("root: data/demo", "root: mine")
    assert check().exit_code == 0
    result = check("--demo")
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: params.yaml: catalog.root is 'mine', not the embedded data set; type `dvc repro` to run your own "
        "data set, or set catalog.root to data/demo for the demo\n"
    )


def write_splits(*splits: str) -> None:
    write_captions(Path("captions.jsonl"), [Captioned(split, split, ("x",), ()) for split in splits])


def test_a_split_that_will_be_missing_is_named_before_hours_of_extraction(project):
    write_splits("train", "val")
    result = check("--captions", "captions.jsonl")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: evaluate.split is 'test', but the catalog has captions only in train, val; "
        "use `-S evaluate.split=val`\n",
    )


def test_a_catalog_without_validation_images_is_warned_about(project):
    write_splits("train", "test")
    result = check("--captions", "captions.jsonl")
    assert (result.exit_code, result.stderr) == (
        0,
        "Warning: no captioned image is in split 'val', which `train` needs to choose its epoch\n",
    )


def test_a_collection_without_captions_is_fine(project):
    write_captions(Path("captions.jsonl"), [Captioned("a", "gallery", (), ())])
    result = check("--captions", "captions.jsonl")
    assert (result.exit_code, result.stderr) == (0, "")
