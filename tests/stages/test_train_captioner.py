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
from tests.support.projects import change_params
from tests.support.stages import COMMANDS, refused

MODEL = Path("models/captioner.safetensors")


@pytest.fixture
def train(captioning_project):
    """Run the stage in a folder with a small world."""
    shutil.rmtree(".fne")
    return lambda: CliRunner().invoke(main, COMMANDS["train_captioner"].split())


def test_the_captioner_records_its_settings_words_and_ancestors(train):
    result = train()
    assert result.exit_code == 0, result.output
    assert "48 training images with 96 captions, 12 words, 12 concepts (100% of the" in result.stdout
    assert re.search(r"^best epoch \d \(phase \d\): validation CIDEr-D \d\.\d{3}", result.stdout, re.M)
    _, file = read_describing_model(MODEL, CAPTIONER)
    assert file.artifact.settings["learns"] == ["separately", "jointly"]
    assert list(file.artifact.lineage) == ["captions", "embeddings", "train_images"]
    assert len(file.vocabulary.words.words) == 12
    seal = read_history_seal(Path("models/captioner_history"))
    assert (list(seal.artifact.lineage), seal.model, seal.points) == (["captioner"], file.artifact.digest, 2)
    assert Path("models/captioner_history/plots/metrics/train/terms/concepts.tsv").exists()
    json.loads(Path("models/captioner_history/metrics.json").read_text())


def test_the_same_seed_gives_the_same_bytes_and_a_finished_training_is_kept(train):
    first = MODEL.read_bytes()
    train()
    assert MODEL.read_bytes() == first
    assert "this training has finished before" in train().stdout
    assert MODEL.read_bytes() == first


def test_a_run_that_is_terminated_continues_the_next_time(train, monkeypatch):
    expected = MODEL.read_bytes()
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
    own = {"learning_rate": 999.0, "clip": 0.0, "cell": "rnn_relu", "epochs": 30, "patience": 30}
    change_params(Path(), {"train_captioner": own})
    message = refused(train())
    assert message.startswith("training stopped: the ")
    assert message.endswith("; lower train_captioner.learning_rate or check these inputs")


def test_no_word_left_is_refused(train):
    change_params(Path(), {"train_captioner": {"min_count": 1000}})
    message = refused(train())
    assert "no word of the training captions is left with min_count 1000" in message
    assert message.endswith("lower min_count or check the captions")
