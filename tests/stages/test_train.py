import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fne.core.files import text_digest
from fne.matching import methods
from fne.matching.classifier_file import read_classifier
from fne.matching.model_file import read_model
from fne.store.history import read_history_seal
from fne.store.layout import Layer, view_layers
from fne.store.rows import Rows
from fne.store.tensors import read_sealed
from fne.text.word_vectors import read_word_vectors
from fne.training import checkpoints
from fne.training.loop import Trainer
from tests.support.disks import full_disk
from tests.support.projects import change_params
from tests.support.stages import SPLITS, write_activations, write_catalog
from tests.support.vectors import glove

VECTORS = {"number": [1.0, 2.0], "a": [3.0, 4.0]}
READY = ("standardize", "embed", "tokenize")


def test_the_model_records_its_settings_and_all_its_ancestors(run):
    assert run(*READY, "train").exit_code == 0
    _, artifact = read_model(Path("models/matching/model.safetensors"))
    assert artifact.settings["loss"] == ["sum_hinge"]
    assert artifact.settings["best_epoch"] in (1, 2)
    assert artifact.settings["started"] in (True, False)
    assert list(artifact.lineage) == [
        "activations", "captions", "embeddings", "statistics", "tokens", "train_images", "vocabulary",
    ]  # fmt: skip
    assert Path("models/history/plots/metrics/val/rsum.tsv").exists()
    assert read_history_seal(Path("models/history")).model == artifact.digest


def test_two_phases_run_one_after_the_other(run):
    change_params(
        Path(), {"train": {"loss": ["sum_hinge", "max_hinge"], "similarity": "order", "absolute": True}}
    )
    assert run(*READY, "train").exit_code == 0
    phases = Path("models/history/plots/metrics/train/phase.tsv").read_text().split()[3::2]
    assert phases == ["1", "1", "2", "2"]


def test_the_same_seed_gives_the_same_bytes(run):
    run(*READY, "train")
    first = Path("models/matching/model.safetensors").read_bytes()
    shutil.rmtree(".fne")
    run("train")
    assert Path("models/matching/model.safetensors").read_bytes() == first


def test_a_finished_run_leaves_no_checkpoint_and_says_how_it_went(run):
    result = run(*READY, "train")
    assert list(Path(".fne/training").iterdir()) == []
    assert re.search(
        r"^best epoch \d \(phase 1\): validation rsum \d+\.\d, chance \d+\.\d, "
        r"sentences for images [\d./ ]+, images for sentences",
        result.stdout,
        flags=re.MULTILINE,
    )


