import math

import pytest
import torch
from pytorch_metric_learning.losses import SupConLoss
from torch.nn.functional import normalize

from fne.core.distributed_layers import Step
from fne.core.processes import ALONE
from fne.matching.info_nce import LOWEST, InfoNCE
from fne.matching.model import Shape, new_matcher
from fne.matching.settings import InfoNCE as Settings
from fne.matching.similarities import SIMILARITIES
from fne.matching.task import MatchingOptions, MatchingTask, Objective
from fne.training.best_epoch import Phase
from fne.training.loop import Schedule, Trainer, step_generator
from tests.support.pairs import FEATURES, WORDS, Doubled
from tests.support.processes import in_processes
from tests.support.training import MemoryCheckpoints, matching_data, optimizer

NUMBERS = torch.tensor([0, 1, 2, 1, 3, 0, 1])  # three images have several pairs
KINDS = [(learned, positives) for learned in (False, True) for positives in ("own", "all")]


def vectors(seed, pairs=7, dim=5):
    generator = torch.Generator().manual_seed(seed)
    return [normalize(torch.randn(pairs, dim, generator=generator, dtype=torch.float64)) for _ in range(2)]


def new_loss(learned=False, positives="own", temperature=0.3, anchors=(1.0, 0.5)):
    return InfoNCE(Settings(temperature=temperature, learned=learned, positives=positives), anchors).double()


def whole(count, processes=ALONE):
    return Step(torch.Generator(), count, processes.partition(count), processes)


def plain(scores, numbers, temperature, positives, anchors):
    """The definition, pair by pair."""
    total = 0.0
    for weight, rows in zip(anchors, (scores, [*zip(*scores, strict=True)]), strict=True):
        for anchor, row in enumerate(rows):
            same = [each for each in range(len(row)) if numbers[each] == numbers[anchor]]
            true = same if positives == "all" else [anchor]
            left_out = [] if positives == "all" else [each for each in same if each != anchor]
            competing = [
                math.exp(score / temperature) for each, score in enumerate(row) if each not in left_out
            ]
            for each in true:
                total -= weight * math.log(math.exp(row[each] / temperature) / sum(competing)) / len(true)
    return total


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize(("learned", "positives"), KINDS)
def test_info_nce_is_that_of_plain_loops_with_exact_gradients(similarity, learned, positives):
    images, captions = vectors(seed=1)
    score, loss = SIMILARITIES[similarity], new_loss(learned, positives)
    found = loss(images, captions, score, NUMBERS, whole(7))
    expected = plain(score(images, captions).tolist(), NUMBERS.tolist(), 0.3, positives, (1.0, 0.5))
    assert found.item() == pytest.approx(expected, rel=1e-6 if learned else 1e-12)  # stored as float32

    def value(images, captions, *learned):
        return torch.func.functional_call(
            loss,
            dict(zip(["log_inverse"], learned, strict=False)),
            (images, captions, score, NUMBERS, whole(7)),
        )

    given = [each.requires_grad_() for each in (images, captions, *loss.parameters())]
    assert torch.autograd.gradcheck(value, given)


def test_all_positives_are_those_of_an_independent_library():
    """Images as anchors; the library scores rows against other rows, so each image counts once."""
    images, captions = vectors(seed=2)
    reference = SupConLoss(temperature=0.3)(images, NUMBERS, ref_emb=captions, ref_labels=NUMBERS.clone())
    found = new_loss(positives="all", anchors=(1.0, 0.0))(
        images, captions, SIMILARITIES["cosine"], NUMBERS, whole(7)
    )
    assert found.item() / 7 == pytest.approx(reference.item(), rel=1e-6)


SHAPE = Shape("linear_bias", "tfidf", "cosine", False, FEATURES, WORDS, 5, 4)
RANK = Objective("info_nce", None, 0.2)


def new_task(pairs, *objectives, kind=(True, "all"), double=False, **options):
    loss = new_loss(*kind)
    matcher = new_matcher(SHAPE, seed=0)
    if double:
        matcher, pairs = matcher.double(), Doubled(pairs)
    data = matching_data(pairs, batch=7, captions="together")
    return MatchingTask(matcher, objectives or [RANK], data, MatchingOptions(**options), None, loss)


@pytest.mark.parametrize("kind", KINDS)
def test_several_processes_have_the_loss_and_gradients_of_one(pairs, kind):
    batch = new_task(pairs).batches(0)[0]

    def work(processes):
        task = new_task(pairs, kind=kind, double=True, processes=processes)
        sizes = []
        similarity = task.matcher.similarity
        task.matcher.similarity = lambda *both: (
            sizes.append([len(each) for each in both]),
            similarity(*both),
        )[1]
        loss = task.loss(batch, step_generator(0, 0))
        loss.total.backward()
        parameters = list(task.trained.parameters())
        processes.add_gradients(parameters)
        return sizes, loss.value.item(), torch.cat([each.grad.flatten() for each in parameters]).tolist()

    [(_, value, gradients)] = in_processes(1, work)
    assert any(gradients)
    for sizes, found, own in in_processes(3, work):
        assert found == pytest.approx(value, rel=1e-10)
        assert torch.allclose(torch.tensor(own), torch.tensor(gradients), rtol=1e-8, atol=1e-10)
        assert all(min(pair) <= 3 for pair in sizes)  # of 7 pairs


def test_a_learned_temperature_has_a_rate_a_history_and_a_bound_and_resumes_with_the_same_bits(pairs):
    phases = [Phase("first", 0.5, 2, 2), Phase("second", 0.5, 2, 2)]
    sums = Objective("info_nce", None, 0.2, rank=2.0)

    def new_trainer(**choices):
        schedule = Schedule(phases, 0, optimizer(), 0.0, "global", 0, "last")
        return Trainer(new_task(pairs, RANK, sums), schedule, **choices)

    saved, points = MemoryCheckpoints(always=True), []
    trainer = new_trainer(checkpoints=saved)
    trainer.train(points.append)
    groups = {group.name: group for group in trainer.task.parameter_groups()}
    assert groups["temperature"].rate == 1.0
    assert points[-1].terms["temperature"] > points[0].terms["temperature"] > 0.3
    expected = trainer.task.trained.state_dict()
    for start in saved.saved:
        resumed = new_trainer(checkpoints=MemoryCheckpoints(start=start))
        resumed.train()
        found = resumed.task.trained.state_dict()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    cold = new_loss(learned=True, temperature=0.01)
    with torch.no_grad():
        cold.log_inverse += 1
    cold(*vectors(seed=3), SIMILARITIES["cosine"], NUMBERS, whole(7))
    assert cold.temperature.item() == pytest.approx(LOWEST)


def test_a_fixed_temperature_is_no_weight_and_a_loss_without_one_is_refused(pairs):
    assert "losses" not in new_task(pairs, kind=(False, "own")).trained
    with pytest.raises(ValueError, match="needs its temperature"):
        MatchingTask(new_matcher(SHAPE, seed=0), [RANK], matching_data(pairs))
