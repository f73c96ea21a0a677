"""The Ray driver: it sends work units to workers, collects their rows, and handles lost workers.

Each worker has at most two work units: it computes one while it reads the images of the other. So the driver
holds few rows, and the death of a worker loses little work. A lost unit goes to the next free worker, also
if Ray finds no node on which to restart the lost one.

When a worker dies, any image of its units may be the cause. Therefore these images are computed again one by
one, each on a worker without another unit. An image that kills its worker repeatedly is reported by name.
"""

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from fne.core.errors import InputError
from fne.core.settings import Runtime
from fne.core.signals import StopRequest, graceful_stop
from fne.extraction.computer import ComputedRows, Computer, Job, Log, default_batch
from fne.extraction.extractor import Extractor
from fne.extraction.ray.cluster import Allocation, allocate_workers, cluster_name, connect
from fne.extraction.ray.worker import Description, Worker, WorkerResult, fingerprint
from fne.extraction.settings import Extract
from fne.store.catalog import Image

# How often an image may kill a worker that computes nothing else, and how often a worker may die while it
# starts.
MAX_TRIES = 3
UNITS_PER_WORKER = 2
# How often to check for signals.
POLL_SECONDS = 0.2
# After this time without a ready worker, the user gets a message.
START_WARNING_SECONDS = 30.0

NO_WORKERS = (
    "every worker on the Ray cluster was killed while it started, possibly because memory ran out; finished "
    "rows are kept; raise runtime.threads, so that fewer workers run on a node, and run again"
)


class StartupStep(Enum):
    """What a worker does before its first unit: start its process, then load the model."""

    START = "start"
    LOAD = "load"


@dataclass(frozen=True)
class WorkUnit:
    """Positions of images that are computed together."""

    positions: list[int]
    suspect: bool = False  # whether it is a single image that may have killed a worker
    tries: int = 0  # how often it has killed a worker on its own


@dataclass(eq=False)
class WorkerHandle:
    """The state of a worker, which Ray may restart in another process."""

    actor: Any
    ready: bool = False  # whether its process has loaded the model
    units: int = 0
    with_suspect: bool = False  # whether its only unit is a suspect
    generation: int = 0  # how often its process was requested
    failures: int = 0  # how often in a row it has died before it was ready
    ready_since: float = 0.0  # when it was ready for the first time


@contextmanager
def open_ray(settings: Extract, runtime: Runtime, log: Log) -> Iterator[Computer]:
    """Yield a computer that computes on Ray; stop all its processes afterwards."""
    with connect() as ray:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        allocation = allocate_workers(nodes, runtime, torch.get_num_threads())
        # This process computes nothing, but the threads determine the batch size and may be part of the kind.
        torch.set_num_threads(max(1, allocation.cpus))
        log(f"Ray cluster {cluster_name()}: {allocation}")
        own = runtime.model_copy(update={"device": allocation.device, "threads": allocation.cpus})
        yield RayDriver(ray, settings, own, allocation, log)


