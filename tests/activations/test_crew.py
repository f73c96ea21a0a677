"""The crew, on a Ray that is played: what really happens on clusters is tested in `tests/system/test_ray.py`."""

import os
import random
import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fne.activations import crew
from fne.activations.crew import AHEAD, Crew
from fne.activations.engines import Done, Job, Recipe
from fne.activations.members import TRIES
from fne.activations.reading import ImageFiles
from fne.activations.resources import Shares
from fne.activations.worker import Answer, Description, made_with
from fne.core.errors import InputError
from fne.store.catalog import Image
from tests.activations.samples import red_extractor
from tests.core.test_runtime import runtime

EXTRACTOR = red_extractor()


class LostError(Exception):
    """What Ray raises for a lost worker."""


class OurError(LostError):
    """What Ray raises for an exception in a worker."""


class Ray:
    """Answers in a random order; a worker that raises `LostError` takes its other units along and starts again."""

    exceptions = SimpleNamespace(RayError=LostError, RayTaskError=OurError)

    def __init__(self, seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.actors: list[Actor] = []
        self.killed: list[Actor] = []
        self.waits: list[int] = []

    def remote(self, worker):
        self.worker = worker
        return self

    def options(self, **options):
        self.asked = options
        return SimpleNamespace(remote=self._start)

    def _start(self, *arguments):
        self.actors.append(Actor(lambda: self.worker(*arguments)))
        return self.actors[-1]

    def wait(self, asked, num_returns, timeout):
        self.waits.append(len(asked))
        if num_returns == len(asked) and timeout == 0:
            return [each for each in asked if self.chance.random() < 0.5], []
        return [self.chance.choice(asked)], []

    def get(self, call):
        return call.actor.answer(call)

    def kill(self, actor):
        self.killed.append(actor)


class Actor:
    def __init__(self, start) -> None:
        self.start, self.worker, self.lost = start, start(), set()
        self.waiting: list[Call] = []
        self.deaths = 0

    @property
    def wake(self):
        return SimpleNamespace(options=lambda max_task_retries: Method(self, "wake"))

    @property
    def describe(self):
        return Method(self, "describe")

    @property
    def compute(self):
        return Method(self, "compute")

    def answer(self, call):
        self.waiting.remove(call)
        if call in self.lost:
            raise LostError
        try:
            return getattr(self.worker, call.method)(*call.arguments)
        except OurError:
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


class Played:
    """A worker whose rows are the numbers of the images."""

    started = 0
    kind = EXTRACTOR.kind

    def __init__(self, recipe, root, folder) -> None:
        Played.started += 1
        self.process = f"node:{Played.started}"

    def wake(self):
        pass

    def describe(self):
        return Description(self.process, made_with(self.kind))

    def compute(self, images):
        return Answer(np.array([[int(image.id)] * 2 for image in images], dtype=np.float32), "EPYC", 0.5)


def run(
    ray: Ray, images: int = 20, workers: int = 3, batch: int = 4, worker=Played, say=print, monkeypatch=None
):
    """Return a generator of what a crew of played workers computes, and the job."""
    catalog = [Image(str(number), f"{number}.png", "0" * 64, 1, 1, 1) for number in range(images)]
    job = Job(ImageFiles(catalog, Path("root"), EXTRACTOR.resize), EXTRACTOR, batch, 0, images)
    recipe = Recipe(None, Path("weights"), runtime())
    played = Crew(ray, recipe, Shares(workers, 1, 2, 0), say)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew, "Worker", worker)
        played._muster(job)
    return played.compute(job, iter(range(images))), job


def finished(done: list[Done]) -> list[int]:
    for each in done:
        assert each.rows[:, 0].tolist() == each.positions
        assert each.processor == "EPYC"
    return sorted(position for each in done for position in each.positions)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("workers", "batch"), [(1, 1), (3, 4), (20, 16)])
def test_every_image_is_computed_once_in_any_order(seed, workers, batch):
    computing, job = run(Ray(seed), workers=workers, batch=batch)
    assert finished(list(computing)) == list(range(20))
    assert job.effort.restarts == 0


def test_workers_get_the_resources_of_their_share_and_are_started_again():
    run(ray := Ray())
    assert ray.asked == {"num_cpus": 2, "num_gpus": 0, "max_restarts": -1, "max_concurrency": AHEAD}


def test_there_are_no_more_workers_than_work_units():
    ray = Ray()
    computing, job = run(ray, images=5, workers=100, batch=4)
    list(computing)
    assert len(ray.actors) == 2
    assert job.effort.workers <= 2


def test_few_units_are_under_way_at_a_time():
    computing, _ = run(ray := Ray(), images=200, workers=3, batch=4)
    assert len(list(computing)) == 50
    assert max(ray.waits) <= 3 * AHEAD


def test_images_are_claimed_as_late_as_possible():
    taken: list[int] = []
    catalog = [Image(str(number), "", "0" * 64, 1, 1, 1) for number in range(100)]
    job = Job(ImageFiles(catalog, Path(), EXTRACTOR.resize), EXTRACTOR, 4, 0, 100)
    played = Crew(Ray(), Recipe(None, Path(), runtime()), Shares(2, 1, 1, 0), print)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew, "Worker", Played)
        played._muster(job)
    computing = played.compute(job, (taken.append(number) or number for number in range(100)))
    for _ in range(3):
        next(computing)
    assert len(taken) <= (3 + 2 * AHEAD) * 4
    computing.close()


