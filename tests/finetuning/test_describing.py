"""The network is trained with a tagger or a captioner."""

import copy
import shutil
from contextlib import chdir
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from fne.core.errors import InputError
from fne.core.processes import ALONE, Processes
from fne.core.settings import Runtime, parse_section
from fne.describing.model_file import Vocabulary, read_describing_file
from fne.extraction.preprocess import normalize
from fne.features.standardize import read_statistics
from fne.finetuning import run
from fne.finetuning.describing import plan_of, read_inputs
from fne.finetuning.run import Places, open_start
from fne.finetuning.settings import TuneCaptioner, TuneTagger
from fne.store.rows import Rows
from fne.training.best_epoch import Point, Scores
from fne.training.loop import Trainer, step_generator
from tests.support.finetuning import DESCRIBING, TUNED, write_describing_project
from tests.support.imports import ROOT
from tests.support.training import MemoryCheckpoints

CPU = torch.device("cpu")
SECTIONS = {"tagger": TuneTagger, "captioner": TuneCaptioner}
EMBEDDINGS = [
    {"kind": "raw"},
    {"kind": "layer", "layer": "conv2", "rows": "unit"},
    {"kind": "blocks", "rows": "unit"},
    {"kind": "raw", "rows": "rms"},
    {"kind": "zscore", "layers": ["conv2"], "rows": "layers"},
]


