"""The rates of a matching model's weights; `tests/training/test_loop.py` trains the task."""

import math
from functools import partial

import pytest
import torch
from torch.nn import functional

from fne.core.distributed_layers import Step
from fne.matching.hard_negatives import LossChoices
from fne.matching.instance_loss import Classes, class_numbers, new_instance
from fne.matching.model import Shape, new_matcher
from fne.matching.settings import InstanceLoss
from fne.matching.task import RATE_OF_ZEROS, RATES, MatchingOptions, MatchingTask, Objective, RateFactors
from fne.training.best_epoch import Phase, Point, Scores
from fne.training.loop import Schedule, Trainer, step_generator
from fne.training.optimizers import OPTIMIZERS
from fne.training.settings import SgdNesterov
from tests.support.pairs import FEATURES, WORDS, Doubled
from tests.support.processes import in_processes
from tests.support.training import MemoryCheckpoints, matching_data
from tests.support.variants import settings_of

TFIDF = Shape("linear_bias", "tfidf", "cosine", False, FEATURES, WORDS, 5, 4)
GRU = Shape(
    "linear", "gru", "cosine", False, FEATURES, WORDS, 5, 4, text_encoder_settings={"initial": "torch"}
)


def by_name(matcher):
    return {group.name: group for group in RATES["relative"](matcher)}


