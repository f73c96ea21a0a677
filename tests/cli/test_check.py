import re
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from fne.cli import main
from fne.cli.check import OUTPUT_FOLDERS, SECTIONS
from fne.core.options import OutputFiles
from fne.extraction.networks import build_backbone
from fne.store.layout import Layer
from fne.store.rows import write_rows
from stages.check import main as check_stage
from stages.tokenize import main as tokenize
from stages.train import main as train
from tests.support.imports import ROOT
from tests.support.projects import change_params


@pytest.fixture
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
    return CliRunner().invoke(main, ["check", *arguments])


def put_keys(section: str, **keys: object) -> None:
    """Set keys of the parameter file, whether it has them or not."""
    change_params(Path(), {section: keys})


def change(old: str, new: str) -> None:
    params = Path("params.yaml")
    assert old in params.read_text()
    params.write_text(params.read_text().replace(old, new))


def test_the_shipped_parameters_are_valid(project):
    result = check("--demo")
    assert (result.output, result.exit_code) == (f"params.yaml: {len(SECTIONS)} sections, all valid\n", 0)


def test_all_faults_of_all_sections_are_reported(project):
    change("kind: fne", "kind: fnee")
    change("\n  margin: 0.2", "\n  margn: 0.2")
    change("evaluate:", "evaluat:")
    put_keys("write_captions", beam=0)
    put_keys("train_tagger", lstm={"forget": 1})
    result = check()
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: params.yaml: unknown section 'evaluat' (did you mean 'evaluate'?)\n"
        "params.yaml: section 'embed': kind: 'fnee' is not one of 'blocks', 'fne', 'layer', 'plain', 'raw', 'raw_float16', "
        "'raw_int8', 'sign', 'zscore', 'zscore_int8'\n"
        "params.yaml: section 'train': unknown key 'margn' (did you mean 'margin'?)\n"
        "pipelines/tagging/params.yaml: section 'train_tagger': unknown key 'lstm.forget' (did you mean "
        "'lstm.forget_bias'?)\n"
        "pipelines/captioning/params.yaml: section 'write_captions': beam: input should be greater than or equal to "
        "1, got 0\n"
    )


def test_missing_files_are_reported_with_alternatives(project):
    change("root: data/demo", "root: data/mine")
    change("weights: weights/random.yaml", "weights: weights/vgg.pth")
    result = check()
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: params.yaml: section 'catalog': root: no such folder or file 'data/mine'; use the folder of your data set\n"
        "params.yaml: section 'extract': weights: no such file 'weights/vgg.pth'; use weights/random.yaml, "
        "weights/imagenet.yaml or your own weights file\n"
    )


def test_a_missing_file_of_word_vectors_is_named(project):
    change("vectors: weights/random_words.yaml", "vectors: glove.txt")
    result = check()
    assert result.exit_code == 2
    assert (
        "params.yaml: section 'tokenize': vectors: there is no file 'glove.txt'; use weights/random_words.yaml "
        "or a file of word vectors"
    ) in result.stderr


def test_fixed_words_need_a_file_of_word_vectors(project):
    put_keys("train", words="fixed")
    result = check()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: section 'train': words: 'fixed' needs word vectors, but tokenize.vectors is "
        "'weights/random_words.yaml'; name a file of word vectors, or use 'learned'\n",
    )


def test_word_vectors_that_would_be_ignored_are_refused(project):
    (project / "glove.txt").write_text("dog 0.5 1.5\n")
    change("vectors: weights/random_words.yaml", "vectors: glove.txt")
    result = check()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: section 'tokenize': tokenize.vectors is 'glove.txt', but train.cca.text is "
        "'tfidf', which has no use for word vectors; use -S ++train.cca.text=vectors, or -S "
        "train.text_encoder=gru\n",
    )
    change("text_encoder: tfidf", "text_encoder: gru")
    assert check().exit_code == 0


def test_an_annotation_file_may_be_the_root(project):
    (project / "mine.csv").touch()
    change("root: data/demo", "root: mine.csv")
    assert check().exit_code == 0
    put_keys("catalog", annotations="other.csv")
    result = check()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: section 'catalog': root: 'mine.csv' is a file, but catalog.annotations is "
        "'other.csv'; set catalog.annotations to auto\n",
    )