@pytest.fixture(params=DESCRIBING)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make projects with a model to tune, each once."""

    @cache
    def make(kind, number):
        folder = tmp_path_factory.mktemp(f"{kind}-{number}")
        shutil.copy(ROOT / "params.yaml", folder)
        shutil.copytree(ROOT / "weights", folder / "weights")
        with chdir(folder):
            write_describing_project(folder, kind, EMBEDDINGS[number])
        return folder

    return make


@pytest.fixture
def project(made, monkeypatch):
    """Enter such a project; return what makes a plan for some processes."""

    def enter(kind, number=0, **changes):
        monkeypatch.chdir(made(kind, number))
        settings, faults = parse_section({"tune": TUNED | changes}, "tune", SECTIONS[kind])
        assert settings, faults
        return partial(planned, settings)

    return enter


def planned(settings, processes=ALONE):
    statistics, weights = Path("features/statistics.h5"), Path("weights/random.yaml")
    places = Places(Path("data/images.jsonl"), weights, statistics, Path("photos"))
    runtime = Runtime(device="cpu", workers=0, batch=2)
    model = Path(f"models/{settings.kind}.safetensors")
    inputs = read_inputs(settings, model, Path("data/captions.jsonl"), places, runtime)
    return plan_of(settings, inputs, runtime, CPU, processes)


def unit(rows):
    return rows / rows.norm(dim=1, keepdim=True)


# What each of `EMBEDDINGS` makes of the values of both layers, in plain torch.
PLAIN_ROWS = [
    lambda first, second, _: torch.cat([first, second], dim=1),
    lambda first, second, _: unit(second),
    lambda first, second, _: unit(torch.cat([unit(first), unit(second)], dim=1)),
    lambda first, second, recorded: torch.cat([first, second], dim=1) / recorded["rms"],
    lambda first, second, recorded: unit((second - recorded["mean"]) / recorded["deviation"]),
]


def plain_loss(task, modules, model, batch, recorded, number):
    """The sum of both losses of a batch over its sequences, with one LSTM step after the other, in float64."""
    source, examples = task.training.source, task.training
    ordered = [examples.ids[each] for each in batch.different_images()[0]]
    pixels = source._reader.read([(each, batch.epoch) for each in ordered])
    values, layers = normalize(pixels).double(), []
    for module in modules:
        values = torch.relu(values) if isinstance(module, torch.nn.ReLU) else module(values)
        layers += [values.mean(dim=(2, 3))] * isinstance(module, torch.nn.ReLU)
    rows = PLAIN_ROWS[number](*layers, recorded)
    scaled = (rows - model["scaling.shift"]) * model["scaling.scale"]
    logits = scaled @ model["concept_head.concepts.weight"].T + model["concept_head.concepts.bias"]
    total = torch.zeros((), dtype=torch.float64)
    for image, sequence in zip(batch.images, batch.sequences(), strict=True):
        own = logits[ordered.index(examples.ids[image])]
        truth = torch.from_numpy(examples.labels[image]).double()
        total = total + functional.binary_cross_entropy_with_logits(own, truth, reduction="sum")
        hidden = model["decoder.condition.weight"] @ torch.sigmoid(own) + model["decoder.condition.bias"]
        every = hidden if task.section == "tune_captioner" else 0.0
        hidden = torch.zeros(16, dtype=torch.float64) if task.section == "tune_captioner" else hidden
        memory, word = torch.zeros(16, dtype=torch.float64), len(model["decoder.words"]) - 1
        activate = torch.tanh if task.section == "tune_captioner" else torch.relu
        for target in sequence:
            gates = model["decoder.cell.input_map.weight"] @ model["decoder.words"][word]
            gates = (
                gates
                + model["decoder.cell.input_map.bias"]
                + model["decoder.cell.state_map.weight"] @ hidden
                + every
            )
            taken, forget, shown, new = gates.split(16)
            memory = forget.sigmoid() * memory + taken.sigmoid() * activate(new)
            hidden = shown.sigmoid() * activate(memory)
            outputs = model["decoder.output.weight"] @ hidden + model["decoder.output.bias"]
            total = total - outputs.log_softmax(0)[target]
            word = target
    return total / len(batch)


@pytest.mark.parametrize("number", range(len(EMBEDDINGS)))
def test_the_gradient_is_that_of_plain_torch(kind, project, number, monkeypatch):
    task = project(kind, number, learns="jointly", epochs=1, network_rate=0.01, first="all")().task
    if kind == "captioner":  # before the first step, the rows of centers are those of the store
        rows = Rows.open(Path("features/embeddings"), "embeddings")
        found = torch.cat([*task.training.source.blocks(rows.ids, 4)]).numpy()
        assert np.allclose(found, rows.read(rows.ids).astype(np.float32), rtol=2e-3, atol=2e-3)
    task.trained.double()
    in_double = "fne.finetuning.network_rows.normalize"
    monkeypatch.setattr(in_double, lambda pixels, _: normalize(pixels).double())
    model = task.model
    torch.nn.init.uniform_(model.decoder.output.weight, -1, 1)
    torch.nn.init.uniform_(model.concept_head.concepts.weight, -1, 1)
    task._objective = replace(task._objective, dropout=0.0)
    network = task.training.source.network
    modules = [copy.deepcopy(each).double().requires_grad_() for each in network._network.modules.values()]
    plain = {
        name: value.detach().double().requires_grad_(value.is_floating_point())
        for name, value in model.state_dict().items()
    }
    recorded = recorded_embedding()
    batch = task.batches(0)[0]
    wanted = plain_loss(task, modules, plain, batch, recorded, number)
    wanted.backward()
    loss = task.loss(batch, step_generator(0, 0))
    loss.total.backward()
    assert loss.total.item() == pytest.approx(wanted.item(), rel=1e-10)
    found = {name: each.grad for name, each in model.named_parameters()}
    pairs = [(found[name], plain[name].grad) for name in found]
    theirs = [each.grad for module in modules for each in module.parameters()]
    ours = [each.grad for each in network.parameters()]
    assert len(ours) == len(theirs) == 4
    for one, other in [*pairs, *zip(ours, theirs, strict=True)]:
        assert float((one - other).norm() / other.norm()) < 1e-9


def recorded_embedding():
    """What the embedding was made with, and the statistics of the second layer."""
    statistics, _ = read_statistics(Path("features/statistics.h5"))
    rows = Rows.open(Path("features/embeddings"), "embeddings")
    return {
        "rms": rows.artifact.settings.get("rms"),
        "mean": torch.from_numpy(statistics.mean[64:]),
        "deviation": torch.from_numpy(np.where(statistics.varies, statistics.deviation, np.inf)[64:]),
    }


def test_a_run_resumed_after_any_step_ends_with_the_same_bits(kind, project):
    plan_again = project(kind)
    plan, checkpoints = plan_again(), MemoryCheckpoints(always=True)
    Trainer(plan.task, plan.schedule, checkpoints).train()
    wanted = plan.task.trained.state_dict()
    assert {name.partition(".")[0] for name in wanted} == {"network", "model"}
    for saved in checkpoints.saved[1::3]:
        again = plan_again()
        Trainer(again.task, again.schedule, MemoryCheckpoints(start=saved)).train()
        assert all(
            torch.equal(value, wanted[name]) for name, value in again.task.trained.state_dict().items()
        )


def test_processes_have_the_parts_of_one_gradient(kind, project):
    plan_again = project(kind, learns="jointly", epochs=1, network_rate=0.01)

    def gradients(processes):
        task = plan_again(processes).task
        torch.manual_seed(0)
        torch.nn.init.uniform_(task.model.decoder.output.weight, -1, 1)
        task.loss(task.batches(0)[0], step_generator(0, 0)).total.backward()
        weights = [each for group in task.parameter_groups() for each in group.parameters]
        return [torch.zeros_like(each) if each.grad is None else each.grad for each in weights]

    whole, parts = gradients(ALONE), [gradients(Part(rank, 3)) for rank in range(3)]
    for wanted, *own in zip(whole, *parts, strict=True):
        assert torch.allclose(sum(own), wanted, rtol=1e-4, atol=1e-6)


class Part(Processes):
    """One of several processes that are not there."""

    def add(self, values):
        pass


def test_a_phase_trains_what_it_says(project):
    """A rate of 0 leaves the network as it is, and so does a phase that trains the decoder alone."""
    phases = {
        "learns": ["concept_head", "concept_head", "decoder", "jointly"],
        "network_rate": [0.0, 0.01, 0.01, 0.01],
    }
    task = project("captioner", **phases, epochs=1)().task
    names = []
    for number in range(4):
        task.start_phase(number)
        names.append([group.name for group in task.parameter_groups()])
    head = ["concept_head"]
    assert names == [head, ["network", *head], ["decoder"], ["network", "decoder", *head]]
    rates = {group.name: group.rate for group in task.parameter_groups()}
    assert rates == {"network": pytest.approx(20.0), "decoder": 1.0, "concept_head": pytest.approx(0.2)}


def test_a_warning_names_the_keys_of_its_own_section(project, kind):
    task, scores = project(kind)().task, Scores({"distinct": 1.0, "distinct_captions": 0.0})
    warning = task.warning(-1, [Point(1, 1, 1.0, {}, scores)] * 5)
    assert warning.endswith(f"; let it train longer, or try another tune_{kind}.learning_rate")
    assert "train_" not in warning


def test_the_announced_time_has_all_steps_and_validations(project, monkeypatch):
    """Every image that the network sees takes a second; a phase that does not train it is as long."""
    plan, clock = project("tagger")(), [0.0]

    def pass_time(_, arguments):
        clock[0] += len(arguments[0])

    plan.rows.network.register_forward_pre_hook(pass_time)
    monkeypatch.setattr(run.time, "perf_counter", lambda: clock[0])
    announced, started = run.seconds_of(plan), clock[0]
    Trainer(plan.task, plan.schedule).train()
    # 8 training images in batches of 6 and 2, and 4 of the validation, before the first step too.
    assert clock[0] - started == 3 * 8 + 4 * 4
    assert announced == 3 * 2 * 2 + 4 * 4


@pytest.mark.parametrize(
    ("kind", "reason"), [("fne", "is ternary, which has no gradient"), ("raw_int8", "is rounded to int8")]
)
def test_an_embedding_without_a_gradient_is_refused_with_the_reason(project, kind, reason):
    plan_again = project("captioner")
    model = read_describing_file(Path("models/captioner.safetensors")).artifact
    model.lineage["embeddings"]["settings"]["kind"] = kind
    with pytest.raises(InputError, match=f"needs an embed.kind with a gradient .* of kind '{kind}' {reason}"):
        open_start(model, Places(Path("data/images.jsonl"), *[Path("photos")] * 3))
    plan_again()


def test_a_first_layer_that_is_not_there_is_refused(project):
    with pytest.raises(
        InputError, match="tune_captioner.first: 'conv9' is not one of 'all', 'conv1', 'conv2'"
    ):
        project("captioner", first="conv9")()


def test_a_model_of_other_words_is_refused(project, monkeypatch):
    monkeypatch.setattr(Vocabulary, "__eq__", lambda self, other: False)
    with pytest.raises(
        InputError, match="captioner.safetensors: has other words, tags or concepts than data/"
    ):
        project("captioner")()
