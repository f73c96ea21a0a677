import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.extraction.computer import ComputedRows, Job
from fne.extraction.ray import driver
from fne.extraction.ray.cluster import Allocation
from fne.extraction.ray.driver import MAX_TRIES, UNITS_PER_WORKER, RayDriver, open_ray
from fne.extraction.ray.worker import Description, WorkerResult, fingerprint
from fne.extraction.read_images import ImageFiles
from fne.store.catalog import Image
from tests.support.extraction import computed, red_extractor
from tests.support.ray import CallRecorder, clean_environment
from tests.support.refusals import refused
from tests.support.settings import extract_settings, runtime

SETTINGS = extract_settings()
EXTRACTOR = red_extractor()

pytestmark = pytest.mark.usefixtures(clean_environment.__name__)


class LostError(Exception):
    """What `FakeRay` raises for a lost worker."""


class TaskError(LostError):
    """What `FakeRay` raises for an exception in a worker."""


class FakeRay:
    """Returns results in random order; a worker that raises `LostError` loses all its units and is restarted."""

    exceptions = SimpleNamespace(RayError=LostError, RayTaskError=TaskError)

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.actors: list[Actor] = []
        self.killed: list[Actor] = []
        self.waits: list[int] = []

    def remote(self, worker):
        self.worker = worker
        return self

    def options(self, **options):
        self.requested = options
        return SimpleNamespace(remote=self._start)

    def _start(self, *arguments):
        self.actors.append(Actor(lambda: self.worker(*arguments)))
        return self.actors[-1]

    def wait(self, asked, num_returns, timeout):
        self.waits.append(len(asked))
        if num_returns == len(asked) and timeout == 0:
            return [each for each in asked if self.rng.random() < 0.5], []
        return [self.rng.choice(asked)], []

    def get(self, call):
        return call.actor.result(call)

    def kill(self, actor):
        self.killed.append(actor)


class Actor:
    def __init__(self, start) -> None:
        self.start, self.worker, self.lost = start, start(), set()
        self.waiting: list[Call] = []
        self.deaths = 0

    @property
    def ping(self):
        return SimpleNamespace(options=lambda max_task_retries: Method(self, "ping"))

    @property
    def describe(self):
        return Method(self, "describe")

    @property
    def compute(self):
        return Method(self, "compute")

    def result(self, call):
        self.waiting.remove(call)
        if call in self.lost:
            raise LostError
        try:
            return getattr(self.worker, call.method)(*call.arguments)
        except TaskError:
            raise
        except LostError:
            self.deaths += 1
            self.worker = self.start()
            self.lost |= set(self.waiting)
            raise


class Method:
    def __init__(self, actor: Actor, name: str) -> None:
        self.actor, self.name = actor, name

    def remote(self, *arguments):
        call = Call(self.actor, self.name, arguments)
        self.actor.waiting.append(call)
        return call


class Call:
    def __init__(self, actor, method, arguments) -> None:
        self.actor, self.method, self.arguments = actor, method, arguments


class FakeWorker:
    """A worker whose rows are the numbers of the images."""

    started = 0
    kind = EXTRACTOR.kind

    def __init__(self, settings, runtime, root, folder) -> None:
        FakeWorker.started += 1
        self.process = f"node:{FakeWorker.started}"

    def ping(self):
        pass

    def describe(self):
        return Description(self.process, fingerprint(self.kind))

    def compute(self, images):
        return WorkerResult(
            np.array([[int(image.id)] * 2 for image in images], dtype=np.float32), "EPYC", 0.5
        )


def started(ray: FakeRay, images: int = 20, workers: int = 3, batch: int = 4, worker=FakeWorker, log=print):
    """Return a driver whose fake workers have started, and its job."""
    catalog = [Image(str(number), f"{number}.png", "0" * 64, 1, 1, 1) for number in range(images)]
    job = Job(ImageFiles(catalog, Path("root"), EXTRACTOR.resize), EXTRACTOR, images)
    ray_driver = RayDriver(ray, SETTINGS, runtime(batch=batch), Allocation(workers, 1, 2, 0), log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "Worker", worker)
        ray_driver._start_workers(job)
    return ray_driver, job