def test_experiments_are_chosen_by_figures_of_the_validation_split(run):
    assert run(*READY, "train").exit_code == 0
    found = json.loads(Path("metrics/training.json").read_text())
    _, artifact = read_model(Path("models/matching/model.safetensors"))
    rsum = Path("models/history/plots/metrics/val/rsum.tsv").read_text().split()[3::2]
    validation = found["validation"]
    assert validation["rsum"] == max(map(float, rsum))
    assert (validation["images"], validation["captions"]) == (4, 8)
    both = [validation[way][f"R@{k}"] for way in ("image_to_text", "text_to_image") for k in (1, 5, 10)]
    assert sum(both) == pytest.approx(validation["rsum"])
    assert validation["chance"] == pytest.approx(25 + 100 * (1 - 3 / 28) + 100 + 25 + 100 + 100)
    assert (found["best_epoch"], found["started"]) == (
        artifact.settings["best_epoch"],
        artifact.settings["started"],
    )
    # Twelve images in batches of at most `train.batch`.
    steps = -(-12 // artifact.settings["batch"])
    assert (found["epochs"], found["updates"], found["collapsed"]) == (2, 2 * steps, False)


def test_a_training_from_the_scratch_folder_has_the_same_metrics(run):
    run(*READY, "train")
    first = Path("metrics/training.json").read_bytes()
    assert "this training has finished before" in run("train").stdout
    assert Path("metrics/training.json").read_bytes() == first


def test_a_training_that_does_not_start_says_what_happened_and_what_helps(run, monkeypatch):
    monkeypatch.setattr("fne.evaluation.metrics.recall.STARTED", 1000.0)
    change_params(Path(), {"train": {"loss": "max_hinge"}})
    result = run(*READY, "train")
    assert result.exit_code == 0
    warning = result.stderr.splitlines()[-1]
    assert re.fullmatch(
        r"Warning: training did not start: the validation rsum of [\d.]+ is not clearly above chance \(439\.3\). "
        r"Start with a sum phase \(-S 'train.loss=\[sum_hinge,max_hinge\]'\); \d+ updates in 2 epochs are "
        r"few: raise train.epochs, or lower train.batch",
        warning,
    )


def test_a_log_gets_a_line_per_epoch(run):
    lines = [line for line in run(*READY, "train").stderr.splitlines() if line.startswith("train, ")]
    assert len(lines) == 2
    for epoch, line in enumerate(lines, start=1):
        assert re.fullmatch(
            rf"train, phase 1 of 1 \(sum_hinge\): \d+ of \d+ steps \(\d+%\), [\d.,]+ steps/s, "
            rf"(at most \d+ s left, )?epoch {epoch}/2, loss [\d.e-]+, rsum [\d.]+, best [\d.]+",
            line,
        )


def test_a_run_that_is_terminated_says_so_and_continues_the_next_time(run, monkeypatch):
    run(*READY, "train")
    expected = Path("models/matching/model.safetensors").read_bytes()
    shutil.rmtree(".fne")
    step = Trainer.step

    def terminated(self, *arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "step", terminated)
    result = run("train")
    assert result.exit_code == 143
    assert result.stderr.endswith(
        "terminated; finished work is kept, and the same command continues from there\n"
    )
    monkeypatch.setattr(Trainer, "step", step)
    assert "resuming at epoch 1, step 2\n" in run("train").stdout
    assert Path("models/matching/model.safetensors").read_bytes() == expected


def test_tokens_of_other_captions_are_refused(run):
    run(*READY)
    write_catalog(word="another")
    result = run("train")
    assert result.exit_code == 2
    assert "Error: data/captions.jsonl holds captions " in result.stderr
    assert "…, but captions/tokens.h5 was made from captions " in result.stderr


def test_embeddings_standardized_on_another_train_split_are_refused(run):
    run("standardize", "embed")
    write_catalog([*SPLITS[1:], "train"])
    run("tokenize")
    result = run("train")
    assert result.exit_code == 2
    assert "features/embeddings was made from train_images " in result.stderr


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (
            ["train"] * 20,
            "the catalog has 0 captioned images in split 'val'; choosing the best epoch needs at least 1",
        ),
        (
            ["train"] + ["val"] * 19,
            "the catalog has 1 captioned images in split 'train'; training needs at least 2",
        ),
        (
            ["gallery"] * 20,
            "the catalog has 0 captioned images in split 'train'; training needs at least 2",
        ),
    ],
)
def test_a_split_that_is_too_small_is_refused_before_the_first_step(run, splits, message):
    write_catalog(splits)
    result = run(*READY, "train")
    assert (result.exit_code, result.stderr) == (2, f"Error: {message}; see `catalog` in params.yaml\n")


def trained(result) -> bool:
    """Whether steps were made, and not a finished training taken."""
    assert result.exit_code == 0
    return "this training has finished before; its result is in the scratch folder" not in result.stdout


def test_a_finished_training_is_taken_from_the_scratch_folder(run):
    assert trained(run(*READY, "train"))
    files = [Path("models/matching/model.safetensors"), *sorted(Path("models/history").rglob("*.*"))]
    first = [path.read_bytes() for path in files]
    shutil.rmtree("models")
    assert not trained(run("train"))
    assert [path.read_bytes() for path in files] == first


def test_a_block_that_does_not_apply_trains_nothing_again(run):
    run(*READY, "train")
    first = Path("models/matching/model.safetensors").read_bytes()
    change_params(
        Path(),
        {"train": {"max_hinge": {"hardest": "candidate"}, "top_k_hinge": {"hardest": "query", "k": 3}}},
    )
    assert not trained(run("train"))
    assert Path("models/matching/model.safetensors").read_bytes() == first


def test_a_setting_that_applies_trains_again(run):
    run(*READY, "train")
    change_params(Path(), {"train": {"margin": 0.3}})
    assert trained(run("train"))


def test_other_inputs_train_again(run):
    run(*READY, "train")
    write_activations(seed=1)
    assert trained(run("standardize", "embed", "train"))


@pytest.mark.parametrize("size", [0, 3, 300, 2_000, 4_000, 7_000, 20_000])
def test_a_full_disk_is_one_line_and_the_next_run_continues(run, monkeypatch, size):
    monkeypatch.setattr(checkpoints, "SECONDS", 0.0)
    run(*READY, "train")
    expected = Path("models/matching/model.safetensors").read_bytes()
    shutil.rmtree(".fne")
    shutil.rmtree("models")
    with full_disk(size):
        result = run("train")
    if result.exit_code:
        assert result.exit_code == 2, result.output
        assert result.stderr.splitlines()[-1].endswith("; free some space and run again")
        assert "Traceback" not in result.output
    assert run("train").exit_code == 0
    assert Path("models/matching/model.safetensors").read_bytes() == expected
    assert [path.name for path in Path("models").iterdir() if path.name.endswith(".tmp")] == []