def test_an_incomplete_weights_file_is_a_fault(project):
    (project / "weights/random.yaml").write_text("kind: random\n")
    result = check()
    assert result.exit_code == 2
    assert "section 'extract': weights: weights/random.yaml: random.seed: Field required" in result.stderr


def test_weights_that_the_file_does_not_have_for_the_backbone_are_a_fault(project):
    change("backbone: vgg16", "backbone: resnet50")
    change("weights: weights/random.yaml", "weights: weights/imagenet_features.yaml")
    result = check()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: section 'extract': weights: weights/imagenet_features.yaml has none for resnet50, only for vgg16\n",
    )


def first_layers(backbone: str) -> dict[str, torch.Tensor]:
    """The weights of the first convolutions of a network, which are a valid file."""
    with torch.device("meta"):
        state = build_backbone(backbone).state_dict()
    return {name: torch.zeros(value.shape) for name, value in list(state.items())[:4]}


@pytest.mark.parametrize("name", ["mine.safetensors", "mine.pth"])
def test_weights_of_another_network_are_refused_by_their_names_alone(project, name):
    save = save_file if name.endswith(".safetensors") else torch.save
    save(first_layers("vgg16"), name)
    change("weights: weights/random.yaml", f"weights: {name}")
    change("input: auto", "input: torchvision")
    assert check().exit_code == 0
    change("backbone: vgg16", "backbone: resnet50")
    result = check()
    assert (result.exit_code, result.stderr) == (
        2,
        f"Error: params.yaml: section 'extract': weights: {name}: does not fit resnet50, which has no "
        "'features.0.bias' (4 unknown names); set extract.backbone and extract.weights to the same network\n",
    )


def test_weights_of_another_network_that_a_yaml_file_names_are_refused(project):
    save_file(first_layers("vgg16"), "mine.safetensors")
    Path("mine.yaml").write_text(f"kind: file\nfile: mine.safetensors\nsha256: '{'0' * 64}'\ninput: caffe\n")
    change("weights: weights/random.yaml", "weights: mine.yaml")
    assert check().exit_code == 0
    change("backbone: vgg16", "backbone: alexnet")
    assert "mine.safetensors: does not fit alexnet, which has no 'features.2.bias'" in check().stderr
    Path("mine.safetensors").unlink()
    assert "mine.yaml: names 'mine.safetensors', but there is no mine.safetensors" in check().stderr


def test_a_layer_that_the_weights_do_not_have_is_refused(project):
    save_file(first_layers("vgg16"), "mine.safetensors")
    change("weights: weights/random.yaml", "weights: mine.safetensors")
    change("input: auto", "input: torchvision")
    put_keys("extract", layers=["fc7"])
    result = check()
    assert (result.exit_code, "weights: mine.safetensors: " in result.stderr) == (2, True)


@pytest.mark.parametrize("name", ["mine.safetensors", "mine.pth"])
@pytest.mark.parametrize("content", [b"", b"A text that is no file of weights.", b"PK\x03\x04 cut"])
def test_a_file_that_is_not_weights_is_refused(project, name, content):
    Path(name).write_bytes(content)
    change("weights: weights/random.yaml", f"weights: {name}")
    result = check()
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: params.yaml: section 'extract': weights: {name}: ")
    assert result.stderr.count("\n") == 1


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
        ("vgg16", ["fc6", "fc8"], "vgg16 has no layer 'fc8'; it has conv1_1, "),
    ],
)
def test_layers_that_the_backbone_does_not_have_are_a_fault(project, backbone, layers, fault):
    change("backbone: vgg16", f"backbone: {backbone}")
    put_keys("embed", layers=layers)
    result = check()
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: params.yaml: section 'embed': layers: {fault}")


def test_a_pooled_output_must_be_extracted_by_name(project):
    change("backbone: vgg16", "backbone: resnet18")
    change("kind: fne", "kind: plain")
    put_keys("embed", layer="pool5")
    result = check()
    assert result.exit_code == 2
    assert result.stderr.endswith("the layers of resnet18; extract 'pool5' with extract.layers=[pool5]\n")
    put_keys("extract", layers=["pool5"])
    assert check().exit_code == 0
    put_keys("embed", layer="conv1")
    assert check().stderr == (
        "Error: params.yaml: section 'embed': layer: 'conv1' is not one of 'pool5', the layers of "
        "extract.layers\n"
    )
    put_keys("extract", layers=["pool6"])
    assert "section 'extract': layers: 'pool6' is not one of 'conv1', " in check().stderr


