import os
import re
import signal
from pathlib import Path

import pytest

from fne.matching.modelfile import read_model
from fne.matching.run import Run
from tests.projects import change_params
from tests.stages.conftest import SPLITS, write_catalog

READY = ("standardize", "embed", "tokenize")


def test_the_model_knows_its_settings_and_all_its_ancestors(run):
    assert run(*READY, "train").exit_code == 0
    _, artifact = read_model(Path("models/matching.safetensors"))
    assert artifact.settings["loss"] == ["sum_hinge"]
    assert artifact.settings["best_epoch"] in (1, 2)
    assert artifact.settings["started"] in (True, False)
    assert list(artifact.lineage) == [
        "activations", "captions", "embeddings", "statistics", "tokens", "train_images", "vocabulary",
    ]  # fmt: skip
    assert Path("models/history/plots/metrics/val/rsum.tsv").exists()


def test_two_phases_run_one_after_the_other(run):
    change_params(
        Path(), {"train": {"loss": ["sum_hinge", "max_hinge"], "similarity": "order", "absolute": True}}
    )
    assert run(*READY, "train").exit_code == 0
    phases = Path("models/history/plots/metrics/train/phase.tsv").read_text().split()[3::2]
    assert phases == ["1", "1", "2", "2"]


def test_the_same_seed_gives_the_same_bytes(run):
    run(*READY, "train")
    first = Path("models/matching.safetensors").read_bytes()
    run("train")
    assert Path("models/matching.safetensors").read_bytes() == first


def test_a_finished_run_leaves_no_checkpoint_and_says_how_it_went(run):
    result = run(*READY, "train")
    assert list(Path(".fne/training").iterdir()) == []
    assert re.search(
        r"^best epoch \d \(phase 1\): validation rsum \d+\.\d, sentences for images [\d./ ]+, images for sentences",
        result.stdout,
        flags=re.MULTILINE,
    )


def test_half_precision_on_a_cpu_is_refused(run):
    change_params(Path(), {"train": {"precision": "bfloat16"}})
    result = run(*READY, "train")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: params.yaml: train.precision is 'bfloat16', which needs a GPU; use 'float32' here\n",
    )


def test_a_run_that_is_terminated_says_so_and_goes_on_the_next_time(run, monkeypatch):
    run(*READY, "train")
    expected = Path("models/matching.safetensors").read_bytes()
    step = Run._step

    def terminated(self, *arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *arguments)

    monkeypatch.setattr(Run, "_step", terminated)
    result = run("train")
    assert result.exit_code == 143
    assert result.stderr.endswith("terminated; run it again to go on from here\n")
    monkeypatch.setattr(Run, "_step", step)
    assert "going on from epoch 1, step 2\n" in run("train").stdout
    assert Path("models/matching.safetensors").read_bytes() == expected


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
    ],
)
def test_a_split_that_is_too_small_is_refused_before_the_first_step(run, splits, message):
    write_catalog(splits)
    result = run(*READY, "train")
    assert (result.exit_code, result.stderr) == (2, f"Error: {message}; see `catalog` in params.yaml\n")


def test_a_collection_without_captions_is_refused(run):
    write_catalog(["gallery"] * 20)
    result = run(*READY, "train")
    assert result.exit_code == 2
    assert "the catalog has 0 captioned images in split 'train'; training needs at least 2" in result.stderr