@pytest.mark.parametrize(
    "place", ["training/stray", "training/KEY/stray", "training/KEY/00000009.safetensors", "trained/stray"]
)
@pytest.mark.parametrize("kind", ["file", "folder", "link", "pipe"])
def test_strays_in_the_scratch_folder_are_ignored(run, monkeypatch, place, kind):
    run(*READY)
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "step", _interrupt)
        assert run("train").exit_code
    (key,) = [path.name for path in Path(".fne/training").iterdir()]
    mine = Path("mine").absolute()
    mine.write_text("mine")
    stray = Path(".fne") / place.replace("KEY", key)
    stray.parent.mkdir(parents=True, exist_ok=True)
    put(stray, kind, mine)
    assert run("train").exit_code == 0
    assert os.path.lexists(stray) or (kind, stray.name) == ("file", "00000009.safetensors")
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
@pytest.mark.parametrize("place", ["training/KEY/lock", "trained/KEY"])
def test_what_is_in_the_way_is_named_with_the_command_that_removes_it(run, place, kind):
    run(*READY, "train")
    (trained,) = Path(".fne/trained").iterdir()
    mine = Path("mine").absolute()
    mine.write_text("mine")
    if place.startswith("trained"):
        stray = trained
        trained.unlink()
    else:
        digest = text_digest(json.dumps({"version": checkpoints.VERSION, **_key(trained)}, sort_keys=True))
        stray = Path(".fne/training", digest[:16], "lock")
        stray.parent.mkdir(parents=True)
    put(stray, kind, mine)
    result = run("train")
    assert result.exit_code == 2
    command = re.search("remove it with `(.*)`", result.stderr)
    subprocess.run(command.group(1), shell=True, check=True)
    assert run("train").exit_code == 0
    assert mine.read_text() == "mine"


def put(path: Path, kind: str, target: Path) -> None:
    """Put something that is not of fne at a path."""
    if kind == "file":
        path.write_bytes(b"stray")
    elif kind == "folder":
        (path / "inner").mkdir(parents=True)
    elif kind == "link":
        path.symlink_to(target)
    else:
        os.mkfifo(path)


def _interrupt(*_):
    raise KeyboardInterrupt


def _key(trained: Path) -> dict[str, object]:
    key: dict[str, object] = read_sealed(trained)[0]["key"]
    return key


def test_pretrained_vectors_that_stay_fixed_are_in_the_model(run):
    glove(Path("glove.txt"), VECTORS)
    change_params(Path(), {"tokenize": {"vectors": "glove.txt"}, "train": {"words": "fixed", "word_dim": 2}})
    assert run(*READY, "train").exit_code == 0
    model, artifact = read_model(Path("models/matching/model.safetensors"))
    expected = read_word_vectors(Path("captions/vectors.h5"))
    assert (model.text_encoder.words.weight.detach().numpy() == expected.values).all()
    assert artifact.lineage["vector_file"]["settings"] == {"file": "glove.txt"}


@pytest.mark.parametrize("branch", ["mlp", "mlp_bn_first"])
def test_branches_train_and_encode(run, branch):
    change_params(
        Path(),
        {"train": {"image_head": branch, "text_encoder": f"bow_{branch}", "optimizer": "sgd_nesterov"}},
    )
    assert run(*READY, "train", "encode", "evaluate").exit_code == 0


DUAL_PATH = {
    "train": {
        "image_head": "dual_path",
        "text_encoder": "text_cnn",
        "text_cnn.width": 0.02,
        "text_cnn.blocks": [1, 1, 1, 1],
        "text_cnn.positions": 8,
        "optimizer": "sgd_nesterov",
        "learning_rate": 0.01,
        "rectified": True,
        "keep": "last",
        "rank_weight": [0.0, 1.0],
        "image_class_weight": [1.0, 0.0],
        "text_class_weight": [1.0, 0.0],
        "words_rate": 0.5,
        "classifier_rate": 0.1,
        "gain_rate": 2.0,
    }
}


CLOSED_FORM = {"start": "auto", "text_encoder": "tfidf", "image_head": "linear_bias", "similarity": "cosine"}
IGNORED = (
    "tokenize.vectors is 'glove.txt', but train.cca.text is 'tfidf', which has no use for word vectors; use -S "
    "++train.cca.text=vectors"
)