def run(*arguments, **options):
    """Return a generator of what the driver computes with fake workers, and the job."""
    ray_driver, job = started(*arguments, **options)
    return computed(ray_driver, job, range(job.todo)), job


def finished(done: list[ComputedRows]) -> list[int]:
    for each in done:
        assert each.rows[:, 0].tolist() == each.positions
        assert each.hardware == "EPYC"
    return sorted(position for each in done for position in each.positions)


def opened(monkeypatch, ray: CallRecorder):
    monkeypatch.setitem(sys.modules, "ray", ray)
    logged: list[str] = []
    with open_ray(SETTINGS, runtime(), logged.append) as engine:
        return engine, logged


def test_the_engine_has_the_device_of_the_workers_and_logs_their_resources(monkeypatch):
    engine, logged = opened(monkeypatch, CallRecorder())
    assert (engine.device, engine.remote) == (torch.device("cpu"), True)
    assert logged == ["Ray cluster on this machine: 2 workers on 1 node, each with 1 CPU"]
    nodes = [{"Alive": True, "Resources": {"CPU": 8.0, "GPU": 1.0}}]
    engine, _ = opened(monkeypatch, CallRecorder(nodes=nodes))
    assert (engine.device, engine.remote) == (torch.device("cuda"), True)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("workers", "batch"), [(1, 1), (3, 4), (20, 16)])
def test_every_image_is_computed_once_in_any_order(seed, workers, batch):
    computing, job = run(FakeRay(seed), workers=workers, batch=batch)
    assert finished(list(computing)) == list(range(20))
    assert job.statistics.restarts == 0


def test_workers_get_their_resources_are_restarted_and_are_no_more_than_work_units():
    ray = FakeRay()
    computing, job = run(ray, images=5, workers=100, batch=4)
    list(computing)
    resources = {"num_cpus": 2, "num_gpus": 0, "max_restarts": -1, "max_concurrency": UNITS_PER_WORKER}
    assert ray.requested == resources
    assert len(ray.actors) == 2
    assert job.statistics.workers <= 2


def test_few_units_are_pending_at_a_time():
    computing, _ = run(ray := FakeRay(), images=200, workers=3, batch=4)
    assert len(list(computing)) == 50
    assert max(ray.waits) <= 3 * UNITS_PER_WORKER


def test_images_are_claimed_as_late_as_possible():
    taken: list[int] = []
    ray_driver, job = started(FakeRay(), images=100, workers=2)
    computing = computed(ray_driver, job, (taken.append(number) or number for number in range(100)))
    for _ in range(3):
        next(computing)
    assert len(taken) <= (3 + 2 * UNITS_PER_WORKER) * 4
    computing.close()


def dying_at(images: set[str], times: int):
    """Return a worker class that dies of each of these images, the given number of times in all."""
    deaths: Counter[str] = Counter()

    class Dying(FakeWorker):
        def compute(self, asked):
            for image in asked:
                if image.id in images and deaths[image.id] < times:
                    deaths[image.id] += 1
                    raise LostError
            return super().compute(asked)

    return Dying, deaths


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("workers", [1, 3])
def test_only_the_units_of_a_lost_worker_are_computed_again(seed, workers):
    worker, _ = dying_at({"7", "12"}, times=1)
    computing, job = run(FakeRay(seed), workers=workers, worker=worker)
    assert finished(list(computing)) == list(range(20))
    assert 1 <= job.statistics.restarts <= 2


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("workers", [1, 3])
def test_an_image_that_kills_its_workers_is_reported_after_some_tries(seed, workers):
    worker, deaths = dying_at({"13"}, times=10**6)
    computing, _ = run(FakeRay(seed), workers=workers, worker=worker)
    done = []
    with refused(
        "root/13.png: image '13' killed its worker 3 times", "; replace the file or remove it from the data"
    ):
        done.extend(computing)
    assert MAX_TRIES <= deaths["13"] <= MAX_TRIES + 1
    # The other images of its unit are not blamed, and started units are finished.
    assert {12, 14, 15} <= set(finished(done))


