"""The experiments that a table of a paper still lacks: planned, estimated, queued in DVC, or run.

`fne table --dry` prints them, `--queue` puts them into DVC's queue, and `--run` runs them. A row is
missing if running its preset would fill it and no run belongs to it yet, by the rule of
`fne.papers.rule`. With parameters that keep results out of the paper's rows, nothing is missing: the
obstacle is shown instead. For results in rows of their own, which are also those of the demo, an
experiment counts as done if a recorded run has its settings and seed, with the data and the weights
that the parameter file names now.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from fne.cli.timing import (
    TIMING_KEYS,
    Estimate,
    Timing,
    Workload,
    estimate,
    format_hours,
    time_training,
    time_tuning,
    tuning_hours,
)
from fne.core.device import prepare_device, use_training_threads
from fne.core.errors import InputError
from fne.core.files import file_digest
from fne.core.moved_keys import flattened, put
from fne.core.params import load_params, load_runtime, load_section, not_one_of, parse_section
from fne.core.progress import tracked
from fne.core.signals import explain_interrupt
from fne.core.terminal import say
from fne.datasets.catalog import Catalog, resolve_splits
from fne.datasets.demo.dataset import Render
from fne.datasets.location import NONE, dataset_root
from fne.datasets.readers import read_dataset
from fne.extraction.weights import DESCRIPTION, Description, File, Torchvision, parse_weights
from fne.features.embed import EXTRACTED
from fne.features.embeddings import ONE_LAYER
from fne.papers.presets import DEMO, FNE, Overrides, Preset, arguments, load, preset, split_address
from fne.papers.rule import DEMO_ROOT, EXTRACT, find_methods, has_images_of, matches_preset
from fne.papers.runs import Run, Settings, open_project, split_counts, split_digests
from fne.papers.tables import STARTS, load_table, rows, starts
from fne.store.catalog import Captioned
from fne.tasks.finetuning.settings import Finetune
from fne.tasks.matching.settings import Train

# The sections that an experiment takes unchanged from params.yaml: the data, and the activations.
DATA_SECTIONS = ("catalog", "extract")
IGNORED_KEYS = {("extract", "shards")}  # the number of shards does not affect results
# Columns of the embeddings that presets name, by kind, or by layer where they keep only some.
FEATURES = {"fne": 12416, "fc7": 4096, "conv5_2_2": 512, "pool5": 2048}
DEMO_WORDS = 100
OWN_ROWS = "with --own-rows, its methods are run for rows of their own"
STDERR = 2


@dataclass(frozen=True)
class PlannedExperiment:
    """An experiment to be run."""

    preset: Preset
    seed: int

    @property
    def title(self) -> str:
        """The name of the experiment."""
        return f"{self.preset.name}, seed {self.seed}"

    def command(self, how: str = "--queue") -> list[str]:
        """Return the arguments of the command that queues it in DVC, or runs it in another way."""
        overrides = self.preset.overrides | {"train.seed": self.seed}
        return ["dvc", "exp", "run", how, *arguments(overrides)]

    def shell_command(self) -> str:
        """Return the command that queues it, quoted for a shell."""
        return shlex.join(self.command())


@dataclass(frozen=True)
class Plan:
    """The missing experiments of a table, how long each takes, and why none of its rows can be filled.

    Without timing, `cost` is empty.
    """

    experiments: list[PlannedExperiment]
    cost: list[Estimate]
    obstacle: str | None = None


def plan_missing(
    address: str,
    dataset: str | None,
    following: str,
    seeds: int,
    only: Sequence[str],
    params: Path,
    strict: bool,
    own_rows: bool = False,
    timed: bool = True,
) -> Plan:
    """Return the missing experiments of a table, and how long each would take.

    Experiments in DVC's queue are not missing. With parameters of another data set, or with which no row
    of the paper can be filled, none is missing or, if `strict`, it is an error.

    Args:
        address: of the table.
        dataset: `demo`, or None for the data set of the table.
        following: as for `fne.papers.presets.preset`.
        seeds: the number of runs per method.
        only: the methods to plan; empty: all of the table.
        params: the parameter file.
        strict: whether experiments are going to be run.
        own_rows: whether to plan experiments whose results get rows of their own.
        timed: whether to time an epoch of each, which takes up to a minute.
    """
    chosen, paper = dataset or load_table(address)["dataset"], split_address(address)[0]
    settings = load_params(params)
    experiments = plan(address, chosen, following, seeds, only, own_rows)
    fault = data_set_fault(chosen, settings, paper)
    if fault and strict:
        raise InputError(fault)
    if fault:
        say(f"Warning: {fault}", err=True)
    obstacle = fault if fault or own_rows else row_obstacle(experiments[0].preset, settings)
    if obstacle and not own_rows:
        if strict:
            raise InputError(f"{obstacle}; {OWN_ROWS}")
        return Plan([], [], obstacle)
    with open_project(Path()) as project:
        runs, queued = list(project.runs()), project.queued()
    if own_rows or chosen == DEMO:
        unfinished = find_missing(experiments, [run.settings for run in runs], settings)
    else:
        unfinished = find_unfilled(experiments, runs, chosen, paper)
    missing = find_missing(unfinished, queued, settings)
    if len(missing) < len(unfinished):
        count = len(unfinished) - len(missing)
        say(f"in DVC's queue: {count} more; `dvc queue start` runs them", err=True)
    return Plan(missing, estimate_all(missing, params) if timed else [])


def plan(
    address: str, dataset: str, following: str, seeds: int, only: Sequence[str] = (), own_rows: bool = False
) -> list[PlannedExperiment]:
    """Return all experiments of a table, or only those of some of its methods.

    With `own_rows`, methods of the FNE paper take the section `extract` as `params.yaml` has it.

    Raises:
        InputError: if a method is not in the table.
    """
    methods = runnable_methods(address)
    for name in only:
        if name not in methods:
            raise InputError(f"Table {address}: {not_one_of(name, methods)}")
    chosen = [preset(name, dataset, following) for name in methods if not only or name in only]
    if own_rows and split_address(address)[0] == FNE:
        chosen = [replace(each, overrides=_without_extraction(each.overrides)) for each in chosen]
    scoring = load_table(address).get("scoring", {})  # what is scored, where that is not the preset's
    chosen = [replace(each, overrides=each.overrides | scoring) for each in chosen]
    return [PlannedExperiment(each, seed) for each in chosen for seed in range(seeds)]


def runnable_methods(address: str) -> list[str]:
    """Return the methods of a table that this project implements."""
    if address == STARTS:
        return [row.model for row in starts()]
    return [row.method for row in rows(address) if row.is_paper_method]


def find_missing(
    experiments: Iterable[PlannedExperiment], known: Iterable[Settings], params: Settings
) -> list[PlannedExperiment]:
    """Return the experiments without `known` settings that have the data and weights of `params`."""
    candidates = list(known)
    return [
        each
        for each in experiments
        if not any(
            settings.get("train", {}).get("seed") == each.seed
            and matches_preset(settings, each.preset.overrides, scoring=True)
            and _has_same_data(settings, params, each.preset.overrides)
            for settings in candidates
        )
    ]


def find_unfilled(
    experiments: Iterable[PlannedExperiment], runs: Iterable[Run], dataset: str, paper: str
) -> list[PlannedExperiment]:
    """Return the experiments whose method has no run in its row."""
    filled = {
        (method.name, method.following, run.seed)
        for run in runs
        for method in find_methods(run, dataset, paper)
    }
    return [
        each for each in experiments if (each.preset.name, each.preset.following, each.seed) not in filled
    ]


def data_set_fault(dataset: str, params: Settings, paper: str = FNE) -> str | None:
    """Return a message if `catalog.root` of `params` cannot be the folder of the data set."""
    root = params.get("catalog", {}).get("root")
    if (dataset == DEMO) == (root == DEMO_ROOT):
        return None
    title = "the embedded data set" if dataset == DEMO else load("datasets", paper)[dataset]["title"]
    return (
        f"params.yaml: catalog.root is '{root}', which is not {title}; set it to the folder of that data set"
    )


def row_obstacle(wanted: Preset, params: Settings) -> str | None:
    """Return why a preset with these parameters fills no row of its paper, or None if it does.

    A preset sets all that `fne.papers.rule` asks for, except for the data set, where features come from,
    the weights and the word vectors. These are looked at here.

    Raises:
        InputError: if the data set, the weights or the word vectors cannot be read.
    """
    if wanted.dataset == DEMO:
        return None
    source, images = params.get("embed", {}).get("source"), params.get("catalog", {}).get("images")
    if source != EXTRACTED:
        return f"params.yaml: embed.source is '{source}', and rows of the paper need {EXTRACTED}"
    if images == NONE:
        return f"params.yaml: catalog.images is '{images}', and rows of the paper need images"
    return (
        _weights_obstacle(params.get("extract", {}), wanted)
        or _vectors_obstacle(params.get("tokenize", {}), wanted)
        or _data_obstacle(params.get("catalog", {}), wanted)
    )


def estimate_all(experiments: Sequence[PlannedExperiment], params: Path) -> list[Estimate]:
    """Return how long each experiment would train on this machine."""
    runtime = load_runtime(params)
    device = prepare_device(runtime)
    timings: dict[str, Timing] = {}
    tunings: dict[tuple[str, ...], float] = {}
    estimates = []
    for each in tracked(experiments, "timing an epoch", len(experiments), "experiment", leave=False):
        train, work = _train_section(each, params), _workload(each, params)
        key = json.dumps([work.features, work.words, *(train[name] for name in TIMING_KEYS)])
        if key not in timings:
            use_training_threads(train["threads"])
            timings[key] = time_training(train, work, device)
        found, tuning = estimate(train, work, timings[key]), _finetune_section(each, params)
        if tuning.is_on:
            network = (
                _value(each, params, "extract.backbone"),
                _value(each, params, "embed.layer"),
                tuning.first,
            )
            if network not in tunings:
                use_training_threads(tuning.threads)
                tunings[network] = time_tuning(tuning, *network[:2], runtime, device)
            hours = tuning_hours(tuning, work, tunings[network])
            found = Estimate(found.hours + hours, f"{found.basis}; {format_hours(hours)} of it for finetune")
        estimates.append(found)
    return estimates


def format_plan(plan: Plan, commands: bool = True) -> str:
    """Return the duration of each experiment and its basis, the commands, and the total duration."""
    if plan.obstacle:
        return f"no row of the table can be filled: {plan.obstacle}; {OWN_ROWS}"
    if not plan.experiments:
        return "nothing is missing"
    if not plan.cost:
        listed = [line for each in plan.experiments for line in (f"# {each.title}", each.shell_command())]
        return "\n".join([*listed, f"# {len(plan.experiments)} experiments; --hours also says how long"])
    lines = []
    for each, duration in zip(plan.experiments, plan.cost, strict=True):
        lines.append(f"# {each.title}: about {format_hours(duration.hours)}, from {duration.basis}")
        lines += [each.shell_command()] if commands else []
    total = format_hours(sum(duration.hours for duration in plan.cost))
    lines.append(
        f"# {len(plan.experiments)} experiments, about {total} of training on this machine, one after the "
        "other; timed on random data of the same size"
    )
    return "\n".join(lines)


def enqueue(experiments: Sequence[PlannedExperiment]) -> None:
    """Put experiments into DVC's queue.

    Raises:
        InputError: if DVC refuses one, with its message.
    """
    for each in tracked(experiments, "queueing", len(experiments), "experiment", leave=False):
        done = subprocess.run(_arguments(each, "--queue"), capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise InputError(f"{each.title}: {_dvc_error(done.stderr or done.stdout)}")
    say(f"{len(experiments)} experiments queued; run them with `dvc queue start`")


def run_all(experiments: Sequence[PlannedExperiment], cost: Sequence[Estimate]) -> None:
    """Run experiments one after the other, in temporary copies of the project.

    The output of DVC and of the stages goes to standard error, with one line before and one after
    each experiment. An experiment is recorded when it ends, so it is not run again.

    Raises:
        InputError: if an experiment fails.
    """
    start = time.monotonic()
    for number, each in enumerate(experiments, start=1):
        title = f"{number} of {len(experiments)}: {each.title}"
        say(f"{title}: running", err=True)
        with explain_interrupt():
            code = _exit_code(_arguments(each, "--temp"))
        if code:
            raise InputError(
                f"{each.title}: `dvc exp run` failed with exit code {code}, see above; run the same command "
                "again to continue"
            )
        passed = (time.monotonic() - start) / 3600
        ahead, behind = (sum(known.hours for known in part) for part in (cost[number:], cost[:number]))
        left = f"; about {format_hours(passed * ahead / behind)} left" if number < len(experiments) else ""
        say(f"{title}: done{left}", err=True)


def _without_extraction(overrides: Overrides) -> Overrides:
    return {key: value for key, value in overrides.items() if not key.startswith(EXTRACT)}


def _weights_obstacle(extract: dict[str, Any], wanted: Preset) -> str | None:
    paper = split_address(wanted.name)[0]
    path, listed = Path(str(extract.get("weights"))), load("weights", paper)
    named = parse_weights(path) if path.suffix in (".yaml", ".yml") else None
    if named is None or isinstance(named, File):
        file = path if named is None else path.parent / named.file
        fits = file_digest(file) in listed["sha256"] or _converted_from(file) in listed.get("sources", [])
    else:
        digests = list(named.sha256.values()) if isinstance(named, Torchvision) else []
        fits = any(full.startswith(each) for full in listed["sha256"] for each in digests)
    if fits:
        return None
    hint = " (for example Caffe's, see `fne import`)" if paper == FNE else ""
    return (
        f"params.yaml: extract.weights is '{path}', and rows of the paper need weights that "
        f"papers/{paper}/weights.yaml lists{hint}"
    )


def _vectors_obstacle(tokenize: dict[str, Any], wanted: Preset) -> str | None:
    paper = split_address(wanted.name)[0]
    path, listed = Path(str(tokenize.get("vectors"))), load("weights", paper).get("vectors")
    if listed is None or file_digest(path) in listed:
        return None
    return (
        f"params.yaml: tokenize.vectors is '{path}', and rows of the paper need word vectors that "
        f"papers/{paper}/weights.yaml lists"
    )


def _data_obstacle(catalog: dict[str, Any], wanted: Preset) -> str | None:
    """Compare the splits of the annotations, which are read without the images, with those of the paper."""
    paper = split_address(wanted.name)[0]
    own = {key.split(".")[1]: value for key, value in wanted.overrides.items() if key.startswith("catalog.")}
    settings, faults = parse_section({"catalog": catalog | own}, "catalog", Catalog)
    if settings is None:
        raise InputError(f"params.yaml: section 'catalog': {'; '.join(faults)}")
    root, annotations = dataset_root(settings.root, settings.format, settings.annotations)
    records = read_dataset(root, settings.format, annotations, settings.columns).records
    splits, _ = resolve_splits(records, {each.id for each in records if each.captions}, settings.splitting)
    captioned = [Captioned(name, split, (), ()) for name, split in splits.items()]
    counts = split_counts(captioned)
    if has_images_of(wanted.dataset, counts, split_digests(captioned), paper):
        return None
    found = ", ".join(f"{images:,} {split}" for split, (images, _) in counts.items())
    title = load("datasets", paper)[wanted.dataset]["title"]
    return (
        f"params.yaml: catalog.root is '{settings.root}' with {found} images, which are not the splits of "
        f"{title}"
    )


def _converted_from(file: Path) -> str | None:
    """Return the SHA-256 of the file that weights were converted from, if it is recorded."""
    if file.suffix != ".safetensors":
        return None
    try:
        with safe_open(file, "np") as tensors:
            described = (tensors.metadata() or {}).get(DESCRIPTION)
    except SafetensorError:  # the stage says what is wrong
        return None
    return Description.model_validate_json(described).source_sha256 if described else None


def _has_same_data(settings: Settings, params: Settings, overrides: Overrides) -> bool:
    """Return whether recorded settings have the data and the weights that `params` and a preset name."""
    now = {section: flattened(params.get(section, {})) for section in DATA_SECTIONS}
    return all(
        overrides.get(f"{section}.{key}", now[section].get(key)) == value
        for section in DATA_SECTIONS
        for key, value in settings.get(section, {}).items()
        if (section, key) not in IGNORED_KEYS
    )


def _train_section(each: PlannedExperiment, params: Path) -> dict[str, Any]:
    train = load_section(params, "train", Train).model_dump()
    return _changed(train, "train.", each.preset.overrides | {"train.seed": each.seed})


def _finetune_section(each: PlannedExperiment, params: Path) -> Finetune:
    section = load_section(params, "finetune", Finetune).model_dump()
    return Finetune.model_validate(_changed(section, "finetune.", each.preset.overrides))


def _value(each: PlannedExperiment, params: Path, key: str) -> str:
    """Return the value of a key in an experiment: that of its preset, or that of the parameter file."""
    section, _, name = key.partition(".")
    return str(each.preset.overrides.get(key, load_params(params)[section][name]))


def _changed(section: dict[str, Any], prefix: str, overrides: Overrides) -> dict[str, Any]:
    for key, value in overrides.items():
        if key.startswith(prefix):
            put(section, key.removeprefix(prefix), value)
    return section


def _count_features(overrides: Overrides) -> int:
    """Return how many values the image embeddings of a preset have."""
    kind, layers = overrides["embed.kind"], overrides.get("embed.layers")
    if kind in ONE_LAYER:
        return FEATURES[overrides["embed.layer"]]
    return sum(FEATURES[layer] for layer in layers) if isinstance(layers, list) else FEATURES[kind]


def _workload(each: PlannedExperiment, params: Path) -> Workload:
    features = _count_features(each.preset.overrides)
    if each.preset.dataset == DEMO:
        section = load_section(params, "render", Render).model_dump()
        render = Render.model_validate(_changed(section, "render.", each.preset.overrides))
        val, test = (int(render.images * fraction) for fraction in (render.val_share, render.test_share))
        return Workload(features, DEMO_WORDS, render.images - val - test, val)
    facts = load("datasets", split_address(each.preset.name)[0])[each.preset.dataset]
    val = facts["images"]["val"]
    smallest = min(val) if isinstance(val, list) else val
    return Workload(features, facts["words"], facts["images"]["train"], smallest)


def _arguments(experiment: PlannedExperiment, how: str) -> list[str]:
    return [sys.executable, "-m", *experiment.command(how)]


def _exit_code(command: Sequence[str]) -> int:
    """Run a command with its output on standard error; if interrupted, wait until it has cleaned up."""
    with subprocess.Popen(command, stdout=STDERR) as process:  # noqa: S603
        try:
            return process.wait()
        except KeyboardInterrupt:  # the command gets the signal as well
            process.wait()
            raise


def _dvc_error(output: str) -> str:
    """Return the error line of DVC's output, without the advice around it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return errors[0] if errors else " ".join(lines)