class RayDriver:
    """The workers of one run, as a `Computer`. `ray` is an argument: it is optional, and tests replace it."""

    remote = True

    def __init__(
        self, ray: Any, settings: Extract, runtime: Runtime, allocation: Allocation, log: Log
    ) -> None:
        self.device = torch.device(allocation.device)
        self._ray = ray
        self._settings = settings
        self._runtime = runtime
        self._allocation = allocation
        self._log = log
        self._batch = runtime.batch or default_batch(self.device)
        self._workers: list[WorkerHandle] = []
        # Calls without a result yet, each with the worker and its generation at the time of the call.
        self._pending: dict[Any, tuple[WorkerHandle, int, WorkUnit | StartupStep]] = {}
        self._units: deque[WorkUnit] = deque()
        self._suspects: deque[WorkUnit] = deque()
        self._faults: list[tuple[int, str]] = []  # with the position of the image
        self._stop = StopRequest()
        self._warn_at = math.inf

    def time_per_image(self, extractor: Extractor) -> float | None:
        """The workers are unknown."""
        return None

    @contextmanager
    def start(self, job: Job) -> Iterator[None]:
        """Request workers, unless this is done, and delay stop signals."""
        self._job = job
        self._start_workers(job)
        self._warn_at = time.perf_counter() + START_WARNING_SECONDS
        with graceful_stop() as self._stop:
            yield
        now = time.perf_counter()
        job.statistics.worker_seconds = sum(
            now - worker.ready_since for worker in self._workers if worker.ready_since
        )

    @property
    def room(self) -> int:
        """What fills all workers that are ready; suspects go first, and after a fault nothing is begun."""
        if self._faults or self._suspects:
            return 0
        free = [
            UNITS_PER_WORKER - each.units for each in self._workers if each.ready and not each.with_suspect
        ]
        return max(0, sum(free) - len(self._units)) * self._batch

    @property
    def busy(self) -> bool:
        """Whether submitted images have no rows yet, or a fault is to be reported."""
        return bool(self._units or self._suspects or self._faults or self._is_computing())

    def submit(self, positions: Sequence[int]) -> None:
        """Divide images into work units."""
        for begin in range(0, len(positions), self._batch):
            self._units.append(WorkUnit(list(positions[begin : begin + self._batch])))

    def finished(self) -> Iterator[ComputedRows]:
        """Send units to workers that have room, wait for a result, and yield its rows.

        After a fault or a stop signal, rows that are already finished are still yielded.
        """
        if self._faults and not self._is_computing():
            raise InputError(min(self._faults)[1])
        self._dispatch()
        yield from self._collect(POLL_SECONDS)
        if self._stop():
            yield from self._collect(0)
            self._stop.exit()
        if any(worker.ready for worker in self._workers):
            self._warn_at = time.perf_counter() + START_WARNING_SECONDS
        elif time.perf_counter() > self._warn_at:
            self._log("waiting for the Ray cluster to start a worker; `ray status` shows what is missing")
            self._warn_at = math.inf

    def _is_computing(self) -> bool:
        return any(isinstance(task, WorkUnit) for _, _, task in self._pending.values())

    def _start_workers(self, job: Job) -> None:
        """Request workers from Ray unless this is done, but no more than there are work units."""
        if self._workers:
            return
        # Ray restarts a worker without limit; the driver counts how often an image kills one.
        actor = self._ray.remote(Worker).options(
            num_cpus=self._allocation.cpus,
            num_gpus=self._allocation.gpus,
            max_restarts=-1,
            max_concurrency=UNITS_PER_WORKER,
        )
        for _ in range(min(self._allocation.workers, -(-job.todo // self._batch))):
            self._workers.append(
                WorkerHandle(actor.remote(self._settings, self._runtime, job.files.root, Path.cwd()))
            )
            self._wait_for_start(self._workers[-1])

    def _wait_for_start(self, worker: WorkerHandle) -> None:
        """Wait until Ray has started the process of the worker, without a timeout."""
        worker.ready = False
        worker.generation += 1
        self._track(worker, worker.actor.ping.options(max_task_retries=-1).remote(), StartupStep.START)

    def _track(self, worker: WorkerHandle, call: Any, task: WorkUnit | StartupStep) -> None:
        self._pending[call] = (worker, worker.generation, task)

    def _dispatch(self) -> None:
        """Send units to workers that have room; after a fault, none."""
        while not self._faults and (self._suspects or self._units) and (worker := self._next_worker()):
            unit = (self._suspects or self._units).popleft()
            images = [self._job.files.images[position] for position in unit.positions]
            self._track(worker, worker.actor.compute.remote(images), unit)
            worker.units += 1
            worker.with_suspect = unit.suspect

    def _release(self, worker: WorkerHandle, unit: WorkUnit) -> None:
        worker.units -= 1
        # The loss of a unit of an earlier generation may be noticed when the suspect is already there.
        worker.with_suspect = worker.with_suspect and not unit.suspect

    def _next_worker(self) -> WorkerHandle | None:
        """Return the worker with the fewest units, or None; a suspect gets a worker without other units."""
        room = 1 if self._suspects else UNITS_PER_WORKER
        free = [each for each in self._workers if each.ready and each.units < room and not each.with_suspect]
        return min(free, key=lambda each: each.units, default=None)

    def _collect(self, seconds: float) -> Iterator[ComputedRows]:
        """Wait for one result, or with 0 seconds take all available ones, and yield computed rows."""
        calls = list(self._pending)
        if not calls:
            return
        wanted = 1 if seconds else len(calls)
        for call in self._ray.wait(calls, num_returns=wanted, timeout=seconds)[0]:
            worker, generation, task = self._pending.pop(call)
            try:
                result = self._ray.get(call)
            except self._ray.exceptions.RayTaskError:  # a programming error in the worker
                raise
            except self._ray.exceptions.RayError:
                self._on_lost(worker, generation, task)
                continue
            if task is StartupStep.START:
                self._track(worker, worker.actor.describe.remote(), StartupStep.LOAD)
                continue
            if task is StartupStep.LOAD:
                self._on_ready(worker, result)
                continue
            self._release(worker, task)
            if isinstance(result, WorkerResult):
                self._job.statistics.input_seconds += result.idle_seconds / self._job.statistics.workers
                yield ComputedRows(task.positions, result.rows, result.hardware)
            else:
                self._faults.append((task.positions[0], result))

    def _on_ready(self, worker: WorkerHandle, result: Description | str) -> None:
        """Use a worker that has loaded its model, if it computes the same rows as this process would."""
        if isinstance(result, str):
            self._faults.append((0, result))
            return
        expected = fingerprint(self._job.extractor.kind)
        if result.fingerprint != expected:
            self._faults.append((0, mismatch_message(result, expected)))
            return
        if not worker.ready_since:
            self._job.statistics.workers += 1
            worker.ready_since = time.perf_counter()
        worker.failures = 0
        worker.ready = True

    def _on_lost(self, worker: WorkerHandle, generation: int, task: WorkUnit | StartupStep) -> None:
        """Requeue the unit of a lost worker; remove a worker that dies repeatedly while it starts."""
        if isinstance(task, StartupStep):
            worker.failures += 1
            if task is StartupStep.LOAD and worker.failures < MAX_TRIES:
                self._wait_for_start(worker)
                return
            self._workers.remove(worker)
            self._ray.kill(worker.actor)
            if not self._workers:
                self._faults.append((0, NO_WORKERS))
            return
        self._release(worker, task)
        if generation == worker.generation:  # the first notice of this death
            self._job.statistics.restarts += 1
            self._wait_for_start(worker)
        if task.suspect and task.tries + 1 == MAX_TRIES:
            (position,), files = task.positions, self._job.files
            self._faults.append((position, poison_image_message(files.images[position], files.root)))
            return
        tries = task.tries + 1 if task.suspect else 0
        self._suspects.extend(WorkUnit([position], True, tries) for position in task.positions)


def mismatch_message(worker: Description, expected: dict[str, Any]) -> str:
    """Return the error message for a worker with another fingerprint than the driver."""
    found = worker.fingerprint
    keys = [key for key in sorted(expected.keys() | found.keys()) if expected.get(key) != found.get(key)]
    driver, other = (", ".join(f"{key} {each.get(key)}" for key in keys) for each in (expected, found))
    return (
        f"worker {worker.process} would compute different rows: it has {other}, but the driver has {driver}; "
        "install the same versions and use the same weights on all nodes"
    )


def poison_image_message(image: Image, root: Path) -> str:
    """Return the error message for an image that has killed every worker that computed it."""
    return (
        f"{root / image.path}: image {image.id!r} killed its worker {MAX_TRIES} times, possibly because "
        "memory ran out; finished rows are kept; replace the file or remove it from the data set, and run "
        "`dvc repro`"
    )
