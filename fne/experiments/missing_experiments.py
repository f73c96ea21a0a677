"""The experiments that a table of a paper still lacks, which `fne table --dry` prints as commands.

A row is missing if running its preset would fill it and no run belongs to it yet, by the rule of
`fne.experiments.comparable`. With parameters that keep results out of the paper's rows, the obstacle is shown
instead. For results in rows of their own, also those of the demo, an experiment counts as done if a recorded
run has its settings and seed, with the data and the weights that the parameter file names now.
"""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from fne.core.errors import InputError
from fne.core.files import file_digest
from fne.core.settings import load_params, not_one_of, parse_section, put
from fne.core.terminal import say
from fne.datasets.location import NONE, dataset_root
from fne.datasets.read import Catalog, resolve_splits
from fne.datasets.readers import read_dataset
from fne.experiments.comparable import DEMO_ROOT, EXTRACT, find_methods, has_images_of, matches_preset
from fne.experiments.effective_settings import Settings, settings_of
from fne.experiments.presets import DEMO, FNE, Overrides, Preset, arguments, load, preset, split_address
from fne.experiments.runs import Run, open_runs, split_counts, split_digests
from fne.experiments.tables import STARTS, is_described, load_table, printed_rows
from fne.extraction.settings import File, Torchvision, parse_weights
from fne.extraction.weights import DESCRIPTION, Description
from fne.features.write_embeddings import EXTRACTED
from fne.matching.model_file import FINETUNING
from fne.store.catalog import Captioned

# The sections that an experiment takes unchanged from params.yaml: the data, and the activations.
DATA_SECTIONS = ("catalog", "extract")
IGNORED_KEYS = {("extract", "shards")}  # the number of shards does not affect results
OWN_ROWS = "--own-rows plans its methods for rows of their own"


@dataclass(frozen=True)
class PlannedExperiment:
    """An experiment to be run."""

    preset: Preset
    seed: int

    def shell_command(self) -> str:
        """Return the command that queues it in DVC, quoted for a shell."""
        overrides = self.preset.overrides | {"train.seed": self.seed}
        pipeline = [FINETUNING] * self.preset.is_tuned
        return shlex.join(["dvc", "exp", "run", "--queue", *arguments(overrides), *pipeline])


def plan_missing(
    address: str,
    dataset: str | None,
    following: str,
    seeds: int,
    only: Sequence[str],
    params: Path,
    own_rows: bool,
) -> str:
    """Return the commands of the missing experiments of a table, one line each, or why there are none.

    Experiments in DVC's queue are not missing.

    Args:
        dataset: `demo`, or None for the data set of the table.
        following: as for `fne.experiments.presets.preset`.
        seeds: the number of runs per method.
        only: the methods to plan; empty: all of the table.
        own_rows: whether to plan experiments whose results get rows of their own.
    """
    if is_described(address):
        pipeline = f"pipelines/{load_table(address)['pipeline']}/dvc.yaml"
        raise InputError(
            f"{address}: the networks of its rows were fine-tuned, so no run of this project can fill them; "
            f"for a row of its own, use `dvc exp run $(fne preset NAME) {pipeline}`"
        )
    chosen, paper = dataset or load_table(address)["dataset"], split_address(address)[0]
    settings = settings_of(load_params(params), str(params))
    experiments = plan(address, chosen, following, seeds, only, own_rows)
    fault = data_set_fault(chosen, settings, paper)
    if own_rows and fault:
        say(f"Warning: {fault}", err=True)
    obstacle = None if own_rows else fault or row_obstacle(experiments[0].preset, settings)
    if obstacle:
        return f"no row of the table can be filled: {obstacle}; {OWN_ROWS}"
    with open_runs(Path()) as project:
        runs, queued = list(project.runs()), project.queued()
    if own_rows or chosen == DEMO:
        unfinished = find_missing(experiments, [run.settings for run in runs], settings)
    else:
        unfinished = find_unfilled(experiments, runs, chosen, paper)
    missing = find_missing(unfinished, queued, settings)
    if len(missing) < len(unfinished):
        count = len(unfinished) - len(missing)
        say(f"in DVC's queue: {count} more; `dvc queue start` runs them", err=True)
    if not missing:
        return "nothing is missing"
    listed = []
    for each in missing:
        listed += [f"# {each.preset.name}, seed {each.seed}", each.shell_command()]
    return "\n".join([*listed, f"# {len(missing)} experiments; queue them, then `dvc queue start` runs them"])


def plan(
    address: str, dataset: str, following: str, seeds: int, only: Sequence[str] = (), own_rows: bool = False
) -> list[PlannedExperiment]:
    """Return all experiments of a table, or only those of some of its methods.

    With `own_rows`, methods of the FNE paper take the section `extract` as `params.yaml` has it.
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
        return [row["model"] for row in load_table(STARTS)["rows"]]
    return [row.method for row in printed_rows(address) if row.is_paper_method]


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

    Only what presets do not set is looked at: data set, source of features, weights and word vectors.
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
    own = {
        key.removeprefix("catalog."): value
        for key, value in wanted.overrides.items()
        if key.startswith("catalog.")
    }
    content: dict[str, Any] = {}
    for key, value in (catalog | own).items():
        put(content, key, value)
    settings, faults = parse_section({"catalog": content}, "catalog", Catalog)
    if settings is None:
        raise InputError(f"params.yaml: section 'catalog': {'; '.join(faults)}")
    root, annotations = dataset_root(settings.root, settings.format, settings.annotations)
    records = read_dataset(root, settings.format, annotations, settings.columns).records
    splits, _ = resolve_splits(records, {each.id for each in records if each.captions}, settings)
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
    now = {section: params.get(section, {}) for section in DATA_SECTIONS}
    return all(
        overrides.get(f"{section}.{key}", now[section].get(key)) == value
        for section in DATA_SECTIONS
        for key, value in settings.get(section, {}).items()
        if (section, key) not in IGNORED_KEYS
    )
