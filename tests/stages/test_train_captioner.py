import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from fne.describing.model_file import read_describing_model
from fne.describing.settings import CAPTIONER
from fne.store.history import read_history_seal
from fne.training.loop import Trainer
from stages.train_captioner import main
from tests.support.captions import write_world
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.stages import COMMANDS

MODEL = Path("models/captioner.safetensors")


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Run the stage in a folder with a small world."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    change_params(
        tmp_path,
        {
            "train_captioner": {
                "threads": 1,
                "units": 8,
                "word_dim": 6,
                "batch": 32,
                "epochs": 1,
                "min_count": 1,
            },
            "runtime": {"device": "cpu", "threads": 1},
        },
    )
    write_world(tmp_path)
    return lambda: CliRunner().invoke(main, COMMANDS["train_captioner"].split())


def test_the_captioner_records_its_settings_words_and_ancestors(train):
    result = train()
    assert result.exit_code == 0, result.output
    assert (
        "48 training images with 96 captions, 12 words, 12 concepts (100% of the occurrences" in result.stdout
    )
    assert re.search(
        r"^best epoch \d \(phase \d\): validation CIDEr-D \d\.\d{3}", result.stdout, re.MULTILINE
    )
    _, file = read_describing_model(MODEL, CAPTIONER)
    assert file.artifact.settings["learns"] == ["separately", "jointly"]
    assert list(file.artifact.lineage) == ["captions", "embeddings", "train_images"]
    assert len(file.vocabulary.words.words) == 12
    seal = read_history_seal(Path("models/captioner_history"))
    assert (list(seal.artifact.lineage), seal.model, seal.points) == (["captioner"], file.artifact.digest, 2)
    assert Path("models/captioner_history/plots/metrics/train/terms/concepts.tsv").exists()


def test_the_same_seed_gives_the_same_bytes_and_a_finished_training_is_kept(train):
    train()
    first = MODEL.read_bytes()
    assert "this training has finished before" in train().stdout
    assert MODEL.read_bytes() == first
    shutil.rmtree(".fne")
    train()
    assert MODEL.read_bytes() == first


def test_a_run_that_is_terminated_continues_the_next_time(train, monkeypatch):
    train()
    expected = MODEL.read_bytes()
    shutil.rmtree(".fne")
    step = Trainer.step

    def terminated(self, *arguments):
        if self.progress.updates == 4:  # in the second phase
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "step", terminated)
    assert train().exit_code == 143
    monkeypatch.setattr(Trainer, "step", step)
    assert "resuming at epoch 2, step 3\n" in train().stdout
    assert MODEL.read_bytes() == expected


def test_a_loss_that_is_not_finite_names_the_images(train):
    change_params(Path(), {"train_captioner": {"learning_rate": 999.0, "clip": 0.0, "cell": "rnn_relu"}})
    change_params(Path(), {"train_captioner": {"epochs": 30, "patience": 30}})
    result = train()
    assert result.exit_code == 2
    assert "Error: training stopped: the " in result.stderr
    assert "; lower train_captioner.learning_rate or check these inputs\n" in result.stderr


def test_no_word_left_is_refused(train):
    change_params(Path(), {"train_captioner": {"min_count": 1000}})
    result = train()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: no word of the training captions is left with min_count 1000 and max_words 12000: the most "
        "frequent, 'a', occurs 96 times; lower min_count or check the captions\n",
    )


def test_metrics_json_of_the_history_is_valid(train):
    train()
    json.loads(Path("models/captioner_history/metrics.json").read_text())
