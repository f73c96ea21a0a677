"""The matching task, trained with rows from a network."""

from dataclasses import replace

import pytest
import torch

from fne.core.errors import InputError
from fne.extraction import preprocess
from fne.matching.task import IMAGE_CLASSES, TEXT_CLASSES
from fne.training.best_epoch import Phase
from fne.training.loop import Schedule, Trainer, step_generator
from fne.training.optimizers import sgd_nesterov
from fne.training.settings import SgdNesterov
from tests.support.finetuning import OBJECTIVE, draw_images, network_rows, small_task, tuned_network
from tests.support.training import MemoryCheckpoints

SGD = SgdNesterov(momentum=0.9, weight_decay=0.0001)


def schedule(epochs=2, keep="last"):
    phases = [Phase("tuning", rate, epochs, epochs) for rate in (0.05, 0.01)]

    def optimizer(groups, rate):
        return sgd_nesterov(groups, rate, SGD)

    return Schedule(phases, 0, optimizer, 0.0, "global", 0, keep, validate_start=True)


def test_the_objective_is_the_weighted_sum_of_its_terms(tmp_path):
    task = small_task(tmp_path)
    task.trained.train()
    batch = task.batches(0)[0]
    loss = task.loss(batch, step_generator(0, 0))
    terms = {name: float(value) / len(batch) for name, value in loss.terms.items()}
    assert set(terms) >= {"ranking", IMAGE_CLASSES, TEXT_CLASSES}
    wanted = 2.0 * terms["ranking"] + terms[IMAGE_CLASSES] + 0.1 * terms[TEXT_CLASSES]
    assert loss.total.item() == pytest.approx(wanted, rel=1e-5)
    assert loss.value.item() == pytest.approx(6 * wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("weights", "names"),
    [
        ({"image_classes": 0.0, "text_classes": 0.0}, {"ranking"}),
        ({"rank": 0.0, "text_classes": 0.0}, {IMAGE_CLASSES, f"{IMAGE_CLASSES}_error"}),
    ],
)
def test_a_term_of_weight_zero_is_not_computed(tmp_path, weights, names):
    objective = replace(OBJECTIVE, **weights)
    task = small_task(tmp_path, objective=objective)
    task.trained.train()
    batch = task.batches(0)[0]
    assert set(task.loss(batch, step_generator(0, 0)).terms) == names
    groups = {group.name for group in task.parameter_groups()}
    assert ("classifier" in groups) == objective.has_instance_loss


def test_a_step_is_the_same_for_parts_of_any_size(tmp_path, monkeypatch):
    def stepped(part):
        task = small_task(tmp_path, tuned_network(part=part, dtype=torch.float64))
        task.trained.double()
        # In float64, since batch normalization over six images magnifies the last digits of float32.
        normalized = "fne.finetuning.network_rows.normalize"
        monkeypatch.setattr(normalized, lambda pixels, _: preprocess.normalize(pixels).double())
        trainer = Trainer(task, schedule())
        trainer.step(task.batches(0)[0])
        return task.trained.state_dict()

    whole = stepped(6)
    for part in (1, 4):
        for name, value in stepped(part).items():
            assert torch.allclose(value, whole[name], rtol=0, atol=1e-10), name


def test_frozen_layers_and_fixed_words_are_left_to_themselves(tmp_path):
    task = small_task(tmp_path, tuned_network(first=1), fixed_words=True)
    trained = {id(each) for group in task.parameter_groups() for each in group.parameters}
    assert id(task.matcher.text_encoder.words.weight) not in trained
    before = {name: value.clone() for name, value in task.source.network.full_state().items()}
    words = task.matcher.text_encoder.words.weight.clone()
    Trainer(task, schedule()).train()
    after = task.source.network.full_state()
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert changed == {"3.weight", "3.bias", "4.weight", "4.bias", "6.weight", "6.bias"}
    assert torch.equal(words, task.matcher.text_encoder.words.weight)
    task.source.close()


def test_every_trained_weight_is_in_one_group_with_its_rate(tmp_path):
    task = small_task(tmp_path)
    groups = task.parameter_groups()
    listed = [id(each) for group in groups for each in group.parameters]
    trained = [id(each) for each in task.trained.parameters() if each.requires_grad]
    assert sorted(listed) == sorted(trained)
    network = {"network_weights": 0.1, "network_biases": 0.2, "network_gains": 0.01, "network_first": 0.05}
    others = {"words": 0.5, "gains": 2.0, "weights": 1.0, "classifier": 0.25, "classifier_bias": 0.25}
    assert {group.name: group.rate for group in groups} == network | others


def test_a_run_resumed_after_any_step_ends_with_the_same_bits(tmp_path):
    checkpoints = MemoryCheckpoints(always=True)
    task = small_task(tmp_path)
    Trainer(task, schedule(), checkpoints).train()
    wanted = task.trained.state_dict()
    assert len(checkpoints.saved) == 2 * 2 * 2
    for saved in checkpoints.saved[::3]:
        again = small_task(tmp_path)
        Trainer(again, schedule(), MemoryCheckpoints(start=saved)).train()
        assert all(torch.equal(value, wanted[name]) for name, value in again.trained.state_dict().items())


def test_workers_that_read_change_nothing(tmp_path):
    states = []
    for workers in (0, 1):
        task = small_task(tmp_path, workers=workers)
        Trainer(task, schedule(epochs=1)).train()
        task.source.close()
        states.append(task.trained.state_dict())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_the_loss_falls_and_the_first_validation_is_of_the_model_before(tmp_path):
    task = small_task(tmp_path)
    start = task.validate().main
    trainer = Trainer(task, schedule(epochs=8))
    trainer.train()
    points = trainer.progress.points
    assert points[0].epoch == 0
    assert points[0].scores.main == start
    assert points[-1].loss < points[1].loss
    assert task.warning(1, points) is None
    task.source.close()


@pytest.mark.parametrize("size", [1, 4, 5, 12, 99])
def test_blocks_are_the_rows_of_the_centers_without_gradients(tmp_path, size):
    rows = network_rows(tmp_path)
    ids = list(draw_images(tmp_path / "images"))
    blocks = list(rows.blocks(ids, size))
    assert [len(each) for each in blocks[:-1]] == [size] * (len(blocks) - 1)
    assert not any(each.requires_grad for each in blocks)
    assert torch.allclose(torch.cat(blocks), torch.cat([rows.read([each]) for each in ids]), atol=1e-6)


def test_an_image_without_a_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="images.jsonl: has no image file of 'x.png'; run `dvc repro`"):
        network_rows(tmp_path).check_ids(["00.png", "x.png"])
