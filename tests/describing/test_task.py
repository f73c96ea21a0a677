"""The captioning task, with the trainer."""

import itertools

import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.core.processes import Processes
from fne.describing.data import SequenceBatch
from fne.describing.decoder import INJECTIONS
from fne.describing.model import CONDITIONS
from fne.describing.recurrent_cells import CELLS
from fne.describing.run import new_task
from fne.training.best_epoch import Point, Scores
from fne.training.loop import Trainer, step_generator
from fne.training.run import schedule_of
from tests.support import tagging
from tests.support.captions import inputs, settings
from tests.support.training import MemoryCheckpoints

CPU = torch.device("cpu")


def task_of(read, folder, processes=None, **changes):
    chosen = settings(folder, **changes)
    return new_task(chosen, read, CPU, *([processes] if processes else [])), chosen


def trainer_of(read, folder, checkpoints=None, **changes):
    task, chosen = task_of(read, folder, **changes)
    return Trainer(task, schedule_of(chosen, chosen.titles()), checkpoints)


def first_loss(task, epoch=0):
    return task.loss(task.batches(epoch)[0], step_generator(0, 0))


@pytest.mark.parametrize(
    ("condition", "inject", "cell"), list(itertools.product(CONDITIONS, INJECTIONS, CELLS))
)
def test_every_member_of_the_family_makes_steps(read, tmp_path, condition, inject, cell):
    trainer = trainer_of(
        read, tmp_path, condition=condition, inject=inject, cell=cell, concept_head="hidden", learns="jointly",
        hidden={"dim": 6},
    )  # fmt: skip
    before = {name: value.clone() for name, value in trainer.task.model.state_dict().items()}
    losses = [trainer.step(batch)[0] for batch in trainer.task.batches(0)[:2]]
    assert np.isfinite(losses).all()
    after = trainer.task.model.state_dict()
    assert not torch.equal(before["decoder.output.bias"], after["decoder.output.bias"])


def test_before_any_step_losses_are_entropies(read, tmp_path):
    """The concept head predicts the concepts' frequencies, and the decoder those of the words."""
    task, _ = task_of(read, tmp_path, batch=96, dropout=0.0)
    loss = first_loss(task)
    frequencies = read.vocabulary.concepts.frequencies.clip(0.5 / 48, 1 - 0.5 / 48)
    truth = read.vocabulary.concepts.frequencies
    entropy = -(truth * np.log(frequencies) + (1 - truth) * np.log(1 - frequencies)).sum()
    assert loss.terms["concepts"].item() / 96 == pytest.approx(entropy, rel=1e-5)
    counts = np.array([read.vocabulary.words.sentences, *read.vocabulary.words.counts])
    words = -(counts * np.log(counts / counts.sum())).sum() / 96
    # The unknown word counts as half.
    assert loss.terms["words"].item() / 96 == pytest.approx(words, rel=2e-2)


def gradients(task, term):
    """Return the gradients of one term of the loss by the part of the model; None where there are none."""
    task.model.zero_grad()
    terms = task.losses(SequenceBatch(np.arange(8), np.zeros(8, dtype=int), task.training), None)
    terms[term].backward()
    parts = {"concept_head": task.model.concept_head, "decoder": task.model.decoder}
    return {
        name: sum(each.grad.abs().sum().item() for each in part.parameters() if each.grad is not None)
        for name, part in parts.items()
    }


def test_trained_separately_no_gradient_of_one_part_reaches_the_other(read, tmp_path):
    task, _ = task_of(read, tmp_path, learns=["separately", "jointly"])
    assert gradients(task, "words")["concept_head"] == 0
    assert gradients(task, "words")["decoder"] > 0
    assert gradients(task, "concepts")["decoder"] == 0
    assert gradients(task, "concepts")["concept_head"] > 0


def test_jointly_the_words_train_the_concept_head_too(read, tmp_path):
    task, _ = task_of(read, tmp_path, learns="jointly")
    # The output weights start at zero, where nothing flows back through them.
    torch.nn.init.uniform_(task.model.decoder.output.weight, -1, 1)
    found = gradients(task, "words")
    assert min(found.values()) > 0


def test_a_fixed_concept_head_is_not_trained(read, tmp_path):
    task, _ = task_of(read, tmp_path, learns=["concept_head", "decoder"])
    assert [group.name for group in task.parameter_groups()] == ["concept_head"]
    assert list(first_loss(task).terms) == ["concepts"]
    task.start_phase(1)
    assert [group.name for group in task.parameter_groups()] == ["decoder"]
    assert list(first_loss(task).terms) == ["words"]
    torch.nn.init.uniform_(task.model.decoder.output.weight, -1, 1)
    assert gradients(task, "words")["concept_head"] == 0


