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
from tests.support.stages import SPLITS, refusal, write_activations, write_catalog
from tests.support.vectors import glove

VECTORS = {"number": [1.0, 2.0], "a": [3.0, 4.0]}
READY = ("standardize", "embed", "tokenize")


def test_the_model_records_its_settings_and_all_its_ancestors(ready):
    assert ready("train").exit_code == 0
    _, artifact = read_model(Path("models/matching/model.safetensors"))
    assert artifact.settings["loss"] == ["sum_hinge"]
    assert artifact.settings["best_epoch"] in (1, 2)
    assert artifact.settings["started"] in (True, False)
    names = "activations captions embeddings statistics tokens train_images vocabulary"
    assert list(artifact.lineage) == names.split()
    assert Path("models/history/plots/metrics/val/rsum.tsv").exists()
    assert read_history_seal(Path("models/history")).model == artifact.digest


def test_two_phases_run_one_after_the_other(ready):
    losses = {"loss": ["sum_hinge", "max_hinge"]}
    change_params(Path(), {"train": losses | {"similarity": "order", "absolute": True}})
    assert ready("train").exit_code == 0
    phases = Path("models/history/plots/metrics/train/phase.tsv").read_text().split()[3::2]
    assert phases == ["1", "1", "2", "2"]


def test_a_finished_run_leaves_no_checkpoint_and_says_how_it_went(ready):
    result = ready("train")
    assert list(Path(".fne/training").iterdir()) == []
    assert re.search(
        r"^best epoch \d \(phase 1\): validation rsum \d+\.\d, chance \d+\.\d, "
        r"sentences for images [\d./ ]+, images for sentences",
        result.stdout,
        flags=re.MULTILINE,
    )


def test_experiments_are_chosen_by_figures_of_the_validation_split(ready):
    assert ready("train").exit_code == 0
    found = json.loads(Path("metrics/training.json").read_text())
    _, artifact = read_model(Path("models/matching/model.safetensors"))
    rsum = Path("models/history/plots/metrics/val/rsum.tsv").read_text().split()[3::2]
    validation = found["validation"]
    assert validation["rsum"] == max(map(float, rsum))
    assert (validation["images"], validation["captions"]) == (4, 8)
    both = [validation[way][f"R@{k}"] for way in ("image_to_text", "text_to_image") for k in (1, 5, 10)]
    assert sum(both) == pytest.approx(validation["rsum"])
    assert validation["chance"] == pytest.approx(25 + 100 * (1 - 3 / 28) + 100 + 25 + 100 + 100)
    assert all(found[key] == artifact.settings[key] for key in ("best_epoch", "started"))
    # Twelve images in batches of at most `train.batch`.
    steps = -(-12 // artifact.settings["batch"])
    assert (found["epochs"], found["updates"], found["collapsed"]) == (2, 2 * steps, False)


def test_a_training_that_does_not_start_says_what_happened_and_what_helps(ready, monkeypatch):
    monkeypatch.setattr("fne.evaluation.metrics.recall.STARTED", 1000.0)
    change_params(Path(), {"train": {"loss": "max_hinge"}})
    result = ready("train")
    assert result.exit_code == 0
    warning = result.stderr.splitlines()[-1]
    assert re.match(
        "Warning: training did not start: the validation rsum of .* chance \\(439.3\\). Start", warning
    )
    assert "(-S 'train.loss=[sum_hinge,max_hinge]'); " in warning


def test_a_log_gets_a_line_per_epoch(ready):
    lines = [line for line in ready("train").stderr.splitlines() if line.startswith("train, ")]
    assert len(lines) == 2
    for epoch, line in enumerate(lines, start=1):
        assert re.fullmatch(
            rf"train, phase 1 of 1 \(sum_hinge\): \d+ of \d+ steps \(\d+%\), [\d.,]+ steps/s, "
            rf"(at most \d+ s left, )?epoch {epoch}/2, loss [\d.e-]+, rsum [\d.]+, best [\d.]+",
            line,
        )


def test_half_precision_on_a_cpu_is_refused(ready):
    change_params(Path(), {"train": {"precision": "bfloat16"}})
    assert "train.precision is 'bfloat16', which needs a GPU; use 'float32' here" in refusal("train")


def test_a_run_that_is_terminated_says_so_and_continues_the_next_time(ready, monkeypatch):
    ready("train")
    expected = Path("models/matching/model.safetensors").read_bytes()
    shutil.rmtree(".fne")
    step = Trainer.step

    def terminated(self, *arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "step", terminated)
    result = ready("train")
    assert result.exit_code == 143
    assert "terminated; finished work is kept, and the same command continues from there" in result.stderr
    monkeypatch.setattr(Trainer, "step", step)
    assert "resuming at epoch 1, step 2\n" in ready("train").stdout
    assert Path("models/matching/model.safetensors").read_bytes() == expected


def test_tokens_of_other_captions_are_refused(ready):
    write_catalog(word="another")
    message = refusal("train")
    assert message.startswith("data/captions.jsonl holds captions ")
    assert "…, but captions/tokens.h5 was made from captions " in message


def test_embeddings_standardized_on_another_train_split_are_refused(run):
    run("standardize", "embed")
    write_catalog([*SPLITS[1:], "train"])
    run("tokenize")
    assert "features/embeddings was made from train_images " in refusal("train")


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (["train"] * 20, "0 captioned images in split 'val'; choosing the best epoch needs at least 1; see"),
        (["train"] + ["val"] * 19, "1 captioned images in split 'train'; training needs at least 2; see"),
        (["gallery"] * 20, "0 captioned images in split 'train'; training needs at least 2; see"),
    ],
)
def test_a_split_that_is_too_small_is_refused_before_the_first_step(run, splits, message):
    write_catalog(splits)
    assert message in refusal(*READY, "train")


