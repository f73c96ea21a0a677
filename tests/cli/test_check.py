import re
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from fne.cli.check import OUTPUT_FOLDERS, SECTIONS
from fne.core.options import OutputFiles
from fne.extraction.networks import build_backbone
from fne.store.layout import Layer
from fne.store.rows import write_rows
from stages.check import main as check_stage
from stages.tokenize import main as tokenize
from stages.train import main as train
from tests.support.commands import fne, refused
from tests.support.imports import ROOT
from tests.support.projects import change_params

OF_TAGGING = "pipelines/tagging/params.yaml"
OF_TUNING = "pipelines/finetuning/params.yaml"


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """Make a folder with the shipped parameters and weights."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    for file in ROOT.glob("pipelines/*/params.yaml"):
        (tmp_path / file.relative_to(ROOT)).parent.mkdir(parents=True)
        shutil.copy(file, tmp_path / file.relative_to(ROOT))
    shutil.copytree(ROOT / "weights", tmp_path / "weights")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(*arguments):
    return fne("check", *arguments)


def fault(*arguments) -> str:
    """Return the only line that a check of wrong parameters prints."""
    said = refused("check", *arguments)
    assert said.startswith("Error: ")
    assert said.count("\n") == 1, said
    return said


def put(**keys: object) -> None:
    """Set keys in the parameter files, which may not have them yet: `section__key`."""
    for place, value in keys.items():
        section, key = place.split("__", 1)
        change_params(Path(), {section: {key.replace("__", "."): value}})


def change(old: str, new: str) -> None:
    params = Path("params.yaml")
    assert old in params.read_text()
    params.write_text(params.read_text().replace(old, new))


def test_the_shipped_parameters_are_valid():
    result = check("--demo")
    assert (result.output, result.exit_code) == (f"params.yaml: {len(SECTIONS)} sections, all valid\n", 0)


def test_all_faults_of_all_sections_are_reported():
    change("kind: fne", "kind: fnee")
    change("\n  margin: 0.2", "\n  margn: 0.2")
    change("evaluate:", "evaluat:")
    put(write_captions__beam=0, train_tagger__lstm={"forget": 1})
    lines = refused("check").splitlines()
    expected = [
        "Error: params.yaml: unknown section 'evaluat' (did you mean 'evaluate'?)",
        "params.yaml: section 'embed': kind: 'fnee' is not one of 'blocks', 'fne', 'layer', ",
        "params.yaml: section 'train': unknown key 'margn' (did you mean 'margin'?)",
        f"{OF_TAGGING}: section 'train_tagger': unknown key 'lstm.forget' (did you mean 'lstm.forget_bias'?)",
        "pipelines/captioning/params.yaml: section 'write_captions': beam: input should be greater than or equal to 1",
    ]
    assert [line[: len(start)] for line, start in zip(lines, expected, strict=True)] == expected


SMALL_NETWORK = {"extract__backbone": "resnet18", "embed__kind": "plain"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"catalog__root": "data/mine"}, "'catalog': root: no such folder or file 'data/mine'; use "),
        ({"catalog__root": "mine.csv", "catalog__annotations": "other.csv"},
         "'catalog': root: 'mine.csv' is a file, but catalog.annotations is 'other.csv'; set catalog.annotations to auto"),
        ({"extract__weights": "weights/vgg.pth"}, "'extract': weights: no such file 'weights/vgg.pth'; use "),
        ({"extract__weights": "weights/imagenet_features.yaml", "extract__backbone": "resnet50"},
         "'extract': weights: weights/imagenet_features.yaml has none for resnet50, only for vgg16"),
        ({"tokenize__vectors": "none.txt", "train__text_encoder": "gru"},
         "'tokenize': vectors: there is no file 'none.txt'; use weights/random_words.yaml or a file of word vectors"),
        ({"tokenize__vectors": "glove.txt"},
         "'tokenize': tokenize.vectors is 'glove.txt', but train.cca.text is 'tfidf', which has no use for word "
         "vectors; use -S ++train.cca.text=vectors, or -S train.text_encoder=gru"),
        ({"train__words": "fixed"},
         "'train': words: 'fixed' needs word vectors, but tokenize.vectors is 'weights/random_words.yaml'; name "),
        ({"train__text_encoder": "text_cnn"},
         "'tokenize': longest: text encoder 'text_cnn' has 32 positions; use 1 to 32, got 0"),
        ({"embed__kind": "layer", "embed__layer": "fc8"}, "'embed': layer: 'fc8' is not one of 'conv1_1', 'conv1_2'"),
        ({"embed__layers": "fc", "extract__backbone": "resnet18"},
         "'embed': layers: resnet18 has no fc layers; it has conv1, "),
        ({"embed__layers": ["fc6", "fc8"]}, "'embed': layers: vgg16 has no layer 'fc8'; it has conv1_1, "),
        (SMALL_NETWORK | {"embed__layer": "pool5"}, "resnet18; extract 'pool5' with extract.layers=[pool5]\n"),
        (SMALL_NETWORK | {"extract__layers": ["pool5"], "embed__layer": "conv1"},
         "'embed': layer: 'conv1' is not one of 'pool5', the layers of extract.layers"),
        (SMALL_NETWORK | {"extract__layers": ["pool6"]}, "'extract': layers: 'pool6' is not one of 'conv1', "),
        ({"extract__views": "each"}, "'embed': kind: extract.views is 'each', which only kind 'plain' keeps"),
        ({"embed__source": "features/imported"},
         "'embed': source: no row store in 'features/imported'; use features/activations, or a store that `fne import` "),
        ({"runtime__algorithm": "fft"},
         "'runtime': algorithm: 'fft' is not one of 'auto', 'plain', 'sharing', 'winograd'\n"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_what_can(keys, said):
    Path("mine.csv").touch()
    Path("glove.txt").write_text("dog 0.5 1.5\n")
    put(**keys)
    assert said in fault()


@pytest.mark.parametrize(
    "keys",
    [
        {"catalog__root": "mine.csv"},
        {"tokenize__vectors": "glove.txt", "train__text_encoder": "gru"},
        {"train__text_encoder": "text_cnn", "tokenize__longest": 32},
        SMALL_NETWORK | {"extract__layers": ["pool5"], "embed__layer": "pool5"},
        {"extract__views": "each", "embed__kind": "plain"},
        {"embed__source": "store", "embed__layers": ["pool"]},  # not one of the backbone
    ],
)
def test_what_fits_together_is_accepted(keys):
    Path("mine.csv").touch()
    Path("glove.txt").write_text("dog 0.5 1.5\n")
    write_rows(Path("store"), "activations", [Layer("pool", 1)], "float32", [], {}, {})
    put(**keys)
    assert check().exit_code == 0


def test_an_incomplete_weights_file_is_a_fault():
    Path("weights/random.yaml").write_text("kind: random\n")
    assert "section 'extract': weights: weights/random.yaml: random.seed: Field required" in fault()


def first_layers(backbone: str) -> dict[str, torch.Tensor]:
    """The weights of the first convolutions of a network, which are a valid file."""
    with torch.device("meta"):
        state = build_backbone(backbone).state_dict()
    return {name: torch.zeros(value.shape) for name, value in list(state.items())[:4]}


@pytest.mark.parametrize("name", ["mine.safetensors", "mine.pth"])
def test_weights_of_another_network_are_refused_by_their_names_alone(name):
    save = save_file if name.endswith(".safetensors") else torch.save
    save(first_layers("vgg16"), name)
    put(extract__weights=name, extract__input="torchvision")
    assert check().exit_code == 0
    put(extract__backbone="resnet50")
    said = fault()
    assert f"weights: {name}: does not fit resnet50, which has no 'features.0.bias' (4 unknown names)" in said
    assert "; set extract.backbone and extract.weights to the same network" in said


def test_weights_of_another_network_that_a_yaml_file_names_are_refused():
    save_file(first_layers("vgg16"), "mine.safetensors")
    Path("mine.yaml").write_text(f"kind: file\nfile: mine.safetensors\nsha256: '{'0' * 64}'\ninput: caffe\n")
    put(extract__weights="mine.yaml")
    assert check().exit_code == 0
    put(extract__backbone="alexnet")
    assert "mine.safetensors: does not fit alexnet, which has no 'features.2.bias'" in fault()
    Path("mine.safetensors").unlink()
    assert "mine.yaml: names 'mine.safetensors', but there is no mine.safetensors" in fault()


def test_a_layer_that_the_weights_do_not_have_is_refused():
    save_file(first_layers("vgg16"), "mine.safetensors")
    put(extract__weights="mine.safetensors", extract__input="torchvision", extract__layers=["fc7"])
    assert "weights: mine.safetensors: " in refused("check")


@pytest.mark.parametrize("name", ["mine.safetensors", "mine.pth"])
@pytest.mark.parametrize("content", [b"", b"A text that is not a file of weights.", b"PK\x03\x04 cut"])
def test_a_file_that_is_not_weights_is_refused(name, content):
    Path(name).write_bytes(content)
    put(extract__weights=name)
    assert f"section 'extract': weights: {name}: " in fault()


def test_the_demo_refuses_another_data_set():
    Path("mine").mkdir()
    put(catalog__root="mine")
    assert check().exit_code == 0
    assert "catalog.root is 'mine', which is not the embedded data set; run `dvc repro`" in fault("--demo")


def test_overrides_are_checked_without_changing_the_file(project):
    before = Path("params.yaml").read_bytes()
    result = check("-S", "train.margin=0.1,0.3", "-S", "train.loss=max_hinge")
    said = "params.yaml with train.margin={} train.loss=max_hinge: all valid\n".format
    assert (result.output, result.exit_code) == (said(0.1) + said(0.3), 0)
    assert Path("params.yaml").read_bytes() == before
    assert sorted(path.name for path in project.iterdir()) == ["params.yaml", "pipelines", "weights"]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train.margin=x", "params.yaml with train.margin=x: section 'train': margin: input should be a valid number"),
        ("train.margn=1", "params.yaml: there is no key 'train.margn' (did you mean 'train.margin'?)"),
        ("extract.weights=mine.pth", "with extract.weights=mine.pth: section 'extract': weights: no such file 'mine.pth'"),
        ("train.margin=[", "Error: -S: "),
    ],
)  # fmt: skip
def test_faults_of_an_override_are_reported_with_the_override(project, override, said):
    assert said in refused("check", "-S", override)
    assert sorted(path.name for path in project.iterdir()) == ["params.yaml", "pipelines", "weights"]


def test_options_without_effect_are_refused():
    assert "give either -S or --demo" in refused("check", "-S", "train.margin=0.1", "--demo")
    assert "sections are named for --show" in refused("check", "train")


NO_FILE = "does not stand in a file, and has its default; use -S"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train.clip=2.0", f"'train.clip' {NO_FILE} ++train.clip=2.0"),
        ("train.mlp.dropout=0.1", f"'train.mlp.dropout' {NO_FILE} ++train.mlp.dropout=0.1"),
        ("++train.dropout=1", "there is no key 'train.dropout' (did you mean 'train.bow_mlp.dropout' or "),
        ("train_tagger.units=64",
         f"'train_tagger.units' is a key of {OF_TAGGING}; use -S {OF_TAGGING}:train_tagger.units=64"),
        ("++train_tagger.clip=1.0",
         f"'train_tagger.clip' is a key of {OF_TAGGING}; use -S {OF_TAGGING}:++train_tagger.clip=1.0"),
        (f"{OF_TAGGING}:train_tagger.clip=1.0",
         f"'train_tagger.clip' {NO_FILE} {OF_TAGGING}:++train_tagger.clip=1.0"),
        (f"{OF_TAGGING}:train.margin=1", "'train.margin' is a key of params.yaml; use -S train.margin=1"),
    ],
)  # fmt: skip
def test_an_override_that_would_change_no_file_or_another_one_is_refused_with_the_right_one(override, said):
    found = fault("-S", override)
    assert found.startswith(f"Error: params.yaml: {said}")
    used = re.search(r"use -S (\S+)\n", found)
    assert used is None or check("-S", used[1]).exit_code == 0


def test_overrides_may_add_keys_and_change_those_of_pipelines_and_sweep_over_both(project):
    before = {path: path.read_bytes() for path in project.rglob("params.yaml")}
    units = f"{OF_TAGGING}:train_tagger.units"
    result = check("-S", "++train.clip=1.0,2.0", "-S", f"{units}=32,64")
    sweep = [(clip, count) for clip in ("1.0", "2.0") for count in (32, 64)]
    said = [f"params.yaml with ++train.clip={clip} {units}={count}: all valid" for clip, count in sweep]
    assert sorted(result.output.splitlines()) == said
    first, second = refused("check", "-S", "++train.mlp.dropout=2", "-S", f"{units}=0").splitlines()
    assert (
        f"with ++train.mlp.dropout=2 {units}=0: section 'train': mlp.dropout: input should be less" in first
    )
    assert second.startswith(f"{OF_TAGGING}: section 'train_tagger': units: input should be greater")
    assert {path: path.read_bytes() for path in project.rglob("params.yaml")} == before


def test_a_key_that_is_removed_has_its_default():
    assert shown("-S", "~train.margin", "train")["train.margin"].startswith("[0.2] ")


def test_a_key_that_a_pipeline_file_names_must_stand_in_a_parameter_file(project):
    """DVC itself reads these, and knows no defaults."""
    shutil.copy(ROOT / "dvc.yaml", project)
    for file in ROOT.glob("pipelines/*/dvc.yaml"):
        (project / file.relative_to(ROOT)).parent.mkdir(exist_ok=True)
        shutil.copy(file, project / file.relative_to(ROOT))
    assert check().exit_code == 0
    change("  weights: weights/random.yaml", "  # weights")
    change("baseline: {}", "#")
    said = refused("check", "-S", "~evaluate.split")
    for key, default in {
        "extract.weights": "weights: weights/random.yaml",
        "baseline": "baseline: {}",
        "evaluate.split": "split: test",
    }.items():
        assert f"'{key}' is missing, which dvc.yaml names; add it with its default, `{default}`" in said


def test_a_section_in_two_files_is_refused():
    change("report:", "tags_page:\n  examples: 1\nreport:")
    assert f"{OF_TAGGING}: section 'tags_page' stands in params.yaml too; remove one of them" in fault()


def shown(*arguments):
    """Return what `--show` prints of each key: the value, the default where it differs, and the meaning."""
    lines = check("--show", *arguments).output.splitlines()
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if re.match(r"[\w.]+  ", line)}


@pytest.mark.parametrize(("loss", "applies"), [("max_hinge", True), ("sum_hinge", False)])
def test_show_prints_only_the_keys_of_the_chosen_variants(loss, applies):
    found = shown("-S", f"train.loss={loss}", "train")
    assert all(key.startswith("train.") for key in found)
    assert ("train.cca.text" in found, "train.ridge.text" in found) == (True, False)
    assert ("train.max_hinge.hardest" in found) == applies
    assert not any(key.startswith("train.top_k_hinge") for key in found)


def test_show_prints_the_default_of_a_key_with_another_value_and_every_meaning():
    put(train__embed_dim=64, train_tagger__units=32)
    found = {key: re.split(r"  +", line) for key, line in shown().items()}
    assert found["train.embed_dim"] == ["64", "default 512", "dimensions of the joint space"]
    assert found["train.batch"][0] == "32"
    assert found["train_tagger.units"][:2] == ["32", "default 128"]
    assert not any(key.startswith("runtime.") for key in found)
    assert "runtime.workers" in shown("runtime")


TUNABLE = [
    *("-S", "++train.image_class_weight=1.0", "-S", "extract.layers=[fc7]", "-S", "embed.kind=plain"),
    *("-S", f"{OF_TUNING}:finetune.epochs=2"),
]


def test_a_network_can_be_tuned_behind_a_single_layer():
    assert check(*TUNABLE).exit_code == 0


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("embed.kind=fne", "'embed': kind: fine-tuning needs an embed.kind with a gradient ("),
        ("catalog.images=none", "'catalog': images: fine-tuning needs image files, but it is 'none'; name their folder"),
        ("++train.image_class_weight=0.0",
         "'finetune': image_class_weight and text_class_weight need the classifier of an instance loss in `train`; set "),
        ("embed.source=features/imported",
         "'embed': source: fine-tuning needs a network to train, but the embeddings come from features/imported; set "),
        (f"{OF_TUNING}:++finetune.first=conv6_1", "'finetune': first: 'conv6_1' is not one of 'all', 'conv1_1', "),
    ],
)  # fmt: skip
def test_what_cannot_be_tuned_is_refused_before_anything_is_computed(override, said):
    assert f": section {said}" in refused("check", *TUNABLE, "-S", override)


def test_only_the_pipeline_of_the_fine_tuning_needs_a_network_that_can_be_tuned():
    assert check("-S", "embed.kind=fne").exit_code == 0
    arguments = ["checked.txt", "settings.json"]
    stopped = CliRunner().invoke(check_stage, [*arguments, "--pipeline", "finetuning"])
    assert stopped.exit_code == 2
    assert "section 'embed': kind: fine-tuning needs an embed.kind with a gradient" in stopped.stderr
    assert CliRunner().invoke(check_stage, arguments).exit_code == 0


@pytest.mark.parametrize(
    ("place", "folder"),
    [("captions/imported/manifest.json", "captions"), ("models/matching/notes.txt", "models/matching")],
)
def test_a_file_that_dvc_would_remove_with_a_folder_of_outputs_is_refused(place, folder):
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).write_text("mine")
    assert f"DVC removes what is in {folder}/ before the stage that writes there; move it" in fault()


def test_files_of_a_stage_are_no_foreign_files():
    writing = {"captions": tokenize, "models/matching": train}
    assert OUTPUT_FOLDERS.keys() == writing.keys()
    for folder, command in writing.items():
        (names,) = [each.type.names for each in command.params if isinstance(each.type, OutputFiles)]
        assert sorted(OUTPUT_FOLDERS[folder]) == sorted(names)
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name in (*names, ".temporary"):
            Path(folder, name).write_text("")
    assert check().exit_code == 0