def test_the_concept_head_has_a_rate_of_its_own(read, tmp_path):
    task, _ = task_of(read, tmp_path, learning_rate=0.002, concept_head_rate=[0.001, 0.0001])
    rates = []
    for phase in (0, 1):
        task.start_phase(phase)
        rates.append({group.name: group.rate for group in task.parameter_groups()})
    assert rates[0] == {"decoder": 1.0, "concept_head": 0.5}
    assert rates[1] == pytest.approx({"decoder": 1.0, "concept_head": 0.05})


def test_an_image_with_several_captions_in_a_batch_counts_for_each(read, tmp_path):
    task, _ = task_of(read, tmp_path, dropout=0.0)

    def terms(images, captions):
        batch = SequenceBatch(np.array(images), np.array(captions), read.training)
        loss = task.loss(batch, step_generator(0, 0))
        return torch.stack(list(loss.terms.values()))

    torch.nn.init.uniform_(task.model.decoder.output.weight, -1, 1)
    together = terms([3, 5, 3], [0, 0, 1])
    alone = terms([3], [0]) + terms([5], [0]) + terms([3], [1])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize(
    ("count", "learns"), [(2, ["separately", "jointly"]), (3, "jointly"), (3, ["concept_head", "jointly"])]
)
def test_several_processes_have_the_loss_and_gradients_of_one(read, tmp_path, monkeypatch, count, learns):
    whole, _ = task_of(read, tmp_path, learns=learns)
    torch.nn.init.uniform_(whole.model.decoder.output.weight, -1, 1)
    expected = first_loss(whole)
    expected.total.backward()
    total, sums = 0.0, None
    for rank in range(count):
        part, _ = task_of(read, tmp_path, processes=Processes(rank, count), learns=learns)
        part.model.load_state_dict(whole.model.state_dict())
        monkeypatch.setattr(Processes, "add", lambda self, values: None)
        loss = first_loss(part)
        loss.total.backward()
        total += loss.total.item()
        own = [torch.zeros(1) if each.grad is None else each.grad for each in part.model.parameters()]
        sums = own if sums is None else [one + other for one, other in zip(sums, own, strict=True)]
    assert total == pytest.approx(expected.total.item(), rel=1e-5)
    for found, each in zip(sums, whole.model.parameters(), strict=True):
        grad = torch.zeros(1) if each.grad is None else each.grad
        torch.testing.assert_close(found, grad, rtol=1e-4, atol=1e-6)


def test_a_process_without_captions_takes_part(read, tmp_path, monkeypatch):
    task, _ = task_of(read, tmp_path, processes=Processes(0, 3))
    monkeypatch.setattr(Processes, "add", lambda self, values: None)
    batch = SequenceBatch(np.array([0]), np.array([0]), read.training)
    loss = task.loss(batch, step_generator(0, 0))
    loss.total.backward()
    assert loss.total.item() == 0


def test_a_run_resumed_at_any_step_ends_with_the_same_bits(read, tmp_path):
    changes = {"epochs": [1, 2], "batch": 32}

    def outcome(checkpoints):
        made, points = trainer_of(read, tmp_path, checkpoints, **changes), []
        made.train(points.append)
        return made.task.trained.state_dict(), points

    every = MemoryCheckpoints(always=True)
    expected, points = outcome(every)
    assert len(every.saved) == 9
    for saved in every.saved[::2]:
        state, found = outcome(MemoryCheckpoints(start=saved))
        assert all(torch.equal(value, expected[name]) for name, value in state.items())
        assert found == points


def test_validation_has_scores_of_captions_words_and_concepts(read, tmp_path):
    task, _ = task_of(read, tmp_path)
    scores = task.validate()
    assert scores.name == "CIDEr-D"
    assert list(scores.values) == [
        "CIDEr-D", "BLEU-4", "word_probability", "perplexity", "distinct_captions", "concept_loss",
    ]  # fmt: skip
    assert scores.values["perplexity"] == pytest.approx(1 / scores.values["word_probability"])
    assert scores.values["distinct_captions"] == 1 / 8  # nothing is learned yet
    assert task_of(read, tmp_path, select="likelihood")[0].validate().name == "word_probability"