def test_views_need_the_kind_that_keeps_them(project):
    put_keys("extract", views="each")
    assert check().stderr == (
        "Error: params.yaml: section 'embed': kind: extract.views is 'each', which only kind 'plain' keeps "
        "separately, got 'fne'\n"
    )
    change("kind: fne", "kind: plain")
    assert check().exit_code == 0


def test_a_text_cnn_needs_captions_that_fit_its_positions(project):
    change("text_encoder: tfidf", "text_encoder: text_cnn")
    assert check().stderr == (
        "Error: params.yaml: section 'tokenize': longest: text encoder 'text_cnn' has 32 positions; use 1 to "
        "32, got 0\n"
    )
    change("longest: 0", "longest: 32")
    assert check().exit_code == 0


def test_a_source_without_a_store_is_a_fault(project):
    change("source: features/activations", "source: features/imported")
    result = check()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: section 'embed': source: no row store in 'features/imported'; use features/activations, "
        "or a store that `fne import` or `fne join` wrote\n",
    )


def test_layers_of_an_imported_store_are_not_checked_against_the_backbone(project):
    write_rows(project / "mine", "activations", [Layer("pool", 1)], "float32", [], {}, {})
    change("source: features/activations", "source: mine")
    change("layers: all", "layers: [pool]")
    assert check().exit_code == 0


def test_an_unknown_algorithm_is_a_fault(project):
    put_keys("runtime", algorithm="fft")
    result = check()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: section 'runtime': algorithm: 'fft' is not one of 'auto', 'plain', 'sharing', 'winograd'\n",
    )


def test_the_demo_refuses_another_data_set(project):
    (project / "mine").mkdir()
    change("root: data/demo", "root: mine")
    assert check().exit_code == 0
    result = check("--demo")
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: params.yaml: catalog.root is 'mine', which is not the embedded data set; run `dvc repro` for your own "
        "data set, or set catalog.root to data/demo for the demo\n"
    )


def test_overrides_are_checked_without_changing_the_file(project):
    before = Path("params.yaml").read_bytes()
    result = check("-S", "train.margin=0.1,0.3", "-S", "train.loss=max_hinge")
    assert (result.output, result.exit_code) == (
        "params.yaml with train.margin=0.1 train.loss=max_hinge: all valid\n"
        "params.yaml with train.margin=0.3 train.loss=max_hinge: all valid\n",
        0,
    )
    assert Path("params.yaml").read_bytes() == before
    assert sorted(path.name for path in project.iterdir()) == ["params.yaml", "pipelines", "weights"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "train.margin=x",
            "params.yaml with train.margin=x: section 'train': margin: input should be a valid number, got 'x'\n",
        ),
        ("train.margn=1", "params.yaml: there is no key 'train.margn' (did you mean 'train.margin'?)\n"),
        (
            "extract.weights=mine.pth",
            "params.yaml with extract.weights=mine.pth: section 'extract': weights: no such file 'mine.pth'; "
            "use weights/random.yaml, weights/imagenet.yaml or your own weights file\n",
        ),
    ],
)
def test_faults_of_an_override_are_reported_with_the_override(project, override, message):
    result = check("-S", override)
    assert (result.exit_code, result.stderr) == (2, f"Error: {message}")
    assert sorted(path.name for path in project.iterdir()) == ["params.yaml", "pipelines", "weights"]


def test_an_override_that_cannot_be_parsed_is_refused(project):
    result = check("-S", "train.margin=[")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: -S: ")