def dying_at(images: set[str], times: int):
    """Return a worker that dies of some images, that many times in all."""
    deaths: Counter[str] = Counter()

    class Dying(Played):
        def compute(self, asked):
            for image in asked:
                if image.id in images and deaths[image.id] < times:
                    deaths[image.id] += 1
                    raise LostError
            return super().compute(asked)

    return Dying, deaths


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("workers", [1, 3])
def test_a_lost_worker_costs_its_units_and_nothing_else(seed, workers):
    worker, _ = dying_at({"7", "12"}, times=1)
    computing, job = run(Ray(seed), workers=workers, worker=worker)
    assert finished(list(computing)) == list(range(20))
    assert 1 <= job.effort.restarts <= 2


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("workers", [1, 3])
def test_an_image_that_ends_its_workers_is_named_after_some_tries(seed, workers):
    worker, deaths = dying_at({"13"}, times=10**6)
    computing, _ = run(Ray(seed), workers=workers, worker=worker)
    done = []
    with pytest.raises(InputError) as caught:
        for each in computing:
            done.append(each)
    assert caught.value.message == (
        "root/13.png: image '13' has ended its worker 3 times, computed alone, perhaps for lack of memory; what "
        "is finished is kept: replace the file or remove it from the data set, and run `dvc repro`"
    )
    assert TRIES <= deaths["13"] <= TRIES + 1
    # Those that were with it are not taken for it, and what had begun is finished.
    assert {12, 14, 15} <= set(finished(done))


def test_a_suspect_has_its_worker_to_itself():
    together: list[list[str]] = []

    class Watching(dying_at({"3"}, times=2)[0]):
        def compute(self, asked):
            together.append([image.id for image in asked])
            return super().compute(asked)

    computing, _ = run(Ray(), workers=1, worker=Watching)
    assert finished(list(computing)) == list(range(20))
    assert ["3"] in together


def test_a_worker_that_never_starts_is_given_up_and_the_others_go_on():
    class Hopeless(Played):
        def __init__(self, *arguments) -> None:
            super().__init__(*arguments)
            self.hopeless = len(ray.actors) in (1, 3)  # the second of three, and whenever it starts again

        def describe(self):
            if self.hopeless:
                raise LostError
            return super().describe()

    ray = Ray()
    computing, job = run(ray, images=200, worker=Hopeless)
    assert finished(list(computing)) == list(range(200))
    assert (ray.killed, job.effort.workers) == ([ray.actors[1]], 2)
    assert ray.actors[1].deaths == TRIES


def test_a_worker_that_starts_at_the_second_try_takes_part():
    class Late(Played):
        def describe(self):
            if self.process == first:
                raise LostError
            return super().describe()

    first = f"node:{Played.started + 1}"
    ray = Ray()
    computing, job = run(ray, workers=1, worker=Late)
    assert finished(list(computing)) == list(range(20))
    assert (ray.killed, job.effort.restarts) == ([], 0)


def test_when_no_worker_starts_that_is_said():
    class Hopeless(Played):
        def describe(self):
            raise LostError

    computing, _ = run(Ray(), worker=Hopeless)
    with pytest.raises(InputError, match="every worker on the Ray cluster was killed while it started"):
        list(computing)


def test_a_worker_that_would_compute_other_rows_is_refused_showing_both():
    class Other(Played):
        kind = EXTRACTOR.kind | {"weights": "91bc", "extractor": 7}

    computing, _ = run(Ray(), worker=Other)
    with pytest.raises(InputError) as caught:
        list(computing)
    assert caught.value.message.partition(" would")[2] == (
        " compute other rows: it has extractor 7, weights 91bc, but the driver has extractor None, weights None; "
        "install the same versions on all nodes, and let them see the same weights"
    )


def test_a_worker_that_cannot_start_says_why():
    class Faulty(Played):
        def describe(self):
            return "node a: weights.pth: no such weights file"

    computing, _ = run(Ray(), worker=Faulty)
    with pytest.raises(InputError, match="^node a: weights.pth: no such weights file$"):
        list(computing)


@pytest.mark.parametrize("seed", range(5))
def test_a_fault_stops_the_run_and_what_had_begun_is_finished(seed):
    class Faulty(Played):
        def compute(self, asked):
            faulty = [image.id for image in asked if image.id in ("9", "14")]
            return f"root/{faulty[0]}.png: has changed" if faulty else super().compute(asked)

    computing, _ = run(ray := Ray(seed), images=100, worker=Faulty)
    done = []
    with pytest.raises(InputError, match=r"^root/(9|14).png: has changed$"):
        for each in computing:
            done.append(each)
    assert len(finished(done)) < 100
    assert not [call for actor in ray.actors for call in actor.waiting if call.method == "compute"]


def test_an_error_of_ours_is_not_taken_for_a_lost_worker():
    class Wrong(Played):
        def compute(self, asked):
            raise OurError("bug")

    computing, _ = run(Ray(), worker=Wrong)
    with pytest.raises(OurError, match="bug"):
        list(computing)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_when_asked_to_stop_what_is_finished_still_comes(number, error):
    computing, _ = run(Ray(1), images=400)
    done = [next(computing) for _ in range(3)]
    os.kill(os.getpid(), number)
    with pytest.raises(error):
        for each in computing:
            done.append(each)
    assert 3 < len(done) <= 3 + 1 + 3 * AHEAD
    finished(done)


def test_waiting_for_a_place_is_said_once(monkeypatch):
    monkeypatch.setattr(crew, "PATIENCE_SECONDS", -1.0)
    said: list[str] = []
    polls = iter([[], [], []])

    class Full(Ray):
        def wait(self, asked, num_returns, timeout):
            empty = next(polls, None)
            return super().wait(asked, num_returns, timeout) if empty is None else (empty, [])

    computing, _ = run(Full(), say=said.append)
    list(computing)
    assert said == ["waiting for the Ray cluster to start a worker; `ray status` tells what it lacks"]
