"""Which runs may stand in a row of the paper.

A run stands in the row of a method only if all of this is recorded for it and holds:

1. Data set: the numbers of images in train, val and test are the paper's (`paper/datasets.yaml`).
2. Scores: on the test split, with the paper's number of images and captions, under one of
   the data set's protocols.
3. Weights: a VGG16 whose weights have a digest of `paper/weights.yaml`, that is, Caffe's.
   Random weights and torchvision's, which are another training, do not count.
4. Images: prepared and read out as in section 4.3.3 (squashed to 256 x 256, ten crops, after
   ReLU, in float32), by this project and not imported. With all layers, which the settings
   ask for, that makes 12,416 features, or 4,096 for fc7.
5. Settings: every key that the method's preset sets has that value, following either the
   paper or the authors' code. Other keys do not matter, nor does the seed.

What is not recorded, or can no longer be read, counts as not holding. Runs that fail in any
of this are not lost: they get rows of their own, which say what they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fne.paper.data import load
from fne.paper.measured import Measured
from fne.paper.presets import DEMO, PER_PHASE, Overrides, every_preset
from fne.paper.runs import Run, Settings

IMAGES = {
    "backbone": "vgg16",
    "activations": "post_relu",
    "resize": "squash",
    "crops": "ten",
    "precision": "float32",
}
DEMO_ROOT = "data/demo"


@dataclass(frozen=True)
class Method:
    """A method of the paper as a run's settings show it."""

    name: str
    dataset: str  # whose column of Table 1
    following: str


def belongs(run: Run, dataset: str) -> Method | None:
    """Return the method in whose row for a data set a run stands, if it does."""
    if result(run, dataset) is None or not (_has_weights(run) and _has_images(run)):
        return None
    return next((method for method in methods(run.settings) if method.dataset == dataset), None)


def dataset_of(run: Run) -> str | None:
    """Return which of the paper's data sets a run used, by the numbers of images in its splits."""
    if run.counts is None:
        return None
    for name, facts in load("datasets").items():
        if all(
            run.counts.get(split, (0, 0))[0] in (images if isinstance(images, list) else [images])
            for split, images in facts["images"].items()
        ):
            return str(name)
    return None


def result(run: Run, dataset: str) -> Measured | None:
    """Return the result of a run that compares with the paper's, if it has one."""
    facts = load("datasets").get(dataset)
    if facts is None or dataset_of(run) != dataset:
        return None
    least, most = facts["scored"]["captions"]
    for found in run.measured:
        is_whole = found.images == facts["scored"]["images"] and least <= found.captions <= most
        is_test = found.split == "test" and found.protocol in facts["protocol"]
        if is_test and is_whole and None not in found.numbers:
            return found
    return None


def methods(settings: Settings) -> Iterator[Method]:
    """Yield the methods whose presets a run's settings equal, those of the paper's data sets first."""
    for each in every_preset():
        if equals(settings, each.overrides):
            yield Method(each.name, each.dataset, each.following)


def equals(settings: Settings, overrides: Overrides) -> bool:
    """Tell whether recorded settings have every value of a preset."""
    phases = max(_phases(settings), _phases_of(overrides))
    for key, value in overrides.items():
        section, name = key.split(".")
        if name not in settings.get(section, {}):
            return False
        recorded = settings[section][name]
        if key in PER_PHASE:
            recorded, value = _unfolded(recorded, phases), _unfolded(value, phases)
        if recorded != value:
            return False
    return True


def described(run: Run) -> str:
    """Say in a few words what a run is that has no row of the paper."""
    method = next(methods(run.settings), None)
    name = method.name if method else _settings_in_words(run.settings)
    following = ["following the code"] if method and method.following == "code" else []
    return ", ".join([name, *following, _weights(run), _data(run)])


def _has_weights(run: Run) -> bool:
    return run.ranks is not None and _ancestor(run, "weights", "digest") in load("weights")["sha256"]


def _has_images(run: Run) -> bool:
    recorded = _ancestor(run, "activations", "settings") or {}
    return "extractor" in recorded and all(recorded.get(key) == value for key, value in IMAGES.items())


def _ancestor(run: Run, artifact: str, what: str) -> Any:
    return run.ranks.artifact.lineage.get(artifact, {}).get(what) if run.ranks else None


def _weights(run: Run) -> str:
    imported = _ancestor(run, "activations", "settings") or {}
    if "source" in imported:
        return f"features of {imported['source']}"
    recorded = _ancestor(run, "weights", "settings")
    backbone = (_ancestor(run, "activations", "settings") or run.settings.get("extract", {})).get("backbone")
    if not recorded:
        named = run.settings.get("extract", {}).get("weights")
        return f"{backbone} with {named}" if backbone and named else "unknown weights"
    words = {"random": "random weights", "torchvision": f"torchvision's {recorded.get('name')}"}
    digest = str(_ancestor(run, "weights", "digest"))[:8]
    known = words.get(recorded.get("kind"), f"weights {recorded.get('file', '')} {digest}…")
    return known if backbone == "vgg16" else f"{backbone} with {known}"


def _data(run: Run) -> str:
    where = _where(run)
    if not run.measured:
        return where
    found = run.measured[0]
    protocol = "" if found.protocol == "full" else f" ({found.protocol})"
    return f"{where}, {found.images:,} {found.split} images{protocol}"


def _where(run: Run) -> str:
    if run.settings.get("catalog", {}).get("root") == DEMO_ROOT:
        return DEMO
    dataset = dataset_of(run)
    if dataset:
        return str(load("datasets")[dataset]["title"])
    if run.counts is None:
        return "a data set that is no longer here"
    return f"{run.counts.get('train', (0, 0))[0]:,} training images"


def _settings_in_words(settings: Settings) -> str:
    embed, train = settings.get("embed"), settings.get("train")
    if not embed or not train:
        return "unknown settings"
    kind = embed.get("layer") if embed.get("kind") == "layer" else f"{embed.get('kind')}{_layers(embed)}"
    loss = "+".join(map(str, _unfolded(train.get("loss"), 1)))
    return f"{kind} {loss} {train.get('similarity')} {train.get('embed_dim')}/{train.get('word_dim')}"


def _layers(embed: dict[str, Any]) -> str:
    layers = embed.get("layers", "all")
    return "" if layers == "all" else f" ({'+'.join(layers) if isinstance(layers, list) else layers})"


def _phases(settings: Settings) -> int:
    return _phases_of({key: settings.get("train", {}).get(key.split(".")[1]) for key in PER_PHASE})


def _phases_of(overrides: Overrides) -> int:
    return max(len(overrides[key]) if isinstance(overrides[key], list) else 1 for key in PER_PHASE)


def _unfolded(value: Any, phases: int) -> list[Any]:
    """Return one value for each phase; a single one serves all."""
    values = value if isinstance(value, list) else [value]
    return values * phases if len(values) == 1 else values
