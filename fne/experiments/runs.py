"""Finished runs of a DVC project: those of the work tree and of its experiments.

The settings of a run are the effective ones that its stage `check` wrote (`metrics/settings.json`), which Git
keeps for every experiment, whatever `params.yaml` or the code say now. What Git does not keep (the number of
images per split, the weights) comes from the artifacts of the run, found in the DVC cache by their hash.
Nothing is fetched from a remote: what is not on this machine is reported as unknown.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import numpy as np

from fne.core.code import CODE
from fne.core.dvc import (
    LOCK,
    Read,
    Stage,
    bytes_md5,
    cache_object,
    experiment_commits,
    has_git,
    open_repo,
    pipeline_files,
    read_listing,
    read_stages,
    revision_files,
)
from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.core.settings import flattened, not_one_of, parse_yaml
from fne.core.terminal import say
from fne.evaluation.baseline import baseline_of, parse_baseline
from fne.evaluation.ranks_file import RANKS as RANKS_LAYOUT
from fne.experiments.effective_settings import (
    DEFAULT,
    PARAMS,
    PIPELINES,
    SECTIONS,
    Settings,
    pipeline_of_section,
    pipeline_params,
    settings_file,
    settings_of,
)
from fne.store.arrays import Arrays, read_arrays
from fne.store.catalog import SPLITS, Captioned, read_captions
from fne.store.checksums import parse_metrics, parse_settings

WORKSPACE = "workspace"
METRICS = "metrics/retrieval.json"
RANKS = "metrics/ranks.h5"
IMPORTED, TUNED = "imported", "tuned"
BASELINE = "metrics/baseline.json"
TRAINING = "metrics/training.json"
TUNING = "metrics/tuning.json"
CAPTIONS = "data/captions.jsonl"
IMAGES = "data/images.jsonl"
HISTORY = "models/history"
FLICKR_PHOTO = re.compile(r"(\d+)(_[0-9a-z]+)*")
# The layout of the metrics file.
DIRECTIONS = ("image_to_text", "text_to_image")
METRIC_KEYS = ("R@1", "R@5", "R@10", "median_rank")
RECALL_POSITIONS = (0, 1, 2, 4, 5, 6)  # in `Numbers`
# The sections of params.yaml that decide a result. The others are about speed, the report and the images of
# the demo; the hash of the catalog distinguishes the latter.
RESULT_SECTIONS = ("catalog", "extract", "embed", "tokenize", "train", "finetune", "evaluate")

# What reading a metrics file raises that does not have the layout of this pipeline.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

Found = TypeVar("Found")

Numbers = tuple[float | None, ...]  # the metrics of both directions; None for one that is not known
Counts = dict[str, tuple[int, int]]  # split: images, captions


@dataclass(frozen=True)
class Results:
    """Where the results of an evaluation are."""

    metrics: str
    ranks: str
    pipeline: str
    stage: str = ""  # its name; empty for a stage with the name of its section
    sections: tuple[str, ...] = ()  # those that decide; none: all


RESULTS = Results(METRICS, RANKS, DEFAULT)
# Further results of a run, by what stands behind its name, such as `NAME:tuned`.
VARIANTS = {
    TUNED: Results("metrics/tuned.json", "metrics/tuned_ranks.h5", "finetuning", "evaluate_tuned"),
    IMPORTED: Results(
        "metrics/imported.json",
        "metrics/imported_ranks.h5",
        IMPORTED,
        "evaluate_imported",
        ("catalog", IMPORTED, "evaluate"),
    ),
}
# The results of tuned taggers and captioners, which belong to `NAME:tuned`, too.
TUNED_DESCRIPTIONS = (
    Results("metrics/tuned_tags.json", "", "tuned_tagging"),
    Results("metrics/tuned_captions.json", "", "tuned_captioning"),
)


@dataclass(frozen=True)
class Result:
    """The metrics of one split under one protocol; None for a metric that was not computed."""

    split: str
    protocol: str
    numbers: Numbers
    images: int
    captions: int
    chance: float  # the sum of recalls by chance


@dataclass(frozen=True)
class Run:
    """One run of the pipeline up to its evaluation; None for what is not known."""

    name: str
    settings: Settings
    results: list[Result]
    started: bool | None
    hashes: dict[str, str]  # path: hash in dvc.lock
    ranks: Arrays | None
    counts: Counts | None
    split_digests: dict[str, str] | None = None  # split: which images it has
    baseline: float | None = None  # the sum of recalls of the closed form with the same features and split
    validation: float | None = None  # the sum of validation recalls of the kept weights, which chooses
    given: frozenset[str] = frozenset()  # the keys that its parameter files said, with their sections

    @property
    def is_below_baseline(self) -> bool:
        """Whether a trained model has a lower sum of recalls than the closed form."""
        by_steps = self.settings.get("train", {}).get("method", "steps") == "steps"
        if self.baseline is None or not by_steps:
            return False
        own = sum_of_recalls(self.results[0].numbers) if self.results else None
        return own is not None and own < self.baseline

    @property
    def seed(self) -> int | None:
        """The seed of the training."""
        return self.settings.get("train", {}).get("seed")

    @property
    def experiment(self) -> str:
        """A key that is equal for runs that differ only in the seed of the training."""
        sections = {name: dict(self.settings.get(name, {})) for name in (*RESULT_SECTIONS, IMPORTED)}
        sections["train"].pop("seed", None)
        # A path does not identify the content of a file: the hashes of these inputs do.
        inputs = [CAPTIONS, sections["extract"].get("weights", ""), sections["embed"].get("source", "")]
        inputs += sections[IMPORTED].values()
        return json.dumps([sections, [self.hashes.get(path) for path in inputs]], sort_keys=True)


def tuned_path(path: str) -> str:
    """Return where a tuned tagger or captioner has what the one before it has at a path."""
    place = PurePosixPath(path)
    return str(place.with_name(f"{TUNED}_{place.name}"))


def is_tuned(settings: Settings) -> bool:
    """Return whether the image network of a run was fine-tuned."""
    return bool(settings.get("finetune"))


@dataclass(frozen=True)
class DescribedRun:
    """One run of a pipeline that describes images."""

    name: str
    section: str  # the section of `params.yaml` that trained the model
    settings: Settings
    results: dict[str, Any]  # the metrics of its split, by name or by the kind of answer
    catalog: str | None  # DVC's hash of the catalog, if it is recorded

    @property
    def seed(self) -> int | None:
        """The seed of the training."""
        return self.settings.get(self.section, {}).get("seed")

    @property
    def experiment(self) -> str:
        """A key that is equal for runs that differ only in the seed of the training."""
        own = {key: value for key, value in self.settings.get(self.section, {}).items() if key != "seed"}
        image = {name: self.settings.get(name, {}) for name in ("catalog", "extract", "embed")}
        return json.dumps([own, image, self.catalog, self.tuning], sort_keys=True)

    @property
    def tuning(self) -> dict[str, Any]:
        """How the image network was tuned together with the model; empty if it was not."""
        return self.settings.get(self.section.replace("train", "tune"), {})


class RecordedRuns:
    """A DVC project, opened from any folder inside it; without Git it has no experiments."""

    def __init__(self, repo: Any) -> None:
        self._repo = repo
        self._has_git = has_git(repo)
        self.root = Path(self._repo.root_dir)
        self._splits: dict[str, tuple[Counts | None, dict[str, str] | None]] = {}

    def runs(self) -> Iterator[Run]:
        """Yield the run of the work tree, if there is one, and all experiments with an evaluation.

        An experiment that fine-tuned the image network has a second run, `NAME:tuned`. `NAME:imported` is
        that of imported vectors.
        """
        for name in (WORKSPACE, *self.experiments):
            for each in (name, *(f"{name}:{variant}" for variant in VARIANTS)):
                found = self._read(each)
                if found:
                    yield found

    @cached_property
    def experiments(self) -> dict[str, str]:
        """The commits of all experiments by name, sorted by name.

        Where experiments of different commits share a name, the commit follows it: `name@1234567`.
        """
        found = experiment_commits(self._repo) if self._has_git else []
        counts = Counter(name for name, _, _ in found)
        return {
            name if counts[name] == 1 else f"{name}@{baseline[:7]}": commit
            for name, baseline, commit in found
        }

    def queued(self) -> list[Settings]:
        """Return the parameters of the queued experiments and of those that run from the queue."""
        if not self._has_git:
            return []
        queue = self._repo.experiments.celery_queue
        waiting = [entry.stash_rev for entry in (*queue.iter_queued(), *queue.iter_active())]
        found = []
        for revision in waiting:
            text, place = (
                self._file_reader(revision)(PARAMS),
                f"{PARAMS} of the queued experiment {revision[:7]}",
            )
            try:
                # They have not run: the code of today would compute them.
                found += [settings_of(parse_yaml(text, place), place)] if text is not None else []
            except InputError as error:
                say(f"left out: {error.message}", err=True)
        return found

    def run(self, name: str) -> Run:
        """Return the run of an experiment, of a revision, or of `WORKSPACE`; an error lists what there is.

        `NAME:tuned` names the results of the model with the fine-tuned image network, `NAME:imported` those
        of imported vectors. If only a tagger or captioner was tuned, `NAME:tuned` has the matching of `NAME`.
        """
        found = self._read(name) or self._with_tuned_descriptions(name)
        if found is None:
            metrics = _variant(name)[1].metrics
            raise InputError(f"'{name}' has no finished run ({metrics} and {LOCK}); {self._available_runs()}")
        return found

    def described_runs(self, metrics: str, section: str) -> Iterator[DescribedRun]:
        """Yield the work tree and all experiments that recorded a metrics file about descriptions.

        `NAME:tuned` is the run of the model that was tuned together with the image network.
        """
        pipeline = pipeline_of_section(section)
        fixed = Results(metrics, "", pipeline)
        tuned = Results(tuned_path(metrics), "", f"{TUNED}_{pipeline}")
        for name in (WORKSPACE, *self.experiments):
            read = self._file_reader(name)
            for each, which in ((name, fixed), (f"{name}:{TUNED}", tuned)):
                content = read(which.metrics)
                found = None if content is None else self._recorded(name, read, which)
                if content is None or found is None:
                    continue
                settings, _, hashes = found
                try:
                    results = next(iter(parse_metrics(content).values()))
                except (*UNREADABLE, StopIteration):
                    continue
                if isinstance(results, dict):
                    yield DescribedRun(each, section, settings, results, hashes.get(CAPTIONS))

    @property
    def _cache(self) -> Path:
        return Path(self._repo.cache.local.path)

    @cached_property
    def _pipelines(self) -> list[str]:
        """The pipeline files of the work tree; one that a commit does not have is skipped there."""
        return pipeline_files(self.root)

    def _available_runs(self) -> str:
        return f"available: {', '.join(run.name for run in self.runs()) or 'none'}"

    def _file_reader(self, name: str) -> Read:
        """Return a function that reads a file as it is in a run; it returns None if there is no such file."""
        if name == WORKSPACE:
            return lambda path: _read_or_none((self.root / path).open, "rb")
        revision = self.experiments.get(name, name)
        files = revision_files(self._repo, revision) if self._has_git else None
        if files is None:
            raise InputError(f"there is no experiment or revision '{name}'; {self._available_runs()}")
        below = self.root.relative_to(self._repo.scm.root_dir)
        return lambda path: _read_or_none(files.open, (below / path).as_posix(), mode="rb")

    def _read(self, name: str) -> Run | None:
        source, which = _variant(name)
        read = self._file_reader(source)
        metrics = read(which.metrics)
        if read(LOCK) is None or metrics is None:
            return None
        found = self._recorded(source, read, which)
        if found is None:
            return None
        settings, given, hashes = found
        if which.sections:  # nothing else in the lock file is about these results
            settings = {section: keys for section, keys in settings.items() if section in which.sections}
            own = {CAPTIONS, IMAGES, which.metrics, which.ranks, *map(str, settings[IMPORTED].values())}
            hashes = {path: digest for path, digest in hashes.items() if path in own}
        try:
            results, started = parse_results(metrics), parse_started(metrics)
        except UNREADABLE:
            return None
        if not results:
            return None
        ranks, (counts, digests) = self._ranks(which.ranks, hashes), self._split_facts(hashes)
        baseline = _baseline(read, hashes, results)
        validation = None if which.sections else _validation(read, settings, hashes)
        return Run(
            name, settings, results, started, hashes, ranks, counts, digests, baseline, validation, given
        )

    def _with_tuned_descriptions(self, name: str) -> Run | None:
        """Return a run under the name `NAME:tuned` if only its taggers or captioners were tuned."""
        source, which = _variant(name)
        found = self._read(source) if which == VARIANTS[TUNED] else None
        read = self._file_reader(source)
        describes = found and any(self._recorded(source, read, each) for each in TUNED_DESCRIPTIONS)
        return replace(found, name=name) if found and describes else None

    def _recorded(
        self, name: str, read: Read, which: Results
    ) -> tuple[Settings, frozenset[str], dict[str, str]] | None:
        """Return the settings of a run, which of them files say, and DVC's hashes; None if one is not known.

        In the work tree, metrics or settings may be older or newer than the lock: they are of another run.
        """
        stages = read_stages(self._pipelines, read, f"{name}: ")
        given, hashes = recorded(stages, which.stage, self._cache)
        # So they are if the model was trained anew after another pipeline had read it.
        if _current(read, which.metrics, hashes) is None or not given.keys() & PIPELINES[which.pipeline]:
            return None
        try:
            return (*_effective(read, which.pipeline, given, hashes), hashes)
        except InputError as error:
            say(f"{name} is left out: {error.message}", err=True)
            return None

    def _ranks(self, place: str, hashes: dict[str, str]) -> Arrays | None:
        path = self._artifact(place, hashes)
        return read_or_warn(lambda: read_arrays(path, RANKS_LAYOUT), place) if path else None

    def _split_facts(self, hashes: dict[str, str]) -> tuple[Counts | None, dict[str, str] | None]:
        captions = self._artifact(CAPTIONS, hashes)
        if captions is None:
            return None, None
        digest = hashes[CAPTIONS]
        if digest not in self._splits:
            found = read_or_warn(lambda: read_captions(captions)[0], CAPTIONS)
            self._splits[digest] = (split_counts(found), split_digests(found)) if found else (None, None)
        return self._splits[digest]

    def file(self, run: Run, path: str) -> Path | None:
        """Return the path of a file of a run, in the cache or in the work tree, or None."""
        return self._artifact(path, run.hashes)

    def link_folder(self, run: Run, path: str, target: Path) -> bool:
        """Make links to the files of a folder of a run below `target`; return whether the cache has them."""
        try:
            for name, md5 in read_listing(self._cache, run.hashes[path]).items():
                place, cached = target / name, cache_object(self._cache, md5)
                if not cached.is_file():
                    return False
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(cached.resolve())
        except (InputError, KeyError, OSError):
            return False
        return True

    def _artifact(self, path: str, hashes: dict[str, str]) -> Path | None:
        """Return the path of an artifact of a run, in the cache or in the work tree, or None."""
        digest = hashes.get(path)
        if digest is None:
            return None
        cached = Path(self._repo.cache.local.oid_to_path(digest))
        if cached.is_file():
            return cached
        in_work_tree = self.root / path
        if in_work_tree.is_file() and bytes_md5(in_work_tree.read_bytes()) == digest:
            return in_work_tree
        return None


def read_or_warn(read: Callable[[], Found], name: str) -> Found | None:
    """Return what `read` returns, or None after a warning if the file is damaged or of another version."""
    try:
        return read()
    except InputError as error:
        say(f"{name} of a run is left out: {error.message}", err=True)
        return None


@contextmanager
def open_runs(folder: Path) -> Iterator[RecordedRuns]:
    """Open the DVC project that a folder belongs to."""
    with open_repo(folder) as repo:
        yield RecordedRuns(repo)


def split_counts(captioned: Iterable[Captioned]) -> Counts:
    """Return the numbers of images and captions of each split that has images."""
    records = list(captioned)
    return {
        split: (len(found), sum(len(record.captions) for record in found))
        for split in SPLITS
        if (found := [record for record in records if record.split == split])
    }


def split_digests(captioned: Iterable[Captioned]) -> dict[str, str]:
    """Return which images each split has: the SHA-256 of their sorted names, joined by newlines.

    A name has no folder and no ending. Of Flickr's photos, such as `1000092795_4ebe0f40b3.jpg`, it is the
    number alone.
    """
    by_split: dict[str, list[str]] = {}
    for record in captioned:
        stem = PurePosixPath(record.id).stem
        photo = FLICKR_PHOTO.fullmatch(stem)
        by_split.setdefault(record.split, []).append(photo[1] if photo else stem)
    return {split: text_digest("\n".join(sorted(names))) for split, names in by_split.items()}


def parse_results(content: bytes) -> list[Result]:
    """Return the results of a metrics file, by split and protocol, such as `test_full`.

    Those without the name of a protocol are ignored, because it is not known how they were computed.
    """
    found = []
    for name, results in parse_metrics(content).items():
        split, _, protocol = name.partition("_")
        if not protocol:
            continue
        numbers = tuple(results[direction].get(key) for direction in DIRECTIONS for key in METRIC_KEYS)
        size = results["images"], results["captions"]
        found.append(Result(split, protocol, numbers, *size, results["chance"]))
    return found


def sum_of_recalls(numbers: Numbers) -> float | None:
    """Return the sum of the six recalls, or None if one is missing."""
    recalls = [numbers[position] for position in RECALL_POSITIONS]
    known = [recall for recall in recalls if recall is not None]
    return sum(known) if len(known) == len(recalls) else None


def captions_per_image(images: int, captions: int) -> np.ndarray:
    """Return how many captions each image has if they are spread evenly.

    Example:
        >>> captions_per_image(3, 7)
        array([3, 2, 2])
    """
    counts = np.full(images, captions // max(1, images))
    counts[: captions - int(counts.sum())] += 1
    return counts


def parse_started(content: bytes) -> bool | None:
    """Return whether training started to learn, or None if the metrics file does not record it."""
    recorded = [results["started"] for results in parse_metrics(content).values() if "started" in results]
    return bool(recorded[0]) if recorded else None


def _variant(name: str) -> tuple[str, Results]:
    """Return the run or revision of a name, and which of its results are meant."""
    source, colon, variant = name.partition(":")
    if colon and variant not in VARIANTS:
        raise InputError(f"'{name}': {not_one_of(variant, VARIANTS)}")
    return source, VARIANTS[variant] if colon else RESULTS


def recorded(
    stages: Iterable[Stage], last: str = "", cache: Path | None = None
) -> tuple[Settings, dict[str, str]]:
    """Return what lock files record of a run: parameters of files by section, and DVC's hash of each path.

    `cache` has the listings of folders, which tell whether a stage read another file than one of them has.
    Where two pipeline files disagree, the one in the root counts. What a stage read and another one has
    written anew since then is of another run, so such a stage does not count. `last` is the stage that made
    the result, whose settings count if another one has run with others.
    """
    settings: Settings = {}
    hashes: dict[str, str] = {}
    current = _without_stale(sorted(stages, key=lambda stage: ":" not in stage.address), cache)
    for stage in current:
        hashes |= stage.deps
    for stage in current:
        hashes |= stage.outs
        # A project without its own code records digests of it, which count as those of its stages do.
        code = {key.rpartition(".")[2]: value for key, value in stage.params.get(CODE, {}).items()}
        hashes |= {f"stages/{name}.py": digest for name, digest in code.items()}
    # What a section was is known best from the stage of its name: another one may have run earlier.
    listed = [
        (stage, key, value)
        for stage in current
        for file, values in stage.params.items()
        for key, value in values.items()
        if file == _file_of(key.partition(".")[0])
    ]

    def order(each: tuple[Stage, str, Any]) -> tuple[bool, bool]:
        name = _name(each[0])
        return name == last, name == each[1].partition(".")[0]

    for _, key, value in sorted(listed, key=order):
        # A stage lists entire sections, or single keys such as `train.seed`.
        section, _, name = key.partition(".")
        content = {name: value} if name else value
        settings.setdefault(section, {}).update(flattened(content) if isinstance(content, dict) else {})
    return settings, hashes


def as_list(value: Any) -> Any:
    """Return a value as it is compared: of a key per phase, one value is a list of one."""
    return value if isinstance(value, list) else [value]


def _without_stale(stages: Sequence[Stage], cache: Path | None) -> list[Stage]:
    """Return the stages whose last run read what the others wrote last.

    `dvc exp run evaluate` does not run the stages behind it: what the lock file has of these is another run.
    """
    written = {path: digest for stage in stages for path, digest in stage.outs.items()}
    named = {path for stage in stages for path in stage.deps if path not in written}
    for folder in {str(each) for path in named for each in PurePosixPath(path).parents} & written.keys():
        with suppress(InputError):  # the cache does not have every listing
            listing = read_listing(cache, written[folder]) if cache else {}
            written |= {f"{folder}/{name}": digest for name, digest in listing.items()}
    return [
        stage
        for stage in stages
        if all(written.get(path, digest) == digest for path, digest in stage.deps.items())
    ]


def _file_of(section: str) -> str | None:
    """Return the parameter file of a section; what other files say, which a pipeline may read, is none."""
    return pipeline_params(pipeline_of_section(section)) if section in SECTIONS else None


def _name(stage: Stage) -> str:
    return stage.address.rpartition(":")[2]


def _read_or_none(open_file: Callable[..., Any], *arguments: Any, **options: Any) -> bytes | None:
    try:
        with open_file(*arguments, **options) as file:
            content: bytes = file.read()
            return content
    except FileNotFoundError:
        return None


def _current(read: Read, path: str, hashes: Mapping[str, str]) -> bytes | None:
    """Return the content of a file of a run, or None if it is not the one that the lock records."""
    content = read(path)
    return None if content is None or bytes_md5(content) != hashes.get(path) else content


def _effective(
    read: Read, pipeline: str, given: Settings, hashes: Mapping[str, str]
) -> tuple[Settings, frozenset[str]]:
    """Return the settings of a run, which lock files must not contradict, and which of them files say."""
    settings: Settings = {}
    said: set[str] = set()
    # A tuned tagger or captioner starts from that of another pipeline.
    before = pipeline.removeprefix(f"{TUNED}_")
    for file in dict.fromkeys(map(settings_file, (DEFAULT, before, pipeline))):
        content = _current(read, file, hashes)
        if content is None:
            raise InputError(f"its {file} is not what {LOCK} records; run `dvc repro`")
        try:
            made, by_files = parse_settings(content)
        except ValueError as error:
            raise InputError(f"{file}: damaged ({error}); run `dvc repro --force check`") from None
        settings |= made
        said |= by_files
    for section, keys in given.items():
        for key, value in keys.items():
            found = settings.get(section, {}).get(key, value)
            if as_list(found) != as_list(value):
                raise InputError(
                    f"it was made with {section}.{key} = {value!r}, but its settings have {found!r}; "
                    "run `dvc repro`"
                )
    return settings, frozenset(said)


def _validation(read: Read, settings: Settings, hashes: dict[str, str]) -> float | None:
    """Return the sum of validation recalls of a run, of its tuned model if it has one, if it is recorded."""
    content = _current(read, TUNING if is_tuned(settings) else TRAINING, hashes)
    try:
        return float(parse_metrics(content)["validation"]["rsum"]) if content else None
    except UNREADABLE:
        return None


def _baseline(read: Read, hashes: dict[str, str], results: list[Result]) -> float | None:
    """Return the baseline of a run's first result, if the run recorded one."""
    content, name = _current(read, BASELINE, hashes), f"{results[0].split}_{results[0].protocol}"
    try:
        return baseline_of(parse_baseline(content, BASELINE), name).rsum if content else None
    except InputError:
        return None
