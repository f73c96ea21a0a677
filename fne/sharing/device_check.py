"""The self-test of a device: `fne doctor --device cuda`.

It computes drawn images with the settings of `params.yaml`, in every precision that the device has, and
compares the rows with the plain algorithm's on the CPU. It measures speed and memory, how many processes must
decode images so that the device does not wait, and a training step against the CPU's.
"""

import io
import json
import math
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fne.core.device import (
    device_name,
    free_memory,
    has_gpu,
    is_gpu,
    peak_memory,
    prepare_device,
    reset_peak_memory,
    synchronize,
)
from fne.core.errors import InputError
from fne.core.files import write_text
from fne.core.settings import load_runtime, load_section
from fne.datasets.demo.drawing import draw
from fne.datasets.demo.scenes import generator, scenes
from fne.extraction.computer import GPU_BATCH, compute_rows, open_queue
from fne.extraction.extractor import PRECISIONS, Extractor, build_extractor
from fne.extraction.settings import Extract
from fne.extraction.weights import Weights, load_weights
from fne.features.embeddings import Embed
from fne.matching.data import PairBatch, PairDraw
from fne.matching.instance_loss import Classes, new_instance
from fne.matching.model import new_matcher, shape_of
from fne.matching.settings import Train
from fne.matching.task import MatchingData, MatchingTask, objectives
from fne.store.images import decode_bytes
from fne.training.loop import Trainer
from fne.training.run import schedule_of
from fne.training.task import ParameterGroup

IMAGES, FEWEST = 16, 4  # drawn images, and how many at least on a slow CPU
REFERENCE_SECONDS = 25.0  # for the reference of the CPU
SPEED_SECONDS = 4.0  # per precision
SIDE = 400  # pixels per side of a drawn image
STEPS = 3
WORDS, WORDS_PER_CAPTION = 3000, 12  # captions of Flickr8k have 11.8 words on average
# Above these relative differences to the CPU, a device is faulty. Half precision has 11 and 8 bits.
TOLERANCES = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}
STEP_TOLERANCE = 1e-3
LARGEST_BATCH = 256
USUAL_THRESHOLDS = (-0.25, 0.15)  # where those of params.yaml are quantiles of a data set
COLUMNS = "precision", "algorithm", "difference", "largest", "flipped", "same bits", "images/s", "memory"
ROW = "{:<10}{:<11}{:>10}{:>10}{:>10}{:>11}{:>10}{:>10}"


@dataclass(frozen=True)
class PrecisionResult:
    """What the device computes in one precision."""

    precision: str  # a key of `PRECISIONS`
    algorithm: str  # how crops are computed
    relative_difference: float  # the norm of the difference to the reference over the norm of the reference
    largest_difference: float  # between single values, in standard deviations of their feature
    flipped: float  # the fraction of ternary values that differ from those of the reference
    repeatable: bool  # whether computing again, and computing alone, gives the same bits
    images_per_second: float  # without decoding
    peak_bytes: int  # the memory in use, with `batch` images per batch


