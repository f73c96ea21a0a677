import copy

import pytest
import torch
from torch.nn.functional import normalize

from fne.extraction import preprocess
from fne.finetuning.task import IMAGE_CLASSES, RANKING, TEXT_CLASSES, Objective, rank_mined
from fne.training.best_epoch import Phase
from fne.training.loop import Schedule, Trainer, step_generator
from fne.training.optimizers import SgdNesterov, sgd_nesterov
from tests.support.finetuning import small_task, tuned_network
from tests.support.training import MemoryCheckpoints

SGD = SgdNesterov(momentum=0.9, weight_decay=0.0001)


def schedule(epochs=2, keep="last"):
    phases = [Phase("tuning", rate, epochs, epochs) for rate in (0.05, 0.01)]

    def optimizer(groups, rate):
        return sgd_nesterov(groups, rate, SGD)

    return Schedule(phases, 0, optimizer, 0.0, "global", 0, keep, validate_start=True)


def pixels(task, batch):
    return torch.stack([task._images.crops[each, batch.epoch] for each in batch.image_ids])


def test_the_ranking_loss_is_that_of_a_plain_loop():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        scores = torch.randn(8, 8, generator=generator, dtype=torch.float64)
        total = 0.0
        for i in range(4):  # as the published code: anchors, mined captions, other images
            total += max(0.0, 0.5 - float(scores[i, i]) + float(scores[i, 4 + i]))
            total += max(0.0, 0.5 - float(scores[i, i]) + float(scores[4 + i, i]))
        assert rank_mined(scores, 0.5).item() == pytest.approx(total / 8, abs=1e-12)


def test_with_a_weight_of_two_the_ranking_loss_is_the_mean_over_the_anchors():
    collapsed = torch.zeros(32, 32)
    assert 2 * rank_mined(collapsed, 1.0).item() == pytest.approx(2.0)  # both directions of each anchor


def test_the_nearest_candidate_is_mined_in_test_mode(tmp_path):
    task = small_task(tmp_path)
    task.trained.train()
    statistics = copy.deepcopy(task.matcher.state_dict())
    batch = task.batches(0)[0]
    rows = task.network(task._prepared(pixels(task, batch))).detach()
    mined = task.mine(batch, rows)
    assert task.matcher.training
    assert all(torch.equal(value, statistics[name]) for name, value in task.matcher.state_dict().items())
    task.matcher.eval()
    for anchor, found in zip(rows, mined, strict=False):
        image = normalize(task.matcher.image_head(anchor[None]).relu(), dim=1)
        scores = {}
        for each in batch.candidates:
            encoded = task.matcher.text_encoder(*task._training.words([each]))
            scores[each] = (image @ normalize(encoded.relu(), dim=1).T).item()
        assert scores[found] == pytest.approx(max(scores.values()), abs=1e-6)
    assert len(mined) == len(batch.caption_ids) == 3


def test_the_objective_is_the_weighted_sum_of_its_terms(tmp_path):
    task = small_task(tmp_path)
    task.trained.train()
    batch = task.batches(0)[0]
    loss = task.loss_of(batch, pixels(task, batch), step_generator(0, 0))
    terms = {name: float(value) / len(batch) for name, value in loss.terms.items()}
    assert set(terms) == {RANKING, IMAGE_CLASSES, TEXT_CLASSES}
    wanted = 2.0 * terms[RANKING] + terms[IMAGE_CLASSES] + 0.1 * terms[TEXT_CLASSES]
    assert loss.total.item() == pytest.approx(wanted, rel=1e-5)
    assert loss.value.item() == pytest.approx(6 * wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("objective", "names"),
    [(Objective(0.5, 2.0, 0.0, 0.0), {RANKING}), (Objective(0.5, 0.0, 1.0, 0.0), {IMAGE_CLASSES})],
)
def test_a_term_of_weight_zero_is_not_computed(tmp_path, objective, names):
    task = small_task(tmp_path, objective=objective)
    task.trained.train()
    batch = task.batches(0)[0]
    assert set(task.loss_of(batch, pixels(task, batch), step_generator(0, 0)).terms) == names
    groups = {group.name for group in task.parameter_groups()}
    assert ("classifier" in groups) == objective.has_instance_loss


def test_a_step_is_the_same_for_parts_of_any_size(tmp_path):
    def stepped(part):
        task = small_task(tmp_path, tuned_network(part=part, dtype=torch.float64))
        task.trained.double()
        # In float64, since batch normalization over six images magnifies the last digits of float32.
        task._prepared = lambda pixels: preprocess.normalize(pixels).double()
        trainer = Trainer(task, schedule())
        trainer.step(task.batches(0)[0])
        return task.trained.state_dict()

    whole = stepped(6)
    for part in (1, 4):
        for name, value in stepped(part).items():
            assert torch.allclose(value, whole[name], rtol=0, atol=1e-10), name


def test_frozen_layers_and_fixed_words_are_left_to_themselves(tmp_path):
    task = small_task(tmp_path, tuned_network(first=1))
    task.matcher.text_encoder.words.requires_grad_(False)
    trained = {id(each) for group in task.parameter_groups() for each in group.parameters}
    assert id(task.matcher.text_encoder.words.weight) not in trained
    before = {name: value.clone() for name, value in task.network.full_state().items()}
    words = task.matcher.text_encoder.words.weight.clone()
    Trainer(task, schedule()).train()
    after = task.network.full_state()
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert changed == {"3.weight", "3.bias", "4.weight", "4.bias", "6.weight", "6.bias"}
    assert torch.equal(words, task.matcher.text_encoder.words.weight)
    task.close()


def test_every_trained_weight_is_in_one_group_with_its_rate(tmp_path):
    task = small_task(tmp_path)
    groups = task.parameter_groups()
    listed = [id(each) for group in groups for each in group.parameters]
    trained = [id(each) for each in task.trained.parameters() if each.requires_grad]
    assert sorted(listed) == sorted(trained)
    assert {group.name: group.rate for group in groups} == {
        "network_weights": 0.1,
        "network_biases": 0.2,
        "network_gains": 0.01,
        "network_first": 0.05,
        "words": 0.5,
        "gains": 2.0,
        "weights": 1.0,
        "classifier": 0.25,
        "classifier_bias": 0.25,
    }


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
        task.close()
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
    task.close()