def test_a_phase_of_the_concept_head_is_judged_by_the_concepts_and_never_the_best_in_the_end(read, tmp_path):
    trainer = trainer_of(read, tmp_path, learns=["concept_head", "decoder"], epochs=[3, 1])
    points = []
    kept = trainer.train(points.append)
    assert [point.scores.name for point in points] == ["minus_concept_loss"] * 3 + ["CIDEr-D"]
    assert all(point.scores.main < 0 for point in points[:3])
    assert (kept.phase, kept.epoch) == (2, 4)


def test_fewer_images_are_validated_if_asked_for(read, tmp_path):
    task, _ = task_of(read, tmp_path, validation_images=3)
    assert task.validation.positions == [0, 4, 7]
    assert task.validate().values["distinct_captions"] == pytest.approx(1 / 3)


def test_one_validated_image_is_refused(read, tmp_path):
    place = "params.yaml: train_captioner.validation_images is 1"
    with pytest.raises(InputError, match=f"{place}, but CIDEr-D needs several images; use 0"):
        task_of(read, tmp_path, validation_images=1)


def point(distinct):
    values = {"CIDEr-D": 0.1, "BLEU-4": 0.1, "perplexity": 2.0, "distinct_captions": distinct}
    return Point(1, 1, 1.0, {}, Scores(values))


def test_one_sentence_for_all_images_is_reported_when_it_stays_so(read, tmp_path):
    task, _ = task_of(read, tmp_path)
    assert task.warning(0, [point(1 / 8)]) is None
    assert task.warning(0, [point(1 / 8), point(2 / 8)]) is None
    warning = task.warning(0, [point(1 / 8), point(1 / 8)])
    assert warning.startswith("the captioner ignores the images: 1 different caption for 8 validation images")
    assert task.validation.summary(point(0.5)).endswith("50% distinct captions")
    same = "; the captioner writes the same for (nearly) all images"
    assert task.validation.summary(point(1 / 8)).endswith(same)


@pytest.mark.parametrize("condition", ["concepts", "embedding"])
def test_the_world_is_learned(world, tmp_path, condition):
    """Rows that say exactly what is on the images are enough for captions that are true of all of them."""
    read = inputs(world, concepts="tags")
    changes = {"condition": condition, "units": 32, "word_dim": 16, "dropout": 0.1, "patience": 99}
    changes |= {"learning_rate": 0.01, "concept_head_rate": 0.05, "validate_every": 24}
    if condition == "concepts":
        changes |= {"learns": ["separately", "jointly"], "epochs": [12, 4]}
    else:
        changes |= {"learns": "jointly", "concept_loss": "none", "epochs": 16}
    kept = trainer_of(read, tmp_path, **changes).train()
    assert kept.scores.values["CIDEr-D"] > 4
    assert kept.scores.values["distinct_captions"] > 0.7


@pytest.fixture(scope="module")
def tag_world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tag_world")
    tagging.write_world(folder, tagging.scenes(40))
    return folder


def tag_task(tag_world, learns, **changes):
    chosen = tagging.settings(**{"learns": learns, "dropout": 0.0, "batch": 10} | changes)
    made = new_task(chosen, tagging.inputs(tag_world, chosen), CPU)
    # At first the concepts do not depend on the image: random weights make every gradient visible.
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in made.model.parameters():
            value.copy_(0.3 * torch.randn(value.shape, generator=generator))
    return made


def test_the_loss_of_a_batch_is_its_sum_for_the_history_and_its_mean_for_the_step(tag_world):
    made = tag_task(tag_world, "jointly", concept_weight=0.5)
    batch = made.batches(0)[0]
    loss = made.loss(batch, torch.Generator().manual_seed(0))
    sums = made.losses(batch, None)
    total = 0.5 * sums["concepts"] + sums["tags"]
    torch.testing.assert_close(loss.total, total / 10)
    torch.testing.assert_close(loss.value, total.detach())
    assert loss.terms.keys() == {"concepts", "tags"}


def test_image_and_user_tags_learn_separately_and_then_together(tag_world):
    separately, jointly = (
        tag_task(tag_world, learns, user_tags="user") for learns in ("separately", "jointly")
    )
    positions = np.arange(5)
    batch = SequenceBatch(positions, np.zeros_like(positions), separately.training)
    terms = separately.losses(batch, None)
    assert terms.keys() == {"concepts", "user_tags", "tags"}
    terms["concepts"].backward(retain_graph=True)
    assert all(each.grad is None for each in separately.model.user_tag_reader.parameters())
    jointly.losses(batch, None)["concepts"].backward()
    assert any(each.grad.abs().sum() > 0 for each in jointly.model.user_tag_reader.parameters())
