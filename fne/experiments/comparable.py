"""The rule that decides whether a run is compared with a row of a paper.

A run belongs to the row of a method only if all of the following is recorded for it and true:

1. Data set: train, val and test have as many images as in the paper (`papers/PAPER/datasets.yaml`), and
   val and test have the same images, where their lists are known: two splits of Flickr30k have
   equal numbers of different images.
2. Scores: they are those of the test split, or of the split that the table scores, with the number of
   images and captions of the paper, under one of the protocols of the data set.
3. Weights: `papers/PAPER/weights.yaml` lists them, by their digest or by that of the file they were
   converted from: for the FNE paper, a VGG16 of Caffe. Random weights do not count, nor do those of
   torchvision, which come from another training. Pretrained word vectors of a paper are listed there, too.
4. Activations: extracted as the paper says, in float32, by this project and not imported. For the FNE
   paper (section 4.3.3): images squashed to 256 x 256, ten crops, after ReLU. With all layers, as the
   settings of the methods require, that makes 12,416 features, or 4,096 for fc7.
5. Settings: every key that the preset of the method sets has the value of the preset, following
   either the paper or the code of its authors. Other keys and the seed do not matter.

What is not recorded, or can no longer be read, counts as false. Runs that do not satisfy the rule
are listed in rows of their own, with a description.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fne.experiments.effective_settings import Settings
from fne.experiments.presets import (
    DEMO,
    FNE,
    PER_PHASE,
    Overrides,
    Preset,
    every_preset,
    load,
    papers,
    split_address,
)
from fne.experiments.runs import IMPORTED, Counts, Result, Run, as_list, is_tuned

EXTRACT = "extract."
DEMO_ROOT = "data/demo"


@dataclass(frozen=True)
class Origin:
    """Where the results of a run are from: a description, and the digest of the features, if it is known."""

    text: str
    features: str | None


def find_methods(run: Run, dataset: str, paper: str = FNE, split: str = "test") -> list[Preset]:
    """Return the presets of the methods to whose rows in a paper's table of a data set a run belongs.

    There may be several: on Flickr8k, the authors' launchers of FC7-SOE-bl and FC7-SOE are the same.
    """
    if comparable_result(run, dataset, paper, split) is None or not (
        _has_paper_weights(run, paper) and _has_paper_extraction(run, paper)
    ):
        return []
    return [
        method
        for method in matching_methods(run.settings)
        if method.dataset == dataset and split_address(method.name)[0] == paper
    ]


def dataset_of(run: Run, paper: str = FNE) -> str | None:
    """Return the data set of a paper that has the splits of a run, or None."""
    for name in load("datasets", paper):
        if run.counts is not None and has_images_of(name, run.counts, run.split_digests or {}, paper):
            return str(name)
    return None


def has_images_of(dataset: str, counts: Counts, digests: Mapping[str, str], paper: str = FNE) -> bool:
    """Return whether splits are those of a data set of a paper; for `digests` see `split_digests`."""
    facts = load("datasets", paper)[dataset]
    if "unknown_split" in facts:
        return False
    has_counts = all(
        counts.get(split, (0, 0))[0] in (images if isinstance(images, list) else [images])
        for split, images in facts["images"].items()
    )
    return has_counts and all(digests.get(split) == ids for split, ids in facts.get("ids", {}).items())


def comparable_result(run: Run, dataset: str, paper: str = FNE, split: str = "test") -> Result | None:
    """Return the result of a run that can be compared with a table of a paper, or None."""
    facts = load("datasets", paper).get(dataset)
    if facts is None or dataset_of(run, paper) != dataset:
        return None
    least, most = facts["scored"]["captions"]
    for found in run.results:
        is_complete = found.images == facts["scored"]["images"] and least <= found.captions <= most
        is_scored = found.split == split and found.protocol in facts["protocol"]
        if is_scored and is_complete and None not in found.numbers:
            return found
    return None


def matching_methods(settings: Settings) -> Iterator[Preset]:
    """Yield the presets of methods that match the settings of a run, those for the demo last.

    How images were extracted does not matter for the methods of the FNE paper: these serve other features,
    too, and the description of a run says which. Imported vectors are not a method of a paper.
    """
    for each in every_preset():
        overrides = each.overrides
        if split_address(each.name)[0] == FNE:
            overrides = {key: value for key, value in overrides.items() if not key.startswith(EXTRACT)}
        if each.is_tuned == is_tuned(settings) and matches_preset(settings, overrides):
            yield each


def matches_preset(settings: Settings, overrides: Overrides, scoring: bool = False) -> bool:
    """Return whether recorded settings have every value of a preset.

    With `scoring`, the section `evaluate` must match, too. Otherwise results say what was scored.
    """
    train = settings.get("train", {})
    phases = max(
        _count_phases({key: train.get(key.split(".")[1]) for key in PER_PHASE}), _count_phases(overrides)
    )
    for key, value in overrides.items():
        section, name = key.split(".", 1)
        if section == "evaluate" and not scoring:
            continue
        # The counts of images and captions replace the section `catalog`, and the lineage replaces `extract`.
        if section in ("catalog", "extract") and section not in settings:
            continue
        if section not in settings:
            return False
        if name not in settings[section]:
            # The block of a variant that was not chosen; the key that chooses it is a setting of its own.
            block, dot, _ = name.rpartition(".")
            if dot and not any(each.startswith(f"{block}.") for each in settings[section]):
                continue
            return False
        recorded = settings[section][name]
        if key in PER_PHASE:
            recorded, value = _expand_phases(recorded, phases), _expand_phases(value, phases)
        if as_list(recorded) != as_list(value):
            return False
    return True


def paper_extraction() -> dict[str, Any]:
    """Return how the FNE paper extracts activations: keys of the section `extract`."""
    return {key.removeprefix(EXTRACT): value for key, value in load("presets")["extraction"].items()}


def describe(run: Run) -> str:
    """Return a short description of a run that belongs to no row of the paper."""
    method = next(matching_methods(run.settings), None)
    name = method.name if method else _describe_settings(run.settings)
    following = ["following the code"] if method and method.following == "code" else []
    return ", ".join([name, *following, origin(run).text])


def origin(run: Run) -> Origin:
    """Return with which features a run was made, and on which images."""
    text = f"{_describe_weights(run)}, {_describe_data(run)}"
    return Origin(text, _ancestor(run, "activations", "digest"))


def _has_paper_weights(run: Run, paper: str) -> bool:
    listed = load("weights", paper)
    has_vectors = "vectors" not in listed or _ancestor(run, "vector_file", "digest") in listed["vectors"]
    source = (_ancestor(run, "weights", "settings") or {}).get("source")
    known = _ancestor(run, "weights", "digest") in listed["sha256"] or source in listed.get("sources", [])
    return run.ranks is not None and has_vectors and known


def _has_paper_extraction(run: Run, paper: str) -> bool:
    """Return whether activations are the FNE paper's; presets of other papers set how they are extracted."""
    recorded = _ancestor(run, "activations", "settings") or {}
    wanted = paper_extraction()
    if paper != FNE:
        own = {key: run.settings.get("extract", {}).get(key) for key in wanted}
        wanted = own | {"precision": wanted["precision"]}
    return "extractor" in recorded and all(recorded.get(key) == value for key, value in wanted.items())


