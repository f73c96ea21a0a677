"""A project's finished runs: the work tree's and those of DVC's experiments.

What a run was comes from its `dvc.lock`, which Git keeps for every experiment and which names
the parameters that were really used, whatever `params.yaml` says by now. What the lock does not
say (how many images each split has, which weights were used) comes from the run's
artifacts, found in DVC's cache by their hash. Nothing is fetched from a remote; what is not
there stays unknown, and is said to be.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.paper.lock import read_lock, read_yaml
from fne.paper.measured import measured, started
from fne.paper.runs import CAPTIONS, Counts, Run, Settings
from fne.store.arrays import Arrays, read_arrays
from fne.store.catalog import SPLITS, read_captions

WORKSPACE = "workspace"
LOCK = "dvc.lock"
PARAMS = "params.yaml"
METRICS = "metrics/retrieval.json"
RANKS = "metrics/ranks.h5"


class Project:
    """A folder with DVC, seen from any folder below its root; without Git, it has no experiments."""

    def __init__(self, folder: Path) -> None:
        from dvc.exceptions import NotDvcRepoError  # DVC takes a second to import
        from dvc.repo import Repo
        from dvc.scm import NoSCM, SCMError

        try:
            self._repo = Repo(str(folder))
            self._git = None if isinstance(self._repo.scm, NoSCM) else self._repo.scm
        except NotDvcRepoError:
            raise InputError(f"{folder}: not a DVC project; run this in the project's folder") from None
        except SCMError:
            raise InputError(
                f"{folder}: not in a Git repository; run `git init`, or `dvc config core.no_scm true`"
            ) from None
        self.root = Path(self._repo.root_dir)
        self._counts: dict[str, Counts] = {}

    def runs(self) -> Iterator[Run]:
        """Yield the work tree's run, if it has one, and all experiments that reached their evaluation."""
        for name in (WORKSPACE, *self.experiments):
            found = self._read(name, self._files(name))
            if found:
                yield found

    @cached_property
    def experiments(self) -> dict[str, str]:
        """The commits of all experiments by name, in the order of the names.

        Experiments that started from different commits may have one name; that commit then follows it.
        """
        from dvc.repo.experiments.utils import exp_refs

        if self._git is None:
            return {}
        # Not `experiments.ls`: it would wait for a pipeline that is running.
        refs = sorted(exp_refs(self._git), key=lambda info: (info.name, info.baseline_sha))
        times = Counter(info.name for info in refs)
        return {
            info.name if times[info.name] == 1 else f"{info.name}@{info.baseline_sha[:7]}": self._git.get_ref(
                str(info)
            )
            for info in refs
        }

    def queued(self) -> list[Settings]:
        """Return the parameters of the experiments that wait in DVC's queue or are running from it."""
        if self._git is None:
            return []
        queue = self._repo.experiments.celery_queue
        waiting = [entry.stash_rev for entry in (*queue.iter_queued(), *queue.iter_active())]
        texts = [self._files(revision)(PARAMS) for revision in waiting]
        return [read_yaml(text, PARAMS) for text in texts if text is not None]

    def run(self, name: str) -> Run:
        """Return one run: an experiment's by its name, a revision's, or the work tree's.

        Raises:
            InputError: if there is none, naming what there is.
        """
        found = self._read(name, self._files(name))
        if found is None:
            raise InputError(f"'{name}' has no finished run ({METRICS} and {LOCK}); {self._what_there_is()}")
        return found

    def _what_there_is(self) -> str:
        return f"there are: {', '.join(run.name for run in self.runs()) or 'none'}"

    def _files(self, name: str) -> Callable[[str], bytes | None]:
        """Return how to read a file that Git tracks, as it is in a run."""
        from dvc.scm import RevError, resolve_rev

        if name == WORKSPACE:
            return lambda path: _read_if_there((self.root / path).open, "rb")
        try:
            if self._git is None:
                raise RevError("without Git there are no revisions")
            files = self._git.get_fs(resolve_rev(self._git, self.experiments.get(name, name)))
            below = self.root.relative_to(self._git.root_dir)
        except RevError:
            raise InputError(
                f"there is no experiment or revision '{name}'; {self._what_there_is()}"
            ) from None
        return lambda path: _read_if_there(files.open, (below / path).as_posix(), mode="rb")

    def _read(self, name: str, read: Callable[[str], bytes | None]) -> Run | None:
        lock, metrics = read(LOCK), read(METRICS)
        if lock is None or metrics is None:
            return None
        settings, hashes = read_lock(lock, f"{name}: {LOCK}", PARAMS)
        # The work tree's metrics may be older or newer than its lock: then they are nobody's.
        if _md5(metrics) != hashes.get(METRICS):
            return None
        try:
            found, has_started = measured(metrics), started(metrics)
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
        ):  # laid out in another way: not our evaluation's
            return None
        if not found:
            return None
        ranks, counts = self._ranks(hashes), self._count(hashes)
        return Run(name, settings, found, has_started, hashes, ranks, counts)

    def _ranks(self, hashes: dict[str, str]) -> Arrays | None:
        path = self._artifact(RANKS, hashes)
        try:
            return read_arrays(path, "ranks") if path else None
        except InputError:  # of another version: it has not been read, so it is not known
            return None

    def _count(self, hashes: dict[str, str]) -> Counts | None:
        captions = self._artifact(CAPTIONS, hashes)
        if captions is None:
            return None
        digest = hashes[CAPTIONS]
        if digest not in self._counts:
            try:
                records, _ = read_captions(captions)
            except InputError:  # see `_ranks`
                return None
            self._counts[digest] = {
                split: (len(found), sum(len(record.captions) for record in found))
                for split in SPLITS
                if (found := [record for record in records if record.split == split])
            }
        return self._counts[digest]

    def _artifact(self, path: str, hashes: dict[str, str]) -> Path | None:
        """Return where an artifact of a run is on this disk, if it is."""
        digest = hashes.get(path)
        if digest is None:
            return None
        cached = Path(self._repo.cache.local.oid_to_path(digest))
        if cached.is_file():
            return cached
        here = self.root / path
        return here if here.is_file() and _md5(here.read_bytes()) == digest else None


@contextmanager
def opened(folder: Path) -> Iterator[Project]:
    """Open the project that a folder belongs to."""
    project = Project(folder)
    try:
        yield project
    finally:
        project._repo.close()


def _read_if_there(open_file: Callable[..., Any], *arguments: Any, **options: Any) -> bytes | None:
    try:
        with open_file(*arguments, **options) as file:
            content: bytes = file.read()
            return content
    except FileNotFoundError:
        return None


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