def test_options_without_effect_on_overrides_are_refused(project):
    result = check("-S", "train.margin=0.1", "--demo")
    assert result.exit_code == 2
    assert "give either -S or --demo" in result.stderr


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "train.clip=2.0",
            "'train.clip' does not stand in a file, and has its default; use -S ++train.clip=2.0",
        ),
        (
            "train.mlp.dropout=0.1",
            "'train.mlp.dropout' does not stand in a file, and has its default; use -S ++train.mlp.dropout=0.1",
        ),
        ("++train.dropout=1", "there is no key 'train.dropout' (did you mean 'train.bow_mlp.dropout' or "),
        (
            "train_tagger.units=64",
            "'train_tagger.units' is a key of pipelines/tagging/params.yaml; use -S "
            "pipelines/tagging/params.yaml:train_tagger.units=64",
        ),
        (
            "++train_tagger.clip=1.0",
            "'train_tagger.clip' is a key of pipelines/tagging/params.yaml; use -S "
            "pipelines/tagging/params.yaml:++train_tagger.clip=1.0",
        ),
        (
            "pipelines/tagging/params.yaml:train_tagger.clip=1.0",
            "'train_tagger.clip' does not stand in a file, and has its default; use -S "
            "pipelines/tagging/params.yaml:++train_tagger.clip=1.0",
        ),
        (
            "pipelines/tagging/params.yaml:train.margin=1",
            "'train.margin' is a key of params.yaml; use -S train.margin=1",
        ),
    ],
)
def test_an_override_that_would_change_no_file_or_another_one_is_refused_with_the_right_one(
    project, override, message
):
    result = check("-S", override)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: params.yaml: {message}")
    used = re.search(r"use -S (\S+)\n", result.stderr)
    assert used is None or check("-S", used[1]).exit_code == 0


def test_overrides_may_add_keys_and_change_those_of_pipelines_and_sweep_over_both(project):
    before = {path: path.read_bytes() for path in project.rglob("params.yaml")}
    units = "pipelines/tagging/params.yaml:train_tagger.units"
    result = check("-S", "++train.clip=1.0,2.0", "-S", f"{units}=32,64")
    assert (sorted(result.output.splitlines()), result.exit_code) == (
        [
            f"params.yaml with ++train.clip={clip} {units}={count}: all valid"
            for clip in ("1.0", "2.0")
            for count in (32, 64)
        ],
        0,
    )
    wrong = check("-S", "++train.mlp.dropout=2", "-S", f"{units}=0")
    assert wrong.exit_code == 2
    assert wrong.stderr == (
        f"Error: params.yaml with ++train.mlp.dropout=2 {units}=0: section 'train': mlp.dropout: input should be less "
        "than 1, got 2\n"
        "pipelines/tagging/params.yaml: section 'train_tagger': units: input should be greater than or equal to 1, "
        "got 0\n"
    )
    assert {path: path.read_bytes() for path in project.rglob("params.yaml")} == before


def test_a_key_that_is_removed_has_its_default(project):
    result = check("-S", "~train.margin", "--show", "train")
    assert result.exit_code == 0
    assert "train.margin" in result.output
    assert " [0.2] " in next(line for line in result.output.splitlines() if line.startswith("train.margin"))


def test_a_key_that_a_pipeline_file_names_must_stand_in_a_parameter_file(project):
    """DVC itself reads these, and knows no defaults."""
    shutil.copy(ROOT / "dvc.yaml", project)
    for file in ROOT.glob("pipelines/*/dvc.yaml"):
        (project / file.relative_to(ROOT)).parent.mkdir(exist_ok=True)
        shutil.copy(file, project / file.relative_to(ROOT))
    assert check().exit_code == 0
    change("  weights: weights/random.yaml", "  # weights")
    change("baseline: {}", "#")
    result = check("-S", "~evaluate.split")
    assert result.exit_code == 2
    for fault in (
        "'extract.weights' is missing, which dvc.yaml names; add it with its default, `weights: weights/random.yaml`",
        "'baseline' is missing, which dvc.yaml names; add it with its default, `baseline: {}`",
        "'evaluate.split' is missing, which dvc.yaml names; add it with its default, `split: test`",
    ):
        assert fault in result.stderr


def test_a_section_in_two_files_is_refused(project):
    change("report:", "tags_page:\n  examples: 1\nreport:")
    assert check().stderr == (
        "Error: pipelines/tagging/params.yaml: section 'tags_page' stands in params.yaml too; remove one of them\n"
    )


def shown(*arguments):
    """Return what `--show` prints of each key: the value, the default where it differs, and the meaning."""
    lines = check("--show", *arguments).output.splitlines()
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if re.match(r"[\w.]+  ", line)}


@pytest.mark.parametrize(("loss", "applies"), [("max_hinge", True), ("sum_hinge", False)])
def test_show_prints_only_the_keys_of_the_chosen_variants(project, loss, applies):
    found = shown("-S", f"train.loss={loss}", "train")
    assert all(key.startswith("train.") for key in found)
    assert ("train.cca.text" in found, "train.ridge.text" in found) == (True, False)
    assert ("train.max_hinge.hardest" in found) == applies
    assert not any(key.startswith("train.top_k_hinge") for key in found)


