"""The stage `finetune`: the image network is trained together with a model of matching.

The objective is that of the dual-path paper's second stage, with mined captions.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fne.core import stat_cache
from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.core.processes import ALONE, Processes
from fne.core.settings import Runtime
from fne.core.terminal import say
from fne.finetuning.data import Crop
from fne.finetuning.run import Places, Plan, Start, memory_hint, open_rows, open_start, run_plan
from fne.finetuning.settings import TERM_WEIGHTS, Finetune
from fne.matching.classifier_file import CLASSIFIER_FILE, ClassifierFile, read_classifier
from fne.matching.data import Pairs
from fne.matching.encode import encode_captions, encode_images
from fne.matching.hard_negatives import LossChoices
from fne.matching.instance_loss import Classes, Instance
from fne.matching.mined_captions import MINING_VERSION, AnchorDraw
from fne.matching.model import Matcher
from fne.matching.model_file import MODEL_FILE, MODELS, read_model, write_tuned
from fne.matching.run import training_metrics
from fne.matching.task import MatchingData, MatchingOptions, MatchingTask, Objective, RateFactors
from fne.store.arrays import arrays_digest
from fne.store.artifact import Lineage
from fne.store.catalog import Captioned, captioned_in, read_captions, split_artifact
from fne.store.checksums import write_metrics
from fne.store.lineage import recorded_lineage
from fne.text.caption_vectors import has_caption_rows
from fne.text.tokens import Tokens, read_tokens
from fne.training.finished_runs import Finished
from fne.training.history import write_history
from fne.training.loop import Schedule
from fne.training.optimizers import sgd_nesterov
from fne.training.settings import SgdNesterov

SECTION = "finetune"


@dataclass(frozen=True)
class TuningInputs:
    """What the fine-tuning of a model of matching starts from."""

    matcher: Matcher  # the model of the stage `train`
    start: Start
    classifier: ClassifierFile | None  # the classes of its instance loss, if it has one
    classifier_path: Path
    training: list[Captioned]
    validation: list[Captioned]
    tokens: Tokens
    lineage: Lineage


def run_finetuning(
    settings: Finetune, runtime: Runtime, inputs: TuningInputs, tuned: Path, history: Path, metrics: Path
) -> None:
    """Train, and write the tuned network with its model, the history, and what the validation found."""

    def prepare(device: torch.device, processes: Processes) -> Plan:
        return plan_of(settings, inputs, runtime, device, processes)

    def write(plan: Plan, done: Finished) -> None:
        task, network = plan.task, plan.rows.network
        assert isinstance(task, MatchingTask)
        found = training_metrics(done, task.data.validation.caption_counts)
        found["before"] = done.points[0].scores.main
        found |= {"threads": settings.threads, "images_at_once": network.part}
        written = settings.model_dump() | {name: found[name] for name in ("best_epoch", "started")}
        digest = write_tuned(tuned, task.matcher, network.full_state(), written, inputs.lineage)
        write_history(history, done.points, digest, MODELS[0])
        write_metrics(metrics, found)
        say(summary(done))

    run_plan(settings, runtime, prepare, write)


def read_inputs(model: Path, captions: Path, tokens: Path, places: Places, runtime: Runtime) -> TuningInputs:
    """Open what fine-tuning starts from; `model` is the folder of the model and its classifier."""
    stat_cache.use(runtime.scratch_folder())
    matcher, origin = read_model(model / MODEL_FILE)
    start = open_start(origin, places)
    if has_caption_rows(origin.lineage):
        raise InputError(
            f"{origin.path} was trained on rows of captions: there is no text encoder to train; "
            "set tokenize.vectors to a file of word vectors"
        )
    classifier = model / CLASSIFIER_FILE
    found = read_classifier(classifier) if classifier.exists() else None
    words = read_tokens(tokens)
    captioned, sentences = read_captions(captions)
    split = split_artifact(captions, captioned, "train")
    given = [found.artifact] if found else []
    lineage = recorded_lineage(origin, *given, start.catalog, sentences, words.artifact, split)
    training, validation = (captioned_in(captioned, name) for name in ("train", "val"))
    return TuningInputs(matcher, start, found, classifier, training, validation, words, lineage)


def plan_of(
    settings: Finetune,
    inputs: TuningInputs,
    runtime: Runtime,
    device: torch.device,
    processes: Processes = ALONE,
) -> Plan:
    """Return the fine-tuning, with the network, the model and the classifier on their device."""
    model = inputs.start.model.settings
    draw = AnchorDraw(inputs.training, settings.seed, settings.batch, settings.candidates)

    def own_crops(epoch: int) -> list[list[Crop]]:
        parts = [batch.part(processes.partition(len(batch))) for batch in draw.batches(epoch)]
        return [[(each, epoch) for each in part.image_ids] for part in parts]

    rows = open_rows(settings, SECTION, inputs.start, runtime, device, own_crops, settings.network_rates())
    training, validation = (
        Pairs(captioned, rows, inputs.tokens) for captioned in (inputs.training, inputs.validation)
    )
    for name, present, least in (("train", training, 4), ("val", validation, 1)):
        if len(present) < least:
            raise InputError(
                f"the catalog has {len(present)} captioned images in split '{name}'; fine-tuning needs at "
                f"least {least}; see `catalog` in params.yaml"
            )
    matcher = inputs.matcher.to(device)
    if model.get("words") == "fixed":
        matcher.text_encoder.get_submodule("words").requires_grad_(False)
    phases = len(settings.phases())
    rank, image_classes, text_classes = (getattr(settings, key) for key in TERM_WEIGHTS)
    objective = Objective(
        "ranking", LossChoices(), settings.margin, rank, image_classes, text_classes, mined=True
    )
    options = MatchingOptions(
        rectified=bool(model.get("rectified")),
        factors=[_model_factors(model)] * phases,
        processes=processes,
        section=SECTION,
        memory_hint=memory_hint(SECTION),
    )
    data = MatchingData(training, validation, draw)
    task = MatchingTask(matcher, [objective] * phases, data, options, _classes(settings, inputs, device))
    made_with = {"task": SECTION, **settings.model_dump(), "mining": MINING_VERSION}
    read = digests_of(inputs, task)
    parts = list(parts_of_validation(task, settings.batch, processes))
    return Plan(task, rows, schedule_of(settings), made_with, read, sum(draw.sizes()), settings.batch, parts)


def parts_of_validation(
    task: MatchingTask, batch: int, processes: Processes
) -> Iterator[tuple[Callable[[], object], float]]:
    """Yield parts of a validation, and how many times as long the whole takes."""
    pairs = task.data.validation
    for encode, ids in ((encode_images, pairs.image_ids), (encode_captions, pairs.caption_ids)):
        some = ids[:: max(1, len(ids) // batch)]
        times = len(ids) / len(some) / processes.count

        def work(encode: Any = encode, some: list[str] = some) -> None:
            deque(encode(task.matcher, pairs, some), maxlen=0)

        yield work, times


def digests_of(inputs: TuningInputs, task: MatchingTask) -> dict[str, str]:
    """Return the digests of what training reads, by which its result is kept."""
    weights = {name: value.cpu().numpy() for name, value in inputs.matcher.state_dict().items()}
    file = inputs.classifier
    classifier = {"weight": file.weight, "labels": file.labels} if file else {}
    if file and file.bias is not None:
        classifier["bias"] = file.bias
    made_with = [inputs.start.model.settings, inputs.start.extraction, inputs.start.embedding]
    return {
        "model": arrays_digest(weights),
        "classifier": arrays_digest(classifier),
        "network": inputs.start.model.lineage["weights"]["digest"],
        "settings": text_digest(json.dumps(made_with, sort_keys=True)),
        "train": task.data.training.digest(),
        "val": task.data.validation.digest(),
    }


def schedule_of(settings: Finetune) -> Schedule:
    """Return how to train; the weights before the first step are validated too."""
    own = SgdNesterov(momentum=settings.momentum, weight_decay=settings.weight_decay)
    return Schedule(
        settings.phases(),
        settings.seed,
        partial(sgd_nesterov, settings=own),
        clip=0.0,
        clip_by="global",
        validate_every=0,
        keep=settings.keep,
        validate_start=True,
    )


def summary(done: Finished) -> str:
    """Describe a finished fine-tuning in one line."""
    before, after = done.points[0].scores.main, done.kept.scores.main
    return (
        f"validation rsum {before:.1f} before, {after:.1f} after epoch {done.kept.epoch} of "
        f"{done.points[-1].epoch} (one crop per image; `evaluate_tuned` uses the crops of extract.crops)"
    )


def _classes(settings: Finetune, inputs: TuningInputs, device: torch.device) -> Classes | None:
    """Return the classifier that the stage `train` ended with, if it is used."""
    if not settings.has_instance_loss:
        return None
    file = inputs.classifier
    if file is None:
        raise InputError(
            f"params.yaml: finetune.image_class_weight is {settings.image_class_weight} and "
            f"finetune.text_class_weight is {settings.text_class_weight}, but there is no "
            f"{inputs.classifier_path}: the stage `train` had no instance loss; set both to "
            "0, or use -S ++train.image_class_weight=1.0"
        )
    dropout = inputs.start.model.settings["instance"]["dropout"]
    count, dim = file.weight.shape
    loss = Instance(count, dim, file.bias is not None, dropout)
    state = {"weight": file.weight} | ({} if file.bias is None else {"bias": file.bias})
    loss.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    ids = sorted(record.id for record in inputs.training)
    if len(ids) != len(file.labels):
        raise InputError(
            f"{file.artifact.path}: has classes of {len(file.labels)} training images, but the catalog has "
            f"{len(ids)}; run `dvc repro train`"
        )
    return Classes(loss.to(device), dict(zip(ids, file.labels.tolist(), strict=True)))


def _model_factors(model: Mapping[str, Any]) -> RateFactors:
    """Return the factors on the learning rate of the model, those of its last phase in `train`."""

    def last(key: str) -> float:
        value = model.get(key, 1.0)
        return float(value[-1] if isinstance(value, list) else value)

    bias = model.get("instance", {}).get("bias_rate", 1.0)
    return RateFactors(last("words_rate"), last("classifier_rate"), last("gain_rate"), bias)
