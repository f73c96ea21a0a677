"""How a matching model is made: by training steps, in closed form, or by steps that start from a closed form.

Every method is called as `method(settings, inputs, job)` and returns the model with the points of its
validation, of which a closed form has one. What uses the model does not know the difference.
"""

from dataclasses import replace
from typing import NamedTuple

from fne.core.device import free_memory
from fne.core.terminal import format_bytes, say
from fne.matching.closed_form import align_pairs, matcher_of
from fne.matching.data import MatchingInputs, PairDraw, Pairs
from fne.matching.info_nce import InfoNCE
from fne.matching.instance_loss import (
    FLOAT,
    Classes,
    Instance,
    check_memory,
    class_numbers,
    classifier_bytes,
    new_instance,
)
from fne.matching.kmeans import k_means
from fne.matching.model import Matcher, new_matcher, shape_of
from fne.matching.settings import (
    INFO_NCE,
    ClosedForm,
    Train,
    require_positions,
    require_rows,
    require_vectors,
)
from fne.matching.task import MatchingData, MatchingOptions, MatchingTask, objectives, rate_factors
from fne.matching.validate import validate
from fne.training.best_epoch import Point
from fne.training.finished_runs import Finished, keep_finished, load_finished, training_key
from fne.training.run import Job, schedule_of, train_task


class Made(NamedTuple):
    """A model, its validations, and the classes of the instance loss, if it was trained with one."""

    matcher: Matcher
    done: Finished
    classes: Classes | None = None


def make_model(settings: Train, inputs: MatchingInputs, job: Job) -> Made:
    """Make a model by the method of the settings."""
    require_rows(settings, inputs.captions is not None)
    require_vectors(settings, inputs.vectors)
    return METHODS[settings.method](settings, inputs, job)


def train_by_steps(settings: Train, inputs: MatchingInputs, job: Job) -> Made:
    """Train by gradient steps."""
    require_positions(settings, inputs.longest)
    classes = _make_classes(settings, inputs.training, job) if settings.has_instance_loss else None
    matcher = start_matcher(settings, inputs, job)
    draw = PairDraw(
        inputs.training.captioned,
        settings.seed,
        settings.batch,
        settings.captions,
        settings.last_batch,
        inputs.rows.views,
    )
    options = MatchingOptions(
        settings.precision,
        settings.negatives,
        settings.rates,
        settings.rectified,
        rate_factors(settings),
        job.processes,
    )
    task = MatchingTask(
        matcher.to(job.device),  # which of several GPUs is known only here
        objectives(settings),
        MatchingData(inputs.training, inputs.validation, draw),
        options,
        classes,
        _info_nce(settings, job),
    )
    schedule = schedule_of(
        settings, [each.title for each in objectives(settings)], settings.starts_from != "random"
    )
    read = inputs.read if settings.starts_from == "random" else inputs.read_in_order
    done = train_task(task, settings, schedule, read, job)
    return Made(matcher, replace(done, collapsed=task.has_collapsed(done.points)), classes)


def start_matcher(settings: Train, inputs: MatchingInputs, job: Job) -> Matcher:
    """Return the model that training starts from, the same in all processes."""
    if settings.closed_form:
        return aligned(settings.starts_from, settings.closed_form, inputs, job)[0]
    row = inputs.captions.dim if inputs.captions else 0
    shape = shape_of(settings, inputs.features, inputs.words, row)
    pretrained = inputs.vectors.values if inputs.vectors else None
    return new_matcher(shape, settings.seed, pretrained, settings.words == "fixed")


def label_images(training: Pairs, classes: int, seed: int) -> dict[str, int]:
    """Return the class of each training image: by K-means of their rows, or, if `classes` is 0, its own."""
    numbers = class_numbers(training.image_ids)
    if not classes:
        return numbers
    ids = list(numbers)  # sorted
    return dict(zip(ids, k_means(training.source.read(ids).numpy(), classes, seed).tolist(), strict=True))


def _make_classes(settings: Train, training: Pairs, job: Job) -> Classes:
    """Return the classifier and the classes of the training images."""
    own, dim = settings.instance, settings.embed_dim
    count = own.classes or len(training)
    moments, best = 1 if settings.optimizer == "sgd_nesterov" else 2, settings.keep == "best"
    wanted = classifier_bytes(count, dim, settings.batch, own.bias, moments, best)
    figures = check_memory(count, dim, wanted, free_memory(job.device))
    saved = FLOAT * count * (dim + int(own.bias)) * (1 + moments + int(best))
    job.processes.log(f"{figures}; its part of a checkpoint has {format_bytes(saved)}")
    labels = label_images(training, own.classes, settings.seed)
    loss: Instance = new_instance(count, dim, own, settings.seed).to(job.device)
    return Classes(loss, labels)


def _info_nce(settings: Train, job: Job) -> InfoNCE | None:
    """Return InfoNCE, if a phase has it."""
    if INFO_NCE not in settings.loss:
        return None
    return InfoNCE(settings.info_nce, (settings.image_anchors, settings.caption_anchors)).to(job.device)


def align(settings: Train, inputs: MatchingInputs, job: Job) -> Made:
    """Align both sides in closed form."""
    assert settings.closed_form
    return Made(*aligned(settings.method, settings.closed_form, inputs, job))


def aligned(method: str, settings: ClosedForm, inputs: MatchingInputs, job: Job) -> tuple[Matcher, Finished]:
    """Return the closed-form model, from the scratch folder where it was fitted before.

    The first process fits it for all: unlike machines would differ in the last bits.
    """
    key = training_key({"method": method, **settings.model_dump()}, inputs.read_in_order, "cpu", processes=1)
    done = load_finished(job.scratch, key, job.processes)
    if done is None:
        if job.processes.first:
            keep_finished(job.scratch, key, _align(method, settings, inputs))
        done = load_finished(job.scratch, key, job.processes)
    assert done is not None
    return matcher_of(done.state), done


def _align(method: str, settings: ClosedForm, inputs: MatchingInputs) -> Finished:
    """Fit and validate the closed form; seconds to minutes, so nothing is saved on the way."""
    found = align_pairs(inputs, method, settings)
    chosen = found.chosen
    say(
        f"chosen of {len(found.trials)}: image regularization {chosen.image_regularization:g}, text "
        f"regularization {chosen.text_regularization:g}, power {chosen.power:g}"
    )
    matcher = matcher_of(found.state)
    if matcher.shape.embed_dim < settings.dim:
        say(
            f"the joint space has {matcher.shape.embed_dim} dimensions instead of {settings.dim}: these "
            "images and captions have no more in common"
        )
    point = Point(1, 1, 0.0, {}, validate(matcher, inputs.validation))
    return Finished([point], point, dict(matcher.state_dict()))


METHODS = {"cca": align, "ridge": align, "steps": train_by_steps}
