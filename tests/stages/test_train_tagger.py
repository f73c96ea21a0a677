import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fne.describing.model_file import read_describing_model
from fne.describing.settings import TAGGER
from fne.store.history import read_history_seal
from fne.training.loop import Trainer
from stages.train_tagger import main
from tests.support.projects import change_params
from tests.support.stages import COMMANDS, refused
from tests.support.tagging import scenes, write_project, write_world

MODEL = Path("models/tagger.safetensors")
WORLD = scenes(60)


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Run the stage in a folder with a small world."""
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, WORLD)
    return lambda: CliRunner().invoke(main, COMMANDS["train_tagger"].split())


def test_the_tagger_records_its_settings_concepts_and_ancestors(train):
    result = train()
    assert result.exit_code == 0, result.output
    assert "22 concepts, 4.8 per training image, 100.0% of all occurrences" in result.stdout
    best = r"^best epoch \d \(phase \d\): validation mAP \d+\.\d, F1 per class"
    assert re.search(best, result.stdout, re.M)
    _, tagger = read_describing_model(MODEL, TAGGER)
    assert len(tagger.vocabulary.concepts.names) == 22
    assert tagger.artifact.settings["learns"] == ["separately", "jointly"]
    assert tagger.artifact.settings["best_epoch"] >= 1
    assert list(tagger.artifact.lineage) == ["captions", "embeddings", "train_images"]
    seal = read_history_seal(Path("models/tagger_history"))
    assert seal.artifact.lineage == {"tagger": {"digest": tagger.artifact.digest, "settings": {}}}
    assert seal.points == 4


def test_a_terminated_training_ends_with_the_same_bytes(train, monkeypatch):
    train()
    first = MODEL.read_bytes()
    shutil.rmtree(".fne")
    step = Trainer.step

    def interrupted(self, batch):
        if self.progress.updates == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, batch)

    monkeypatch.setattr(Trainer, "step", interrupted)
    assert train().exit_code == 143
    monkeypatch.setattr(Trainer, "step", step)
    assert "resuming at epoch" in train().stdout
    assert MODEL.read_bytes() == first


def test_a_data_set_without_tags_is_refused(train, tmp_path):
    write_world(tmp_path, [replace(record, tags=()) for record in WORLD])
    message = refused(train())
    assert message.startswith("data/captions.jsonl: concepts: no training image has tags")
    assert "set train_tagger.concepts to words" in message


def test_words_of_captions_can_be_concepts(train, tmp_path):
    change_params(tmp_path, {"train_tagger": {"concepts": "words", "words.count": 12}})
    write_world(tmp_path, [replace(record, tags=()) for record in WORLD])
    assert "the 12 concepts cover" in train().stdout
    assert len(read_describing_model(MODEL, TAGGER)[1].vocabulary.concepts.names) == 12


def test_a_loss_that_is_not_finite_stops_with_the_images(train, tmp_path):
    change_params(tmp_path, {"train_tagger": {"learning_rate": 900.0, "clip": 0.0}})
    assert re.search(
        r"training stopped: the (loss|gradient) is \S+ at step \d+ of epoch \d, with images scene-\d{4}\.jpg.*"
        r"lower train_tagger\.learning_rate or check these inputs|are not numbers",
        refused(train()),
    )
