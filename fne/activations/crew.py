"""Workers on Ray, and the work units that go to them and come back.

Each worker has at most two work units, one that it computes and one that it reads meanwhile:
so the driver holds few rows, however many images there are, and a worker's death costs
little. A unit is bound to no worker: what one has lost goes to the next that is
free, also when Ray finds no node any more to start the first again.

Which image of a lost unit was to blame, if any, nobody knows. So its images go through workers
that have nothing else to do, one at a time, and one that ends them again and again is named.
"""

import math
import time
from collections import deque
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from fne.activations.engines import Done, Job, Recipe, Say
from fne.activations.interruption import noting_interruption
from fne.activations.members import NO_WORKERS, TRIES, Member, Step, Unit, accusation, difference, units
from fne.activations.resources import Shares
from fne.activations.worker import Answer, Description, Worker, made_with
from fne.core.errors import InputError

# Units that a worker may have at once.
AHEAD = 2
# Between two looks at whether we are asked to stop.
LOOK_SECONDS = 0.2
# After which the user is told that no worker has started yet.
PATIENCE_SECONDS = 30.0


class Crew:
    """The workers of one run.

    Ray comes as an argument: it is optional, and this module can be read without it.
    """

    def __init__(self, ray: Any, recipe: Recipe, shares: Shares, say: Say) -> None:
        self._ray = ray
        self._recipe = recipe
        self._shares = shares
        self._say = say
        self._members: list[Member] = []
        self._under_way: dict[Any, tuple[Member, int, Unit | Step]] = {}  # with the worker's life
        self._suspects: deque[Unit] = deque()
        self._units: Iterator[Unit] = iter(())
        self._faults: list[tuple[int, str]] = []  # with the position of the image

    def compute(self, job: Job, positions: Iterator[int]) -> Generator[Done, None, None]:
        """Yield the rows of a job's images as workers finish them.

        When a fault is found, and when we are asked to stop, what is finished still comes.

        Raises:
            InputError: if an image or a worker is at fault.
        """
        self._units = units(positions, job.batch)
        self._muster(job)
        told_after = time.perf_counter() + PATIENCE_SECONDS
        with noting_interruption() as interruption:
            while self._hand_out(job):
                yield from self._collect(job, LOOK_SECONDS)
                if interruption.came:
                    yield from self._collect(job, 0)
                    interruption.follow()
                if any(member.ready for member in self._members):
                    told_after = time.perf_counter() + PATIENCE_SECONDS
                elif time.perf_counter() > told_after:
                    self._say(
                        "waiting for the Ray cluster to start a worker; `ray status` tells what it lacks"
                    )
                    told_after = math.inf
        now = time.perf_counter()
        job.effort.worker_seconds = sum(now - each.since for each in self._members if each.since)
        if self._faults:
            raise InputError(min(self._faults)[1])

    def _muster(self, job: Job) -> None:
        """Ask Ray for workers, unless that is done: no more than there are work units."""
        if self._members:
            return
        cpus, gpus = self._shares.cpus, self._shares.gpus
        # Ray starts a worker again as often as it dies; how often an image may cause that is our concern.
        worker = self._ray.remote(Worker).options(
            num_cpus=cpus, num_gpus=gpus, max_restarts=-1, max_concurrency=AHEAD
        )
        for _ in range(min(self._shares.workers, -(-job.todo // job.batch))):
            self._members.append(Member(worker.remote(self._recipe, job.files.root, Path.cwd())))
            self._await(self._members[-1])

    def _await(self, member: Member) -> None:
        """Wait until Ray has started the worker's process, however long that takes."""
        member.ready = False
        member.life += 1
        self._note(member, member.actor.wake.options(max_task_retries=-1).remote(), Step.START)

    def _note(self, member: Member, asked: Any, task: Unit | Step) -> None:
        self._under_way[asked] = (member, member.life, task)

    def _hand_out(self, job: Job) -> bool:
        """Give units to workers that have room; tell whether anything is still to come."""
        computing = any(isinstance(unit, Unit) for _, _, unit in self._under_way.values())
        if self._faults:
            return computing
        while member := self._next_member():
            unit = self._suspects.popleft() if self._suspects else next(self._units, None)
            if unit is None:
                return computing
            images = [job.files.images[position] for position in unit.positions]
            self._note(member, member.actor.compute.remote(images), unit)
            member.units += 1
            member.with_suspect = unit.suspect
            computing = True
        return True

    def _take_back(self, member: Member, unit: Unit) -> None:
        member.units -= 1
        # A unit of the worker's former life may be heard of late, when the suspect is there already.
        member.with_suspect = member.with_suspect and not unit.suspect

    def _next_member(self) -> Member | None:
        """Return the worker with most room, or None; a suspect has its worker to itself."""
        room = 1 if self._suspects else AHEAD
        free = [each for each in self._members if each.ready and each.units < room and not each.with_suspect]
        return min(free, key=lambda each: each.units, default=None)

    def _collect(self, job: Job, seconds: float) -> Iterator[Done]:
        """Wait for an answer, or with 0 seconds take all that are there, and yield finished rows."""
        asked = list(self._under_way)
        if not asked:
            return
        wanted = 1 if seconds else len(asked)
        for answered in self._ray.wait(asked, num_returns=wanted, timeout=seconds)[0]:
            member, life, unit = self._under_way.pop(answered)
            try:
                answer = self._ray.get(answered)
            except self._ray.exceptions.RayTaskError:  # an error of ours
                raise
            except self._ray.exceptions.RayError:
                self._lose(job, member, life, unit)
                continue
            if unit is Step.START:
                self._note(member, member.actor.describe.remote(), Step.LOAD)
                continue
            if unit is Step.LOAD:
                self._welcome(job, member, answer)
                continue
            self._take_back(member, unit)
            if isinstance(answer, Answer):
                job.effort.input_seconds += answer.waited / job.effort.workers
                yield Done(unit.positions, answer.rows, answer.processor)
            else:
                self._faults.append((unit.positions[0], answer))

    def _welcome(self, job: Job, member: Member, answer: Description | str) -> None:
        """Let a worker that has started take part, if it computes what we would compute."""
        if isinstance(answer, str):
            self._faults.append((0, answer))
            return
        ours = made_with(job.extractor.kind)
        if answer.made_with != ours:
            self._faults.append((0, difference(answer, ours)))
            return
        if not member.since:
            job.effort.workers += 1
            member.since = time.perf_counter()
        member.failures = 0
        member.ready = True

    def _lose(self, job: Job, member: Member, life: int, unit: Unit | Step) -> None:
        """Take a lost worker's unit back; a worker that dies again and again while it starts is given up."""
        if isinstance(unit, Step):
            member.failures += 1
            if unit is Step.LOAD and member.failures < TRIES:
                self._await(member)
                return
            self._members.remove(member)
            self._ray.kill(member.actor)
            if not self._members:
                self._faults.append((0, NO_WORKERS))
            return
        self._take_back(member, unit)
        if life == member.life:  # the first we hear of this death
            job.effort.restarts += 1
            self._await(member)
        if unit.suspect and unit.tries + 1 == TRIES:
            (position,) = unit.positions
            self._faults.append((position, accusation(job.files.images[position], job.files.root)))
            return
        tries = unit.tries + 1 if unit.suspect else 0
        self._suspects.extend(Unit([position], True, tries) for position in unit.positions)
