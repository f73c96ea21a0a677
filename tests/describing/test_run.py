"""A tagger that learns from a small world whose features are the truth."""

import numpy as np
import pytest
import torch

from fne.core.signals import StoppedError
from fne.describing.run import train_describing_model
from fne.describing.validation import tag_examples
from fne.describing.write import written_mask
from fne.evaluation.metrics.tag_metrics import label_metrics
from fne.training import checkpoints
from fne.training.run import Job
from tests.support.tagging import inputs, scenes, settings, write_world

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write_world(folder, scenes())
    return folder


def train(world, scratch, stopping=lambda: False, **changes):
    chosen = settings(**changes)
    opened = inputs(world, chosen)
    task, done = train_describing_model(chosen, opened, Job(CPU, scratch, stopping))
    return task.model, done, opened


def test_features_that_are_the_truth_are_tagged_with_f1_99(tmp_path):
    write_world(tmp_path, scenes(300))
    rates = {"learning_rate": [0.01, 0.003], "concept_head_rate": [0.02, 0.003]}
    tagger, done, opened = train(tmp_path, tmp_path, epochs=14, units=128, patience=14, **rates)
    validation = opened.validation
    found = tag_examples(tagger, validation)
    scores = label_metrics(written_mask(found.written, 22), validation.labels)
    assert scores["image_f1"] >= 99
    assert scores["class_f1"] >= 99
    assert scores["pooled_f1"] >= 99
    assert done.kept.scores.values["mAP"] == pytest.approx(100)
    # Rare tags come first: frequencies rise along every path.
    counts = np.array(opened.vocabulary.concepts.counts)
    assert all((np.diff(counts[path]) >= 0).all() for path in found.written)
    assert all(len(set(path)) == len(path) for path in found.written)


@pytest.mark.parametrize(
    "changes",
    [
        {"condition": "embedding", "concept_loss": "none", "learns": "jointly"},
        {"condition": "embedding", "concept_loss": "logistic", "learns": "jointly"},
        {"condition": "hidden", "concept_head": "hidden", "learns": ["concept_head", "jointly"]},
        {"condition": "concepts", "concept_loss": "softmax", "learns": ["concept_head", "decoder"]},
        {"condition": "concepts", "concept_loss": "warp", "learns": ["concept_head", "jointly"]},
        {"user_tags": "user"},
        {"user_tags": "user", "user__sum": "probabilities", "learns": "jointly"},
        {"concepts": "words", "words__count": 20},
    ],
)
def test_every_ablation_learns_something(world, tmp_path, changes):
    _, done, _ = train(world, tmp_path, epochs=3, concept_head_rate=0.01, **changes)
    last = [point.loss for point in done.points if point.phase == done.points[-1].phase]
    assert last[-1] < last[0]


@pytest.mark.parametrize("loss", ["logistic", "softmax", "warp"])
def test_a_concept_head_alone_ranks_the_concepts(world, tmp_path, loss):
    tagger, done, opened = train(
        world, tmp_path, learns="concept_head", concept_loss=loss, epochs=12, concept_head_rate=0.02
    )
    assert tagger.decoder is None
    assert done.kept.scores.name == "mAP"
    assert done.kept.scores.main > 95
    assert tag_examples(tagger, opened.validation).written is None


def test_the_concept_head_that_a_first_phase_hands_on_is_its_best_one(world, tmp_path):
    _, done, _ = train(
        world, tmp_path, learns=["concept_head", "decoder"], epochs=[6, 2], concept_head_rate=0.01
    )
    first = [point for point in done.points if point.phase == 1]
    assert {point.scores.name for point in first} == {"mAP_below_100"}
    best = max(point.scores.values["mAP"] for point in first)
    assert best > first[0].scores.values["mAP"]
    assert done.points[6].scores.values["mAP"] == best
    assert done.kept.phase == 2


def test_user_tags_help_where_the_image_says_little(tmp_path):
    write_world(tmp_path, scenes(), noise=1.5)
    scores = [
        train(
            tmp_path, tmp_path, learns="concept_head", user_tags=user_tags, epochs=15, concept_head_rate=0.01
        )[1]
        for user_tags in ("none", "user")
    ]
    without, with_tags = (done.kept.scores.values["mAP"] for done in scores)
    assert with_tags > without + 5


def test_a_killed_training_ends_with_the_same_bits(world, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "SECONDS", 0.0)
    changes = {"epochs": 3, "concept_head_rate": 0.01, "dropout": 0.3, "user_tags": "user"}
    whole, done, _ = train(world, tmp_path / "whole", **changes)
    calls = 0

    def stop_at_every_fifth_step():
        nonlocal calls
        calls += 1
        return calls % 5 == 0

    stops = 0
    while True:
        try:
            resumed, again, _ = train(world, tmp_path / "killed", stop_at_every_fifth_step, **changes)
            break
        except StoppedError:
            stops += 1
    assert stops >= 5
    assert again.points == done.points
    state = resumed.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in whole.state_dict().items())
