import numpy as np
import pytest
import torch

from fne.core.processes import Processes
from fne.describing.losses import MULTILABEL_LOSSES
from fne.describing.tagging.data import TagBatch
from fne.describing.tagging.task import TaggingTask
from fne.describing.tagging.train import start_tagger
from fne.describing.task import Objective
from tests.support.tagging import inputs, scenes, settings, write_world


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write_world(folder, scenes(40))
    return folder


def task(world, learns, processes=None, **changes):
    chosen = settings(**{"learns": learns, "dropout": 0.0} | changes)
    opened = inputs(world, chosen)
    made = TaggingTask(
        start_tagger(chosen, opened),
        Objective(
            chosen.learns,
            [0.1] * len(chosen.learns),
            MULTILABEL_LOSSES.get(chosen.concept_loss),
            chosen.concept_weight,
            chosen.dropout,
        ),
        opened.training,
        opened.validation,
        seed=0,
        batch=10,
        **({"processes": processes} if processes else {}),
    )
    # At first the concepts do not depend on the image: random weights make every gradient visible.
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in made.describer.parameters():
            value.copy_(0.3 * torch.randn(value.shape, generator=generator))
    return made


def gradients(made, term=None):
    """Return whether the recognizer and the decoder get a gradient, from one term or from all."""
    batch = made.batches(0)[0]
    loss = made.losses(batch, None)[term] if term else made.loss(batch, torch.Generator()).total
    loss.backward()
    return [
        any(each.grad is not None and each.grad.abs().sum() > 0 for each in part.parameters())
        for part in (made.describer.recognizer, made.describer.decoder)
    ]


def test_apart_no_gradient_of_one_part_reaches_the_other(world):
    assert gradients(task(world, "apart"), "tags") == [False, True]
    assert gradients(task(world, "apart"), "concepts") == [True, False]


def test_joint_the_tags_train_the_recognizer_too(world):
    assert gradients(task(world, "joint"), "tags") == [True, True]
    assert gradients(task(world, "joint"), "concepts") == [True, False]


def test_a_fixed_recognizer_gets_no_gradient_and_is_no_parameter(world):
    made = task(world, "decoder")
    assert gradients(made) == [False, True]
    assert [group.name for group in made.parameter_groups()] == ["decoder"]


def test_groups_have_rates_of_their_own(world):
    groups = {group.name: group.rate for group in task(world, "joint").parameter_groups()}
    assert groups == {"decoder": 1.0, "recognizer": 0.1}
    assert [group.name for group in task(world, "recognizer").parameter_groups()] == ["recognizer"]


def test_before_the_first_step_the_losses_are_the_entropies_of_the_frequencies(world):
    chosen = settings(learns="joint", dropout=0.0)
    opened = inputs(world, chosen)
    made = task(world, "joint")
    made.describer.load_state_dict(start_tagger(chosen, opened).state_dict())
    positions = np.arange(len(opened.training))
    found = made.losses(TagBatch(positions, opened.training), None)
    frequencies = opened.training.labels.mean(axis=0)
    entropy = -(frequencies * np.log(frequencies) + (1 - frequencies) * np.log(1 - frequencies)).sum()
    assert found["concepts"].item() / len(positions) == pytest.approx(entropy, rel=1e-4)
    counts = np.array([len(positions), *opened.training.labels.sum(axis=0)])
    expected = -(counts * np.log(counts / counts.sum())).sum() / len(positions)
    assert found["tags"].item() / len(positions) == pytest.approx(expected, rel=1e-4)


def test_the_loss_of_a_batch_is_its_sum_for_the_history_and_its_mean_for_the_step(world):
    made = task(world, "joint", concept_weight=0.5)
    batch = made.batches(0)[0]
    loss = made.loss(batch, torch.Generator().manual_seed(0))
    sums = made.losses(batch, None)
    total = 0.5 * sums["concepts"] + sums["tags"]
    torch.testing.assert_close(loss.total, total / 10)
    torch.testing.assert_close(loss.value, total.detach())
    assert loss.terms.keys() == {"concepts", "tags"}


def test_image_and_hints_learn_separately_and_then_together(world):
    apart, joint = (task(world, learns, hints="user") for learns in ("apart", "joint"))
    positions = np.arange(5)
    batch = TagBatch(positions, apart._training)
    terms = apart.losses(batch, None)
    assert terms.keys() == {"concepts", "hints", "tags"}
    terms["concepts"].backward(retain_graph=True)
    assert all(each.grad is None for each in apart.describer.hint_reader.parameters())
    joint.losses(batch, None)["concepts"].backward()
    assert any(each.grad.abs().sum() > 0 for each in joint.describer.hint_reader.parameters())


@pytest.mark.parametrize("learns", ["apart", "joint", "recognizer"])
def test_the_parts_of_several_processes_add_up_to_the_whole_batch(world, learns, monkeypatch):
    """Every process holds its rows of the sum, with the dropout that was drawn for the whole batch."""
    whole = task(world, learns, dropout=0.3)
    batch = whole.batches(0)[0]
    expected = whole.loss(batch, torch.Generator().manual_seed(4)).total
    monkeypatch.setattr(Processes, "add", lambda self, values: None)
    parts = [
        task(world, learns, Processes(rank, 3), dropout=0.3).loss(batch, torch.Generator().manual_seed(4))
        for rank in range(3)
    ]
    torch.testing.assert_close(sum(part.total for part in parts), expected)


def test_a_process_without_images_takes_part(world, monkeypatch):
    monkeypatch.setattr(Processes, "add", lambda self, values: None)
    made = task(world, "joint", Processes(0, 20))
    loss = made.loss(made.batches(0)[0], torch.Generator())
    assert loss.total.item() == 0
    loss.total.backward()
