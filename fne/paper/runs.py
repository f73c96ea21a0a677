"""Finished runs: the work tree's and those of DVC's experiments, as they were recorded.

What a run was comes from its `dvc.lock`, which Git keeps for every experiment and which names
the parameters that were really used, whatever `params.yaml` says by now. What the lock does not
say (how many images each split has, which weights were used) comes from the run's
artifacts, found in DVC's cache by their hash. Nothing is fetched from a remote; what is not
there stays unknown, and is said to be.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from fne.core.errors import InputError
from fne.paper.measured import Measured, measured, started
from fne.store.arrays import Arrays, read_arrays
from fne.store.catalog import SPLITS, read_captions

Settings = dict[str, dict[str, Any]]  # section: key: value
Counts = dict[str, tuple[int, int]]  # split: images, captions

# The sections of params.yaml that decide a result; the others are about speed, the report and the demo's
# pictures, which the catalog's hash tells apart.
DECIDING = ("catalog", "extract", "embed", "tokenize", "train", "evaluate")
WORKSPACE = "workspace"
LOCK = "dvc.lock"
PARAMS = "params.yaml"
METRICS = "metrics/retrieval.json"
RANKS = "metrics/ranks.h5"
CAPTIONS = "data/captions.jsonl"


@dataclass(frozen=True)
class Run:
    """One run of the pipeline, to its evaluation."""

    name: str
    settings: Settings
    measured: list[Measured]
    started: bool | None
    hashes: dict[str, str]  # artifact: DVC's hash of it
    ranks: Arrays | None
    counts: Counts | None

    @property
    def seed(self) -> int | None:
        """The seed of the training."""
        return self.settings.get("train", {}).get("seed")

    @property
    def kind(self) -> str:
        """What runs have in common that differ in the seed of the training alone."""
        sections = {name: dict(self.settings.get(name, {})) for name in DECIDING}
        sections["train"].pop("seed", None)
        data = {name: self.hashes.get(name) for name in (CAPTIONS, sections["extract"].get("weights", ""))}
        return json.dumps([sections, data], sort_keys=True)


class Project:
    """A Git repository with DVC, seen from any folder below its root."""

    def __init__(self, folder: Path) -> None:
        from dvc.exceptions import NotDvcRepoError  # DVC takes a second to import
        from dvc.repo import Repo

        try:
            self._repo = Repo(str(folder))
        except NotDvcRepoError:
            raise InputError(f"{folder}: not a DVC project; run this in the project's folder") from None
        self.root = Path(self._repo.root_dir)
        self._counts: dict[str, Counts] = {}

    def runs(self) -> Iterator[Run]:
        """Yield the work tree's run, if it has one, and all experiments that reached their evaluation."""
        for name in (WORKSPACE, *self.experiments()):
            found = self._read(name, self._files(name))
            if found:
                yield found

    def experiments(self) -> dict[str, str]:
        """Return the commits of all experiments by name, in the order of the names."""
        from dvc.repo.experiments.utils import exp_refs

        # Not `experiments.ls`: it would wait for a pipeline that is running.
        refs = sorted(exp_refs(self._repo.scm), key=lambda info: info.name)
        return {info.name: self._repo.scm.get_ref(str(info)) for info in refs}

    def queued(self) -> list[Settings]:
        """Return the parameters of the experiments that wait in DVC's queue or are running from it."""
        queue = self._repo.experiments.celery_queue
        waiting = [entry.stash_rev for entry in (*queue.iter_queued(), *queue.iter_active())]
        texts = [self._files(revision)(PARAMS) for revision in waiting]
        return [_yaml(text) for text in texts if text is not None]

    def run(self, name: str) -> Run:
        """Return one run: an experiment's by its name, a revision's, or the work tree's.

        Raises:
            InputError: if there is none, naming what there is.
        """
        found = self._read(name, self._files(name))
        if found is None:
            known = ", ".join([WORKSPACE, *self.experiments()])
            raise InputError(f"'{name}' has no finished run ({METRICS} and {LOCK}); there are: {known}")
        return found

    def _files(self, name: str) -> Callable[[str], bytes | None]:
        """Return how to read a file that Git tracks, as it is in a run."""
        from dvc.scm import RevError, resolve_rev

        if name == WORKSPACE:
            return lambda path: _read_if_there((self.root / path).open, "rb")
        revision = self.experiments().get(name, name)
        try:
            files = self._repo.scm.get_fs(resolve_rev(self._repo.scm, revision))
        except RevError:
            known = ", ".join([WORKSPACE, *self.experiments()])
            raise InputError(f"there is no experiment or revision '{name}'; there are: {known}") from None
        below = self.root.relative_to(self._repo.scm.root_dir)
        return lambda path: _read_if_there(files.open, (below / path).as_posix(), mode="rb")

    def _read(self, name: str, read: Callable[[str], bytes | None]) -> Run | None:
        lock, metrics = read(LOCK), read(METRICS)
        if lock is None or metrics is None:
            return None
        stages = _yaml(lock).get("stages", {})
        entries = [
            entry for stage in stages.values() for key in ("deps", "outs") for entry in stage.get(key, [])
        ]
        hashes = {entry["path"]: entry["md5"] for entry in entries if "md5" in entry}
        # The work tree's metrics may be older or newer than its lock: then they are nobody's.
        if _md5(metrics) != hashes.get(METRICS):
            return None
        recorded = [stage.get("params", {}).get(PARAMS, {}) for stage in stages.values()]
        settings = _sections({key: value for params in recorded for key, value in params.items()})
        return Run(
            name,
            settings,
            measured(metrics),
            started(metrics),
            hashes,
            self._ranks(hashes),
            self._count(hashes),
        )

    def _ranks(self, hashes: dict[str, str]) -> Arrays | None:
        path = self._artifact(RANKS, hashes)
        try:
            return read_arrays(path, "ranks") if path else None
        except InputError:  # of a newer version: it has not been read, so it is not known
            return None

    def _count(self, hashes: dict[str, str]) -> Counts | None:
        captions = self._artifact(CAPTIONS, hashes)
        if captions is None:
            return None
        digest = hashes[CAPTIONS]
        if digest not in self._counts:
            records, _ = read_captions(captions)
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


def _sections(params: dict[str, Any]) -> Settings:
    """Return recorded parameters by section; stages list whole sections, or keys such as `train.seed`."""
    settings: Settings = {}
    for key, value in params.items():
        section, _, name = key.partition(".")
        settings.setdefault(section, {}).update({name: value} if name else value)
    return settings


def _read_if_there(open_file: Callable[..., Any], *arguments: Any, **options: Any) -> bytes | None:
    try:
        with open_file(*arguments, **options) as file:
            content: bytes = file.read()
            return content
    except FileNotFoundError:
        return None


def _yaml(text: bytes) -> dict[str, Any]:
    content: dict[str, Any] = YAML(typ="safe", pure=True).load(text.decode()) or {}
    return content


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
