"""The stages `tune_tagger` and `tune_captioner`: the image network is trained with a tagger or a captioner.

The task is that of the training before, with the rows of random crops. A phase may train the network with the
concepts alone, or jointly with a decoder, as phases of that training do without it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from fne.core import stat_cache
from fne.core.errors import InputError
from fne.core.processes import ALONE, Processes
from fne.core.settings import Runtime, parse_section
from fne.core.terminal import say
from fne.describing.inputs import Lesson, choose_lesson
from fne.describing.model_file import BEFORE, DescribingFile, read_describing_file, write_describing_model
from fne.describing.run import Settings, validation_of
from fne.describing.settings import CAPTIONER, TAGGER, TrainCaptioner, TrainTagger
from fne.describing.task import Batching, DescribingTask, Objective
from fne.finetuning.data import Crop
from fne.finetuning.run import Places, Plan, Start, memory_hint, open_rows, open_start, run_plan
from fne.finetuning.settings import BIASES, FIRST, GAINS, WEIGHTS, TuneDescribing
from fne.store.artifact import Lineage
from fne.store.catalog import read_captions, split_artifact
from fne.store.lineage import recorded_lineage
from fne.training.finished_runs import Finished, digest_of
from fne.training.history import write_history
from fne.training.run import schedule_of

TRAINED: Mapping[str, type[Settings]] = {CAPTIONER: TrainCaptioner, TAGGER: TrainTagger}
# All weights of the network have the rate of the phase.
ONE_RATE = dict.fromkeys((WEIGHTS, BIASES, GAINS, FIRST), 1.0)


@dataclass(frozen=True)
class TuningInputs:
    """What the fine-tuning of a tagger or captioner starts from."""

    before: DescribingFile
    settings: Settings  # those of the training before, with the phases and the optimizer of the fine-tuning
    start: Start
    lesson: Lesson
    lineage: Lineage


def run_tuning(
    settings: TuneDescribing, runtime: Runtime, inputs: TuningInputs, tuned: Path, history: Path
) -> None:
    """Train; write the tuned network with its model, and the history."""

    def prepare(device: torch.device, processes: Processes) -> Plan:
        return plan_of(settings, inputs, runtime, device, processes)

    def write(plan: Plan, done: Finished) -> None:
        task = plan.task
        assert isinstance(task, DescribingTask)
        made_with = inputs.before.artifact.settings | settings.effective() | {"best_epoch": done.kept.epoch}
        network, vocabulary = plan.rows.network.full_state(), inputs.before.vocabulary
        digest = write_describing_model(tuned, task.model, vocabulary, made_with, inputs.lineage, network)
        write_history(history, done.points, digest, settings.kind)
        start = done.points[0].scores
        say(f"before: validation {start.name} {start.main:.3f}; {task.validation.summary(done.kept)}")

    run_plan(settings, runtime, prepare, write)


def read_inputs(
    settings: TuneDescribing, model: Path, captions: Path, places: Places, runtime: Runtime
) -> TuningInputs:
    """Open what fine-tuning starts from: a model, what it was trained with, and the images."""
    stat_cache.use(runtime.scratch_folder())
    before = read_describing_file(model, settings.kind)
    start = open_start(before.artifact, places)
    captioned, sentences = read_captions(captions)
    split = split_artifact(captions, captioned, "train")
    lineage = recorded_lineage(before.artifact, start.catalog, sentences, split)
    lineage[BEFORE[settings.kind]] = lineage.pop(settings.kind)
    own = continued(before, settings)
    lesson = choose_lesson(captions, captioned, own)
    if lesson.vocabulary != before.vocabulary:
        raise InputError(
            f"{model}: has other words, tags or concepts than {captions}; run "
            f"`dvc repro {before.artifact.pipeline}`"
        )
    return TuningInputs(before, own, start, lesson, lineage)


def continued(before: DescribingFile, settings: TuneDescribing) -> Settings:
    """Return the settings of the training before, with the phases and the optimizer of the fine-tuning."""
    kind, section = TRAINED[settings.kind], f"tune_{settings.kind}"
    known = {key: value for key, value in before.artifact.settings.items() if key in kind.model_fields}
    changed = {key: value for key, value in settings.model_dump().items() if key in kind.model_fields}
    found, faults = parse_section({section: known | changed}, section, kind)
    if found is None:
        raise InputError(f"params.yaml: section '{section}': {'; '.join(faults)}")
    return found


def plan_of(
    settings: TuneDescribing,
    inputs: TuningInputs,
    runtime: Runtime,
    device: torch.device,
    processes: Processes = ALONE,
) -> Plan:
    """Return the fine-tuning, with the network and the model on their device."""
    section, own, lesson = f"tune_{settings.kind}", inputs.settings, inputs.lesson
    objective = Objective.of(own, [each["network_rate"] for each in settings.phase_values()])
    draw = own.captions if isinstance(own, TrainCaptioner) else "all"

    def own_crops(epoch: int) -> list[list[Crop]]:
        found = []
        for batch in task.batches(epoch):
            images, _ = batch.part(processes.partition(len(batch))).different_images()
            found.append([(training.ids[each], epoch) for each in images])
        return found

    rows = open_rows(settings, section, inputs.start, runtime, device, own_crops, ONE_RATE)
    records = lesson.validation
    training, validation = (lesson.examples(each, rows) for each in (lesson.training, records))
    some = lesson.examples(records[:: max(1, len(records) // max(settings.batch, 2))], rows)
    scored, part = (validation_of(own, each, lesson.vocabulary, objective) for each in (validation, some))
    task = DescribingTask(
        settings.kind,
        inputs.before.load().to(device),
        objective,
        training,
        Batching(settings.seed, settings.batch, draw),
        scored,
        processes,
        section,
        memory_hint(section),
    )
    read = {
        "model": inputs.before.artifact.digest,
        "train": digest_of(rows, lesson.training),
        "val": digest_of(rows, lesson.validation),
    }
    learns = objective.learns[0]
    whole = [(lambda: part.scores(task.model, learns), scored.images / part.images)]
    images = sum(map(len, own_crops(0))) * processes.count
    schedule = schedule_of(own, settings.titles(), validate_start=True)
    made_with = {"task": section, **settings.effective()}
    return Plan(task, rows, schedule, made_with, read, images, min(settings.batch, len(training)), whole)