def test_show_prints_the_default_of_a_key_with_another_value_and_every_meaning(project):
    put_keys("train", embed_dim=64)
    put_keys("train_tagger", units=32)
    found = shown()
    assert re.split(r"  +", found["train.embed_dim"]) == [
        "64",
        "default 512",
        "dimensions of the joint space",
    ]
    assert re.split(r"  +", found["train.batch"])[0] == "32"
    assert re.split(r"  +", found["train_tagger.units"])[:2] == ["32", "default 128"]
    assert not any(key.startswith("runtime.") for key in found)
    assert "runtime.workers" in shown("runtime")


def test_sections_are_named_only_to_be_shown(project):
    result = check("train")
    assert result.exit_code == 2
    assert "sections are named for --show" in result.stderr


OF_TUNING = "pipelines/finetuning/params.yaml:"
TUNABLE = (
    "++train.image_class_weight=1.0",
    "extract.layers=[fc7]",
    "embed.kind=plain",
    f"{OF_TUNING}finetune.epochs=2",
)


def check_overridden(*overrides):
    return check(*(word for each in overrides for word in ("-S", each)))


def test_a_network_can_be_tuned_behind_a_single_layer(project):
    result = check_overridden(*TUNABLE)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (
            ["embed.kind=fne"],
            "section 'embed': kind: fine-tuning needs embed.kind 'layer' or 'plain'; an embedding of kind 'fne' has "
            "no gradient",
        ),
        (
            ["embed.kind=zscore"],
            "section 'embed': kind: fine-tuning needs embed.kind 'layer' or 'plain'; an embedding of kind 'zscore' "
            "has no gradient",
        ),
        (
            ["catalog.images=none"],
            "section 'catalog': images: fine-tuning needs image files, but it is 'none'; name their folder",
        ),
        (
            ["++train.image_class_weight=0.0"],
            "section 'finetune': image_class_weight and text_class_weight need the classifier of an instance loss in `train`; set both "
            "to 0, or train.image_class_weight to 1.0",
        ),
        (
            ["embed.source=features/imported"],
            "section 'embed': source: fine-tuning needs a network to train, but the embeddings come from "
            "features/imported; set it to features/activations",
        ),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_is_computed(project, overrides, fault):
    result = check_overridden(*TUNABLE, *overrides)
    assert result.exit_code == 2
    assert f": {fault}" in result.stderr


def test_only_the_pipeline_of_the_fine_tuning_needs_a_network_that_can_be_tuned(project):
    assert check_overridden("embed.kind=fne").exit_code == 0
    arguments = ["checked.txt", "settings.json"]
    refused = CliRunner().invoke(check_stage, [*arguments, "--pipeline", "finetuning"])
    assert refused.exit_code == 2
    assert "section 'embed': kind: fine-tuning needs embed.kind 'layer' or 'plain'" in refused.stderr
    assert CliRunner().invoke(check_stage, arguments).exit_code == 0


def test_an_unknown_layer_to_tune_from_is_refused_with_the_known_ones(project):
    result = check_overridden(*TUNABLE, f"{OF_TUNING}++finetune.first=conv6_1")
    assert result.exit_code == 2
    assert "section 'finetune': first: 'conv6_1' is not one of 'all', 'conv1_1', 'conv1_2', " in result.stderr


@pytest.mark.parametrize("place", ["captions/imported/manifest.json", "models/matching/notes.txt"])
def test_a_file_that_dvc_would_remove_with_a_folder_of_outputs_is_refused(project, place):
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).write_text("mine")
    folder = place.rpartition("/")[0] if place.startswith("models") else "captions"
    result = check()
    assert result.exit_code == 2
    assert f"DVC removes what is in {folder}/ before the stage that writes there; move it" in result.stderr


def test_files_of_a_stage_are_no_foreign_files(project):
    writing = {"captions": tokenize, "models/matching": train}
    assert OUTPUT_FOLDERS.keys() == writing.keys()
    for folder, command in writing.items():
        (names,) = [each.type.names for each in command.params if isinstance(each.type, OutputFiles)]
        assert sorted(OUTPUT_FOLDERS[folder]) == sorted(names)
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name in (*names, ".temporary"):
            Path(folder, name).write_text("")
    assert check().exit_code == 0