def _ancestor(run: Run, artifact: str, what: str) -> Any:
    return run.ranks.artifact.lineage.get(artifact, {}).get(what) if run.ranks else None


def _describe_weights(run: Run) -> str:
    activations = _ancestor(run, "activations", "settings") or {}
    if "source" in activations:  # imported features
        return f"features of {activations['source']}"
    extract = run.settings.get("extract", {})
    backbone = (activations or extract).get("backbone")
    recorded = _ancestor(run, "weights", "settings")
    if not recorded:
        file = extract.get("weights")
        return f"{backbone} with {file}" if backbone and file else "unknown weights"
    known = {"random": "random weights", "torchvision": f"torchvision's {recorded.get('name')}"}
    digest = str(_ancestor(run, "weights", "digest"))[:8]
    weights = known.get(recorded.get("kind"), f"weights {recorded.get('file', '')} {digest}…")
    return weights if backbone == "vgg16" else f"{backbone} with {weights}"


def _describe_data(run: Run) -> str:
    dataset = _describe_dataset(run)
    if not run.results:
        return dataset
    found = run.results[0]
    protocol = "" if found.protocol == "full" else f" ({found.protocol})"
    return f"{dataset}, {found.images:,} {found.split} images{protocol}"


def _describe_dataset(run: Run) -> str:
    if run.settings.get("catalog", {}).get("root") == DEMO_ROOT:
        return DEMO
    for paper in papers():
        dataset = dataset_of(run, paper)
        if dataset:
            return str(load("datasets", paper)[dataset]["title"])
    if run.counts is None:
        return "unknown data set"
    return f"{run.counts.get('train', (0, 0))[0]:,} training images"


def _describe_settings(settings: Settings) -> str:
    embed, train, imported = settings.get("embed"), settings.get("train"), settings.get(IMPORTED)
    if imported:
        return f"imported, not trained here: {' and '.join(imported.values())}"
    if not embed or not train:
        return "unknown settings"
    kind = (
        embed.get("layer")
        if embed.get("kind") in ("layer", "plain")
        else f"{embed.get('kind')}{_describe_layers(embed)}"
    )
    loss = "+".join(map(str, _expand_phases(train.get("loss"), 1)))
    tuned = ", network fine-tuned" if is_tuned(settings) else ""
    dims = f"{train.get('embed_dim')}/{train.get('word_dim')}"
    return f"{kind} {loss} {train.get('similarity')} {dims}{tuned}"


def _describe_layers(embed: dict[str, Any]) -> str:
    layers = embed.get("layers", "all")
    return "" if layers == "all" else f" ({'+'.join(layers) if isinstance(layers, list) else layers})"


def _count_phases(overrides: Overrides) -> int:
    return max(len(overrides[key]) if isinstance(overrides[key], list) else 1 for key in PER_PHASE)


def _expand_phases(value: Any, phases: int) -> list[Any]:
    """Return one value per phase; a single value is repeated."""
    values = value if isinstance(value, list) else [value]
    return values * phases if len(values) == 1 else values