def test_a_suspect_is_computed_alone():
    together: list[list[str]] = []

    class Watching(dying_at({"3"}, times=2)[0]):
        def compute(self, asked):
            together.append([image.id for image in asked])
            return super().compute(asked)

    computing, _ = run(FakeRay(), workers=1, worker=Watching)
    assert finished(list(computing)) == list(range(20))
    assert ["3"] in together


def test_a_worker_that_never_starts_is_removed_and_the_others_continue():
    class Hopeless(FakeWorker):
        def __init__(self, *arguments) -> None:
            super().__init__(*arguments)
            self.hopeless = len(ray.actors) in (1, 3)  # the second of three, also after a restart

        def describe(self):
            if self.hopeless:
                raise LostError
            return super().describe()

    ray = FakeRay()
    computing, job = run(ray, images=200, worker=Hopeless)
    assert finished(list(computing)) == list(range(200))
    assert (ray.killed, job.statistics.workers) == ([ray.actors[1]], 2)
    assert ray.actors[1].deaths == MAX_TRIES


def test_a_worker_that_starts_at_the_second_try_is_used():
    class Late(FakeWorker):
        def describe(self):
            if self.process == first:
                raise LostError
            return super().describe()

    first = f"node:{FakeWorker.started + 1}"
    ray = FakeRay()
    computing, job = run(ray, workers=1, worker=Late)
    assert finished(list(computing)) == list(range(20))
    assert (ray.killed, job.statistics.restarts) == ([], 0)


class Hopeless(FakeWorker):
    def describe(self):
        raise LostError


class Other(FakeWorker):
    kind = EXTRACTOR.kind | {"weights": "91bc", "extractor": 7}


class Broken(FakeWorker):
    def describe(self):
        return "node a: weights.pth: no such weights file"


DIFFERENT = "would compute different rows: it has extractor 7, weights 91bc, but the driver has extractor None, weights"


@pytest.mark.parametrize(
    ("worker", "parts"),
    [
        (Hopeless, ["every worker on the Ray cluster was killed while it started"]),
        (Other, [DIFFERENT, "install the same versions and use the same weights on all nodes"]),
        (Broken, ["node a: weights.pth: no such weights file"]),
    ],
)
def test_workers_that_do_not_start_or_would_compute_different_rows_are_refused(worker, parts):
    computing, _ = run(FakeRay(), worker=worker)
    with refused(*parts):
        list(computing)


@pytest.mark.parametrize("seed", range(5))
def test_a_fault_stops_the_run_and_started_units_are_finished(seed):
    class Faulty(FakeWorker):
        def compute(self, asked):
            faulty = [image.id for image in asked if image.id in ("9", "14")]
            return f"root/{faulty[0]}.png: has changed" if faulty else super().compute(asked)

    computing, _ = run(ray := FakeRay(seed), images=100, worker=Faulty)
    done = []
    with pytest.raises(InputError, match=r"^root/(9|14).png: has changed$"):
        done.extend(computing)
    assert len(finished(done)) < 100
    assert not [call for actor in ray.actors for call in actor.waiting if call.method == "compute"]


def test_a_programming_error_is_not_treated_as_a_lost_worker():
    class Wrong(FakeWorker):
        def compute(self, asked):
            raise TaskError("bug")

    computing, _ = run(FakeRay(), worker=Wrong)
    with pytest.raises(TaskError, match="bug"):
        list(computing)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_finished_rows_are_yielded_after_a_stop_signal(number, error):
    computing, _ = run(FakeRay(1), images=400)
    done = [next(computing) for _ in range(3)]
    os.kill(os.getpid(), number)
    with pytest.raises(error):
        done.extend(computing)
    assert 3 < len(done) <= 3 + 1 + 3 * UNITS_PER_WORKER
    finished(done)


def test_waiting_for_a_worker_is_logged_once(monkeypatch):
    monkeypatch.setattr(driver, "START_WARNING_SECONDS", -1.0)
    logged: list[str] = []
    polls = iter([[], [], []])

    class Full(FakeRay):
        def wait(self, asked, num_returns, timeout):
            empty = next(polls, None)
            return super().wait(asked, num_returns, timeout) if empty is None else (empty, [])

    computing, _ = run(Full(), log=logged.append)
    list(computing)
    assert logged == ["waiting for the Ray cluster to start a worker; `ray status` shows what is missing"]