def trained(result) -> bool:
    """Whether steps were made, and not a finished training taken."""
    assert result.exit_code == 0
    return "this training has finished before; its result is in the scratch folder" not in result.stdout


def test_a_finished_training_is_taken_from_the_scratch_folder(ready):
    assert trained(ready("train"))
    files = [Path("models/matching/model.safetensors"), *sorted(Path("models/history").rglob("*.*"))]
    files.append(Path("metrics/training.json"))
    first = [path.read_bytes() for path in files]
    shutil.rmtree("models")
    assert not trained(ready("train"))
    assert [path.read_bytes() for path in files] == first
    shutil.rmtree(".fne")
    assert trained(ready("train"))  # the same seed gives the same bytes
    assert [path.read_bytes() for path in files] == first


def test_settings_that_apply_and_other_inputs_train_again_and_blocks_of_other_variants_do_not(ready):
    ready("train")
    first = Path("models/matching/model.safetensors").read_bytes()
    others = {"max_hinge": {"hardest": "candidate"}, "top_k_hinge": {"hardest": "query", "k": 3}}
    change_params(Path(), {"train": others})
    assert not trained(ready("train"))
    assert Path("models/matching/model.safetensors").read_bytes() == first
    change_params(Path(), {"train": {"margin": 0.3}})
    assert trained(ready("train"))
    write_activations(seed=1)
    assert trained(ready("standardize", "embed", "train"))


@pytest.mark.parametrize("size", [0, 3, 300, 2_000, 4_000, 7_000, 20_000])
def test_a_full_disk_is_one_line_and_the_next_run_continues(ready, monkeypatch, size):
    monkeypatch.setattr(checkpoints, "SECONDS", 0.0)
    ready("train")
    expected = Path("models/matching/model.safetensors").read_bytes()
    shutil.rmtree(".fne")
    shutil.rmtree("models")
    with full_disk(size):
        result = ready("train")
    if result.exit_code:
        assert result.exit_code == 2, result.output
        assert result.stderr.splitlines()[-1].endswith("; free some space and run again")
        assert "Traceback" not in result.output
    assert ready("train").exit_code == 0
    assert Path("models/matching/model.safetensors").read_bytes() == expected
    assert [path.name for path in Path("models").iterdir() if path.name.endswith(".tmp")] == []


@pytest.mark.parametrize(
    "place", ["training/stray", "training/KEY/stray", "training/KEY/00000009.safetensors", "trained/stray"]
)
@pytest.mark.parametrize("kind", ["file", "folder", "link", "pipe"])
def test_strays_in_the_scratch_folder_are_ignored(ready, monkeypatch, place, kind):
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "step", _interrupt)
        assert ready("train").exit_code
    (key,) = [path.name for path in Path(".fne/training").iterdir()]
    mine = Path("mine").absolute()
    mine.write_text("mine")
    stray = Path(".fne") / place.replace("KEY", key)
    stray.parent.mkdir(parents=True, exist_ok=True)
    put(stray, kind, mine)
    assert ready("train").exit_code == 0
    assert os.path.lexists(stray) or (kind, stray.name) == ("file", "00000009.safetensors")
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
@pytest.mark.parametrize("place", ["training/KEY/lock", "trained/KEY"])
def test_what_is_in_the_way_is_named_with_the_command_that_removes_it(ready, place, kind):
    ready("train")
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
    command = re.search("remove it with `(.*)`", refusal("train"))
    subprocess.run(command.group(1), shell=True, check=True)
    assert ready("train").exit_code == 0
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


def test_vectors_of_another_length_than_the_models_are_refused(run):
    glove(Path("glove.txt"), VECTORS)
    change_params(Path(), {"tokenize": {"vectors": "glove.txt"}})
    message = "train.word_dim is 4, but glove.txt has vectors of 2; use -S train.word_dim=2"
    assert message in refusal(*READY, "train")


@pytest.mark.parametrize("method", ["steps", "cca"])
def test_vectors_that_a_closed_form_ignores_are_refused(run, method):
    glove(Path("glove.txt"), VECTORS)
    own = {"method": method, "start": "auto", "text_encoder": "tfidf", "image_head": "linear_bias"}
    change_params(Path(), {"tokenize": {"vectors": "glove.txt"}, "train": own | {"similarity": "cosine"}})
    message = refusal(*READY, "train")
    other = ", or -S train.text_encoder=gru" if method == "steps" else ""
    assert "tokenize.vectors is 'glove.txt', but train.cca.text is 'tfidf', which has no use for" in message
    assert message.endswith(f"; use -S ++train.cca.text=vectors{other}")