def test_relative_rates_are_the_sizes_that_tensors_start_with():
    matcher = new_matcher(TFIDF, seed=0)
    with torch.no_grad():
        matcher.image_head.weight.copy_(torch.tensor([3.0, -4.0]).repeat(4, FEATURES // 2))
        matcher.text_encoder.words.weight[:, :-1] = 0.5
        matcher.text_encoder.words.weight[:, -1] = 100.0  # weights of words, which are not trained
    groups = by_name(matcher)
    assert groups["image_head.weight"].rate == pytest.approx(12.5**0.5)
    assert groups["text_encoder.words.weight"].rate == pytest.approx(0.5)
    assert groups["image_head.bias"].rate == RATE_OF_ZEROS
    assert set(groups) == {name for name, _ in matcher.named_parameters()}


@pytest.mark.parametrize("rates", RATES)
def test_weights_that_are_not_trained_are_in_no_group(rates):
    matcher = new_matcher(GRU, seed=0, vectors=torch.ones(WORDS, 5).numpy(), fixed=True)
    trained = [each for group in RATES[rates](matcher) for each in group.parameters]
    assert {id(each) for each in trained} == {
        id(each) for name, each in matcher.named_parameters() if name != "text_encoder.words.weight"
    }


INSTANCE = Objective("max_hinge", LossChoices(reduce="mean"), 0.5, 0.0, 1.0, 1.0)
RANK = Objective("max_hinge", LossChoices(reduce="mean"), 0.5)
BOTH = Objective("max_hinge", LossChoices(reduce="mean"), 0.5, 2.0, 1.0, 0.1)
FACTORS = RateFactors(words=0.5, classifier=0.1, gains=2.0, classifier_bias=2.0)


def new_shape():
    head = settings_of("dual_path", hidden=[6]).model_dump()
    text = settings_of("text_cnn", width=1 / 64, positions=6, blocks=[1, 1, 1, 1]).model_dump()
    return Shape("dual_path", "text_cnn", "cosine", False, 16, 12, 5, 8, head, text)


def new_task(pairs, *objectives, dropout=0.5, dtype=torch.float32, batch=4, **choices):
    settings = InstanceLoss(classes=0, dropout=dropout, bias=True, bias_rate=2.0)
    classes = Classes(new_instance(10, 8, settings, seed=0).to(dtype), class_numbers(pairs.image_ids))
    matcher = new_matcher(new_shape(), seed=0).to(dtype)
    data = matching_data(Doubled(pairs) if dtype == torch.float64 else pairs, batch)
    return MatchingTask(matcher, objectives, data, MatchingOptions(**choices), classes)


def new_trainer(task, *phases, checkpoints=None, **choices):
    optimizer = partial(OPTIMIZERS["sgd_nesterov"], settings=SgdNesterov())
    schedule = Schedule(phases, 0, optimizer, 0.0, "global", 0, "last")
    return Trainer(task, schedule, checkpoints, **choices)


def test_the_objective_is_the_weighted_sum_of_its_terms(pairs):
    """Recomputed from the outputs of the head and the encoder, with the same random numbers."""
    task = new_task(pairs, BOTH, rectified=True, dropout=0.75)
    batch = task.batches(0)[0]
    task.trained.train()
    # Running statistics change with every call, but not what a call returns while training.
    loss = task.loss(batch, step_generator(0, 0))
    generator = step_generator(0, 0)
    step = Step(generator, 4, slice(0, 4))
    images = task.matcher.image_head(pairs.source.read(batch.image_ids), step)
    captions = task.matcher.text_encoder(*pairs.captions(batch.caption_ids), step)
    classifier = task.trained["losses"]["instance"]
    labels = [sorted(pairs.image_ids).index(each) for each in batch.image_ids]
    means, errors = [], []
    for outputs in (images, captions):
        kept = torch.rand(4, 8, generator=generator) >= 0.75
        scores = (outputs.relu() * kept * 4) @ classifier.weight.T + classifier.bias
        logarithms = scores.log_softmax(dim=1)
        errors.append(sum(row.argmax().item() != label for row, label in zip(scores, labels, strict=True)))
        means.append(-sum(logarithms[row, label] for row, label in enumerate(labels)) / 4)
    cosines = functional.normalize(images.relu()) @ functional.normalize(captions.relu()).T
    hinges = []
    for row in range(4):
        wrong = [other for other in range(4) if other != row]
        hinges.append(max(0.5 - cosines[row, row] + cosines[row, other] for other in wrong))
        hinges.append(max(0.5 - cosines[row, row] + cosines[other, row] for other in wrong))
    rank = sum(each.clamp(min=0) for each in hinges) / 4
    assert loss.total.item() == pytest.approx((2 * rank + means[0] + 0.1 * means[1]).item(), rel=1e-5)
    assert loss.value.item() == pytest.approx(loss.total.item())
    assert {name: value.item() for name, value in loss.terms.items()} == pytest.approx(
        {
            "max_hinge": rank.item(),
            "image_classes": 4 * means[0].item(),
            "image_classes_error": 100 * errors[0],  # summed over the four pairs, in percent
            "text_classes": 4 * means[1].item(),
            "text_classes_error": 100 * errors[1],
        },
        rel=1e-5,
    )


def test_a_term_of_weight_zero_is_not_computed(pairs, monkeypatch):
    task = new_task(pairs, INSTANCE, RANK)
    task.trained.train()
    both = {f"{name}{kind}" for name in ("image_classes", "text_classes") for kind in ("", "_error")}
    assert set(task.loss(task.batches(0)[0], step_generator(0, 0)).terms) == both
    task.start_phase(1)
    assert set(task.loss(task.batches(0)[0], step_generator(0, 0)).terms) == {"max_hinge"}
    images_only = new_task(pairs, Objective("sum_hinge", LossChoices(), 0.5, 0.0, 1.0, 0.0))
    images_only.trained.train()
    found = images_only.loss(images_only.batches(0)[0], step_generator(0, 0)).terms
    assert set(found) == {"image_classes", "image_classes_error"}


def test_an_instance_loss_needs_classes(pairs):
    matcher = new_matcher(new_shape(), seed=0)
    with pytest.raises(ValueError, match="an instance loss needs classes"):
        MatchingTask(matcher, [INSTANCE], matching_data(pairs))


def test_each_kind_of_parameter_has_its_own_rate(pairs):
    task = new_task(pairs, BOTH, RANK, factors=[FACTORS, RateFactors()])
    groups = {group.name: group for group in task.parameter_groups()}
    rates = {name: group.rate for name, group in groups.items()}
    assert rates == pytest.approx(
        {"words": 0.5, "gains": 2.0, "weights": 1.0, "classifier": 0.1, "classifier_bias": 0.2}
    )
    names = {id(each): name for name, each in task.trained.named_parameters()}
    found = {kind: [names[id(each)] for each in group.parameters] for kind, group in groups.items()}
    assert sorted(found["words"]) == ["model.text_encoder.bias", "model.text_encoder.words.weight"]
    assert all("norm" in name and name.endswith(".weight") for name in found["gains"])
    assert len(found["gains"]) == sum(name.endswith("running_var") for name in task.trained.state_dict())
    assert found["classifier"] == ["losses.instance.weight"]
    assert found["classifier_bias"] == ["losses.instance.bias"]
    assert sorted(name for names in found.values() for name in names) == sorted(names.values())
    task.start_phase(1)  # the classifier is not used, and factors of one make one group
    assert [group.name for group in task.parameter_groups()] == ["weights"]
    in_order = [id(each) for each in task.matcher.parameters()]
    assert [id(each) for each in task.parameter_groups()[0].parameters] == in_order


def test_several_processes_have_the_objective_and_gradients_of_one(pairs):
    """Position shifts, dropout and the statistics of batch normalization included."""
    batch = new_task(pairs, BOTH).batches(0)[0]

    def work(processes):
        task = new_task(pairs, BOTH, processes=processes, dtype=torch.float64, rectified=True)
        task.trained.train()
        loss = task.loss(batch, step_generator(0, 3))
        loss.total.backward()
        parameters = list(task.trained.parameters())
        processes.add_gradients(parameters)
        terms = [value.item() for value in (loss.value, *loss.terms.values())]
        return terms, torch.cat([each.grad.flatten() for each in parameters]).tolist()

    [(terms, gradients)] = in_processes(1, work)
    for count in (2, 3):
        for found, own in in_processes(count, work):
            assert found == pytest.approx(terms, rel=1e-10)
            assert torch.allclose(torch.tensor(own), torch.tensor(gradients), rtol=1e-8, atol=1e-10)


def test_a_run_killed_after_any_step_of_any_phase_ends_with_the_same_bits(pairs):
    """Instance loss first, then ranking, then both: momentum, dropout, shifts and statistics included."""
    phases = [Phase(name, 0.05, 2, 2) for name in ("instance", "rank", "both")]
    objectives, factors = (INSTANCE, RANK, BOTH), [FACTORS, FACTORS, RateFactors()]
    saved = MemoryCheckpoints(always=True)
    whole = new_trainer(new_task(pairs, *objectives, factors=factors), *phases, checkpoints=saved)
    whole.train()
    expected = whole.task.trained.state_dict()
    assert len(saved.saved) == 3 * 2 * 3
    for start in saved.saved:
        resumed = new_trainer(
            new_task(pairs, *objectives, factors=factors), *phases, checkpoints=MemoryCheckpoints(start=start)
        )
        resumed.train()
        found = resumed.task.trained.state_dict()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_classifier_rests_in_a_phase_without_instance_loss(pairs):
    task = new_task(pairs, INSTANCE, RANK)
    trainer = new_trainer(task, Phase("instance", 0.05, 1, 1), Phase("rank", 0.05, 1, 1))
    kept = []
    trainer.train(lambda point: kept.append(task.trained["losses"]["instance"].weight.detach().clone()))
    first = new_task(pairs, INSTANCE).trained["losses"]["instance"].weight
    assert not torch.equal(kept[0], first)
    assert torch.equal(kept[0], kept[1])


def test_the_instance_loss_learns_to_name_the_images(pairs):
    task = new_task(pairs, INSTANCE, dropout=0.0, batch=10)
    points = []
    new_trainer(task, Phase("instance", 0.05, 100, 100)).train(points.append)
    assert points[-1].terms["image_classes"] < 0.5 * math.log(10)
    assert points[-1].terms["image_classes_error"] < 10 < points[0].terms["image_classes_error"] <= 100
    assert points[-1].scores.main > 380


@pytest.mark.parametrize(
    ("objective", "losses", "terms", "warned"),
    [
        (INSTANCE, [1.0] * 5, [2.3] * 5, True),
        (INSTANCE, [1.0] * 4, [2.3] * 4, False),
        (INSTANCE, [1.0] * 5, [2.3] * 4 + [2.0], False),
        # A single term is not recorded by name: the objective of ten pairs in three batches says it.
        (Objective("sum_hinge", LossChoices(), 0.2, 0.0, 2.0, 0.0), [2.3 * 2 * 3 / 10] * 5, None, True),
        (Objective("sum_hinge", LossChoices(), 0.2, 0.0, 2.0, 0.0), [2.0 * 2 * 3 / 10] * 5, None, False),
    ],
)
def test_an_instance_loss_that_stays_at_chance_is_detected(pairs, objective, losses, terms, warned):
    task = new_task(pairs, objective)
    names = ("image_classes", "text_classes")
    recorded = [dict.fromkeys(names, each) for each in terms] if terms else [{}] * len(losses)
    points = [
        Point(number, 1, loss, own, Scores({"rsum": 0.0}))
        for number, (loss, own) in enumerate(zip(losses, recorded, strict=True))
    ]
    found = task.warning(0, points)
    assert (found is not None) is warned
    if found:
        assert "stays at ln(10) = 2.30, that of chance: " in found
        assert (
            "; raise train.learning_rate or train.classifier_rate, or lower train.instance.dropout" in found
        )