@pytest.mark.parametrize(
    ("vectors", "changes", "message"),
    [
        (
            False,
            {"precision": "bfloat16"},
            "train.precision is 'bfloat16', which needs a GPU; use 'float32' here",
        ),
        (False, {"words": "fixed"}, "of word vectors, or use -S ++train.words=learned"),
        (True, {}, "train.word_dim is 4, but glove.txt has vectors of 2; use -S train.word_dim=2"),
        (True, CLOSED_FORM | {"method": "cca"}, IGNORED),
        (True, CLOSED_FORM | {"method": "steps"}, f"{IGNORED}, or -S train.text_encoder=gru"),
        (
            False,
            DUAL_PATH["train"] | {"text_cnn.positions": 2},
            "a caption has 3 words, but text encoder 'text_cnn' has 2 positions; use -S ++tokenize.longest=2",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_the_first_step(run, vectors, changes, message):
    if vectors:
        glove(Path("glove.txt"), VECTORS)
        change_params(Path(), {"tokenize": {"vectors": "glove.txt"}})
    change_params(Path(), {"train": changes})
    result = run(*READY, "train")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert result.stderr.endswith(f"{message}\n")
    assert not Path("models/matching/model.safetensors").exists()


def test_an_instance_loss_leaves_a_classifier_beside_the_model(run):
    change_params(Path(), DUAL_PATH)
    result = run(*READY, "train", "encode", "evaluate")
    assert result.exit_code == 0
    matcher, artifact = read_model(Path("models/matching/model.safetensors"))
    found = read_classifier(Path("models/matching/classifier.safetensors"))
    assert found.weight.shape == (SPLITS.count("train"), 8)
    assert found.labels.tolist() == list(range(SPLITS.count("train")))
    assert found.artifact.lineage["model"]["digest"] == artifact.digest
    assert not any("instance" in name for name in matcher.state_dict())
    assert artifact.settings["instance"]["classes"] == 0


def test_k_means_classes_are_in_the_classifier(run):
    change_params(Path(), DUAL_PATH)
    change_params(Path(), {"train": {"instance.classes": 3, "instance.bias": True}})
    result = run(*READY, "train")
    assert result.exit_code == 0
    found = read_classifier(Path("models/matching/classifier.safetensors"))
    assert (found.weight.shape, found.bias.shape) == ((3, 8), (3,))
    assert set(found.labels.tolist()) == {0, 1, 2}
    assert "the classifier of 3 images and 8 dimensions takes 0.0 MB with its gradient and momentum, " in (
        result.stdout
    )


def test_without_an_instance_loss_there_is_no_classifier_and_other_files_stay(run):
    Path("models/matching").mkdir(parents=True)
    for name in ("classifier.safetensors", "notes.txt"):  # one of an earlier run, and one of the user
        Path("models/matching", name).write_text("old")
    assert run(*READY, "train").exit_code == 0
    assert sorted(path.name for path in Path("models/matching").iterdir()) == [
        "model.safetensors",
        "notes.txt",
    ]


def test_a_classifier_that_does_not_fit_into_memory_is_refused_before_the_first_step(run, monkeypatch):
    change_params(Path(), DUAL_PATH)
    monkeypatch.setattr(methods, "free_memory", lambda device: 1000)
    result = run(*READY, "train")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: the classifier of 12 images and 8 dimensions takes 0.0 MB with its gradient and momentum, 0.0 MB "
        "are free; lower train.embed_dim, or use train.instance.classes\n",
    )
    assert not Path("models/matching/model.safetensors").exists()


def test_views_are_drawn_in_training_and_averaged_afterwards(run):
    """Views that are all alike train and encode as a single one does."""
    write_activations(layers=view_layers([Layer("fc7", 3)], 2), equal_views=True)
    change_params(
        Path(), {"embed": {"kind": "plain", "layer": "fc7"}, "train": DUAL_PATH["train"] | {"keep": "best"}}
    )
    assert run(*READY, "train", "encode", "baseline").exit_code == 0
    matcher, _ = read_model(Path("models/matching/model.safetensors"))
    assert matcher.shape.features == 3
    of_views = Rows.open(Path("vectors/images")).read(["00.png", "19.png"])
    write_activations(layers=[Layer("fc7", 3)], equal_views=True)
    assert run(*READY, "train", "encode").exit_code == 0
    alone = Rows.open(Path("vectors/images")).read(["00.png", "19.png"])
    np.testing.assert_allclose(of_views, alone, rtol=1e-4, atol=1e-5)


def test_the_default_training_starts_from_the_closed_form_and_is_encoded_and_evaluated(run):
    change_params(
        Path(),
        {
            "train": {
                "start": "auto",
                "image_head": "linear_bias",
                "text_encoder": "tfidf",
                "rates": "relative",
                "learning_rate": 0.01,
            }
        },
    )
    assert run(*READY, "train", "encode", "evaluate").exit_code == 0
    _, artifact = read_model(Path("models/matching/model.safetensors"))
    assert artifact.settings["start"] == "cca"
    assert artifact.settings["cca"]["dim"] == 8
    # Before the first step there is a validation, and no loss.
    tables = Path("models/history/plots/metrics")
    assert len((tables / "val/rsum.tsv").read_text().splitlines()) == 1 + 3
    assert len((tables / "train/loss.tsv").read_text().splitlines()) == 1 + 2