@dataclass(frozen=True)
class DeviceReport:
    """Everything that the self-test found; the JSON file has these fields."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    images: int
    precisions: list[PrecisionResult]
    batch: int
    batch_that_fits: int
    decoded_per_second: float
    workers: int
    step: dict[str, float]  # a training step: seconds here and on the CPU, and the difference of the losses
    seconds: float

    def problems(self) -> list[str]:
        """Return one line per fault of the device."""
        lines = []
        for each in self.precisions:
            if not each.relative_difference <= TOLERANCES[each.precision]:
                lines.append(
                    f"{each.precision}: rows differ from the CPU's by {each.relative_difference:.1e}, and at "
                    f"most {TOLERANCES[each.precision]:.0e} is rounding; report it and use another device"
                )
            if not each.repeatable:
                lines.append(
                    f"{each.precision}: the same images gave other bits when computed again or alone"
                )
        if not self.step["relative_difference"] <= STEP_TOLERANCE:
            lines.append(
                f"a training step differs from the CPU's by {self.step['relative_difference']:.1e}; report it"
            )
        return lines

    def advice(self) -> list[str]:
        """Return the lines for the section `runtime`, and what limits the speed."""
        fastest = max(each.images_per_second for each in self.precisions)
        cores, decoded = os.cpu_count() or 1, self.decoded_per_second
        lines = [
            f"  device: {self.settings['device']}",
            f"  batch: {self.batch}",
            f"  workers: {self.workers}",
        ]
        if self.workers * decoded < fastest:
            lines.append(
                f"decoding is the limit: {self.workers} of {cores} cores decode about "
                f"{self.workers * decoded:.0f} images/s, and the device computes {fastest:.0f}"
            )
        return lines


def run_device_test(params: Path, device_type: str) -> DeviceReport:
    """Test a device (`cuda` or `cpu`) with the settings of a parameter file."""
    if device_type == "cuda" and not has_gpu():
        built = f"is built for CUDA {torch.version.cuda}" if torch.version.cuda else "is built without CUDA"
        raise InputError(
            f"torch finds no GPU: torch {torch.__version__} {built}; check `nvidia-smi` and how torch was "
            "installed"
        )
    started = time.perf_counter()
    runtime = load_runtime(params).model_copy(update={"device": device_type})
    settings = load_section(params, "extract", Extract)
    embed = load_section(params, "embed", Embed)
    device = prepare_device(runtime)
    weights = load_weights(Path(settings.weights), settings.backbone, settings.input)
    batch = runtime.batch or (GPU_BATCH if is_gpu(device) else torch.get_num_threads())
    setup = _Setup(settings, weights, device, runtime.algorithm, batch)
    plain = replace(setup, device=torch.device("cpu"), algorithm="plain").extractor("float32")
    pixels, decoded = _decode(_draw_files(), plain)
    reference = _reference(plain, pixels)
    thresholds = (embed.low, embed.high) if embed.thresholds == "fixed" else USUAL_THRESHOLDS
    results = [
        _test_precision(setup, name, pixels[: len(reference)], reference, thresholds)
        for name in _precisions(device)
    ]
    fastest = max(each.images_per_second for each in results)
    return DeviceReport(
        machine=_machine(device),
        settings=settings.model_dump() | {"device": device_type, "weights_digest": weights.artifact.digest},
        images=len(reference),
        precisions=results,
        batch=batch,
        batch_that_fits=_batch_that_fits(setup, pixels[0]),
        decoded_per_second=decoded,
        workers=max(1, min(math.ceil(fastest / decoded), (os.cpu_count() or 2) - 1)),
        step=_test_step(params, plain.features, device),
        seconds=time.perf_counter() - started,
    )


def check_device(params: Path, device: str, scratch: Path) -> str:
    """Run the self-test of a device, write its JSON file and return its table."""
    report = run_device_test(params, device)
    path = scratch / "doctor" / f"{device}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = asdict(report) | {"problems": report.problems(), "advice": report.advice()}
    write_text(path, json.dumps(content, indent=2) + "\n")
    return f"{format_report(report)}\n{path}: the same and more, for a bug report"


def format_report(report: DeviceReport) -> str:
    """Return the report as a table with problems and advice."""
    machine, settings, step = report.machine, report.settings, report.step
    memory = f"{machine['free_bytes'] / 1e9:.1f} GB free"
    lines = [
        f"{machine['name']}, torch {machine['torch']}, {memory}, {machine['cores']} cores",
        f"{report.images} drawn images, {settings['backbone']}, crops {settings['crops']}, compared with "
        "algorithm 'plain' on the CPU in float32",
        "",
        ROW.format(*COLUMNS),
    ]
    for each in report.precisions:
        lines.append(
            ROW.format(
                each.precision,
                each.algorithm,
                f"{each.relative_difference:.1e}",
                f"{each.largest_difference:.1e}",
                f"{each.flipped:.3%}",
                "yes" if each.repeatable else "no",
                f"{each.images_per_second:.2f}",
                f"{each.peak_bytes / 1e9:.2f} GB",
            )
        )
    lines += [
        "",
        f"batch of {report.batch} images; up to {report.batch_that_fits} fit",
        f"decoding: {report.decoded_per_second:.0f} images/s per process",
        f"training step: {1000 * step['seconds']:.0f} ms, on the CPU {1000 * step['cpu_seconds']:.0f} ms; "
        f"losses differ by {step['relative_difference']:.1e}",
        *(report.problems() or ["no problems found"]),
        "advice for the section runtime of params.yaml:",
        *report.advice(),
    ]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Setup:
    """What is tested."""

    settings: Extract
    weights: Weights
    device: torch.device
    algorithm: str
    batch: int

    def extractor(self, precision: str) -> Extractor:
        """Build the extractor of one precision."""
        chosen = self.settings.model_copy(update={"precision": precision})
        return build_extractor(chosen, self.weights, self.algorithm, self.device)


def _precisions(device: torch.device) -> list[str]:
    if not is_gpu(device):
        return ["float32"]
    return [name for name in PRECISIONS if name != "bfloat16" or torch.cuda.is_bf16_supported()]


def _test_precision(
    setup: _Setup,
    precision: str,
    pixels: list[Tensor],
    reference: np.ndarray,
    thresholds: tuple[float, float],
) -> PrecisionResult:
    extractor, device, batch = setup.extractor(precision), setup.device, setup.batch
    reset_peak_memory(device)
    rows = _rows(extractor, pixels, batch)
    again, alone = _rows(extractor, pixels, batch), _rows(extractor, pixels[:1], 1)
    deviation = reference.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1)
    scores, expected = ((each - reference.mean(axis=0)) / scale for each in (rows, reference))
    return PrecisionResult(
        precision=precision,
        algorithm=extractor.kind["algorithm"],
        relative_difference=float(np.linalg.norm(rows - reference) / np.linalg.norm(reference)),
        largest_difference=float(np.abs(scores - expected).max()),
        flipped=float((_ternary(scores, *thresholds) != _ternary(expected, *thresholds)).mean()),
        repeatable=np.array_equal(rows, again) and np.array_equal(rows[:1], alone),
        images_per_second=_speed(extractor, pixels, batch),
        peak_bytes=peak_memory(device),
    )


def _ternary(scores: np.ndarray, low: float, high: float) -> np.ndarray:
    return (scores > high).astype(np.int8) - (scores < low).astype(np.int8)


def _rows(extractor: Extractor, pixels: list[Tensor], batch: int) -> np.ndarray:
    pinned = [each.pin_memory() for each in pixels] if is_gpu(extractor.device) else pixels
    return np.concatenate(list(compute_rows(open_queue(extractor), iter(pinned), batch, lambda text: None)))


def _speed(extractor: Extractor, pixels: list[Tensor], batch: int) -> float:
    started, done = time.perf_counter(), 0
    while not done or time.perf_counter() - started < SPEED_SECONDS:
        done += len(_rows(extractor, pixels[:batch], batch))
    return done / (time.perf_counter() - started)


def _batch_that_fits(setup: _Setup, pixels: Tensor) -> int:
    """Estimate the largest batch from the memory of one image and of four."""
    device = setup.device
    if not is_gpu(device):
        return torch.get_num_threads()
    extractor = setup.extractor("float32")
    used = []
    for count in (1, 4):
        reset_peak_memory(device)
        _rows(extractor, [pixels] * count, count)
        used.append(peak_memory(device))
    per_image = max(1, (used[1] - used[0]) // 3)
    return min(LARGEST_BATCH, 1 + max(0, free_memory(device) - used[0]) // per_image)


def _draw_files() -> list[bytes]:
    contents = []
    for number, scene in enumerate(islice(scenes(0), IMAGES)):
        buffer = io.BytesIO()
        draw(scene, SIDE, generator(0, number, "grain")).save(buffer, "JPEG", quality=90)
        contents.append(buffer.getvalue())
    return contents


def _decode(files: list[bytes], extractor: Extractor) -> tuple[list[Tensor], float]:
    """Return the pixels of image files, and how many files are decoded per second by one process."""
    Image.init()
    started = time.perf_counter()
    pixels = [extractor.resize(decode_bytes(content)) for content in files]
    return pixels, len(files) / (time.perf_counter() - started)


def _reference(extractor: Extractor, pixels: list[Tensor]) -> np.ndarray:
    """Return the rows of the plain algorithm on the CPU, of as many images as there is time for."""
    rows, started = [], time.perf_counter()
    for each in pixels:
        rows.append(extractor.compute([each]))
        if len(rows) >= FEWEST and time.perf_counter() - started > REFERENCE_SECONDS:
            break
    return np.concatenate(rows).astype(np.float64)


def _test_step(params: Path, features: int, device: torch.device) -> dict[str, float]:
    """Make the same training steps on the CPU and on the device."""
    settings = load_section(params, "train", Train)
    losses, seconds = [], []
    for place in (torch.device("cpu"), device):
        trainer, batch = _random_training(settings, features, place)
        losses.append([trainer.step(batch)[0]])  # not timed: compiles code and allocates memory
        started = time.perf_counter()
        losses[-1] += [trainer.step(batch)[0] for _ in range(STEPS - 1)]
        synchronize(place)
        seconds.append((time.perf_counter() - started) / (STEPS - 1))
    expected, found = np.array(losses)
    difference = np.abs(found - expected).max() / max(np.abs(expected).max(), np.finfo(np.float32).tiny)
    return {"seconds": seconds[1], "cpu_seconds": seconds[0], "relative_difference": float(difference)}


class _RandomPairs:
    """A batch of random images and captions, in place of `fne.matching.data.Pairs` and of their rows."""

    network = None

    def __init__(self, features: int, batch: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.source = self
        self._rows = torch.randn(batch, features, generator=generator)
        self._words = torch.randint(1, WORDS, (batch, WORDS_PER_CAPTION), generator=generator)

    def parameter_groups(self) -> list[ParameterGroup]:
        return []

    def read(self, ids: Sequence[str], views: Sequence[int] | None = None) -> Tensor:
        return self._rows

    def captions(self, ids: Sequence[str]) -> tuple[Tensor, Tensor]:
        return self._words, torch.full((len(ids),), WORDS_PER_CAPTION)


def _random_training(
    settings: Train, features: int, device: torch.device
) -> tuple[Trainer[PairBatch], PairBatch]:
    """Return a trainer with fresh weights on a device, and a batch of random data."""
    matcher = new_matcher(shape_of(settings, features, WORDS), settings.seed).to(device)
    pairs: Any = _RandomPairs(features, settings.batch)
    ids = [str(number) for number in range(settings.batch)]
    classes = None
    if settings.has_instance_loss:
        count = settings.instance.classes or settings.batch
        loss = new_instance(count, settings.embed_dim, settings.instance, settings.seed).to(device)
        classes = Classes(loss, {name: int(name) % count for name in ids})
    data = MatchingData(pairs, pairs, PairDraw([], settings.seed, settings.batch, settings.captions))
    task = MatchingTask(matcher, objectives(settings), data, classes=classes)
    return Trainer(task, schedule_of(settings, [each.title for each in objectives(settings)])), PairBatch(
        ids, ids
    )


def _machine(device: torch.device) -> dict[str, Any]:
    return {
        "name": device_name(device),
        "processor": platform.processor() or platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if is_gpu(device) else None,
        "cudnn": torch.backends.cudnn.version() if is_gpu(device) else None,  # type: ignore[no-untyped-call]
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "free_bytes": free_memory(device),
    }