def test_fixed_words_without_vectors_are_refused(ready):
    change_params(Path(), {"train": {"words": "fixed"}})
    message = refusal("train")
    assert "train.words is 'fixed', but tokenize.vectors names no vectors; name a file of word vec" in message
    assert message.endswith(", or use -S ++train.words=learned")


@pytest.mark.parametrize("branch", ["mlp", "mlp_bn_first"])
def test_branches_train_and_encode(ready, branch):
    parts = {"image_head": branch, "text_encoder": f"bow_{branch}", "optimizer": "sgd_nesterov"}
    change_params(Path(), {"train": parts})
    assert ready("train", "encode", "evaluate").exit_code == 0


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


def test_an_instance_loss_leaves_a_classifier_beside_the_model(ready):
    change_params(Path(), DUAL_PATH)
    result = ready("train", "encode", "evaluate")
    assert result.exit_code == 0
    matcher, artifact = read_model(Path("models/matching/model.safetensors"))
    found = read_classifier(Path("models/matching/classifier.safetensors"))
    assert found.weight.shape == (SPLITS.count("train"), 8)
    assert found.labels.tolist() == list(range(SPLITS.count("train")))
    assert found.artifact.lineage["model"]["digest"] == artifact.digest
    assert not any("instance" in name for name in matcher.state_dict())
    assert artifact.settings["instance"]["classes"] == 0


def test_k_means_classes_are_in_the_classifier(ready):
    change_params(Path(), DUAL_PATH)
    change_params(Path(), {"train": {"instance.classes": 3, "instance.bias": True}})
    result = ready("train")
    assert result.exit_code == 0
    found = read_classifier(Path("models/matching/classifier.safetensors"))
    assert (found.weight.shape, found.bias.shape) == ((3, 8), (3,))
    assert set(found.labels.tolist()) == {0, 1, 2}
    assert "the classifier of 3 images and 8 dimensions takes 0.0 MB with its gradient" in result.stdout


def test_without_an_instance_loss_there_is_no_classifier_and_other_files_stay(ready):
    Path("models/matching").mkdir(parents=True)
    for name in ("classifier.safetensors", "notes.txt"):  # one of an earlier run, and one of the user
        Path("models/matching", name).write_text("old")
    assert ready("train").exit_code == 0
    names = sorted(path.name for path in Path("models/matching").iterdir())
    assert names == ["model.safetensors", "notes.txt"]


def test_a_classifier_that_does_not_fit_into_memory_is_refused_before_the_first_step(ready, monkeypatch):
    change_params(Path(), DUAL_PATH)
    with monkeypatch.context() as patched:
        patched.setattr(methods, "free_memory", lambda device: 1000)
        found = refusal("train")
    assert "0.0 MB are free; lower train.embed_dim, or use train.instance.classes" in found
    change_params(Path(), {"train": {"text_cnn.positions": 2}})
    message = (
        "a caption has 3 words, but text encoder 'text_cnn' has 2 positions; use -S ++tokenize.longest=2"
    )
    assert message in refusal("train")
    assert not Path("models/matching/model.safetensors").exists()


def test_views_are_drawn_in_training_and_averaged_afterwards(run):
    """Views that are all alike train and encode as a single one does."""
    write_activations(layers=view_layers([Layer("fc7", 3)], 2), equal_views=True)
    embed = {"kind": "plain", "layer": "fc7"}
    change_params(Path(), {"embed": embed, "train": DUAL_PATH["train"] | {"keep": "best"}})
    assert run(*READY, "train", "encode", "baseline").exit_code == 0
    matcher, _ = read_model(Path("models/matching/model.safetensors"))
    assert matcher.shape.features == 3
    of_views = Rows.open(Path("vectors/images")).read(["00.png", "19.png"])
    write_activations(layers=[Layer("fc7", 3)], equal_views=True)
    assert run(*READY, "train", "encode").exit_code == 0
    alone = Rows.open(Path("vectors/images")).read(["00.png", "19.png"])
    np.testing.assert_allclose(of_views, alone, rtol=1e-4, atol=1e-5)


def test_the_default_training_starts_from_the_closed_form_and_is_encoded_and_evaluated(ready):
    parts = {"image_head": "linear_bias", "text_encoder": "tfidf"}
    change_params(Path(), {"train": parts | {"start": "auto", "rates": "relative", "learning_rate": 0.01}})
    assert ready("train", "encode", "evaluate").exit_code == 0
    _, artifact = read_model(Path("models/matching/model.safetensors"))
    assert artifact.settings["start"] == "cca"
    assert artifact.settings["cca"]["dim"] == 8
    # Before the first step there is a validation, and no loss.
    tables = Path("models/history/plots/metrics")
    assert len((tables / "val/rsum.tsv").read_text().splitlines()) == 1 + 3
    assert len((tables / "train/loss.tsv").read_text().splitlines()) == 1 + 2
