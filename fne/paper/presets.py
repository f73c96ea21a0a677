"""The paper's methods as overrides of `params.yaml`.

A preset sets every key that decides what is trained, so that what `params.yaml` happens to
say about them does not matter, and nothing else: the data set's folder and the weights of the
network are the user's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from fne.core.errors import InputError
from fne.paper.data import for_dataset, load

Overrides = dict[str, Any]  # key of params.yaml, with its section: value, or a list with one per phase

DEMO = "demo"
FOLLOWING = ("paper", "code")
PER_PHASE = ("train.loss", "train.margin", "train.learning_rate", "train.epochs", "train.patience")
SECTIONS = ("embed", "tokenize", "train")


@dataclass(frozen=True)
class Preset:
    """A method of the paper for one data set, and what there is to say about it."""

    name: str
    dataset: str
    following: str
    overrides: Overrides
    notes: list[str]


def datasets() -> list[str]:
    """Return the data sets that presets are made for."""
    return [*load("datasets"), DEMO]


def names() -> list[str]:
    """Return the names of all presets, in the order of the paper."""
    table_1 = [f"{kind}-{method}" for method in load("table1")["methods"] for kind in ("FC7", "FNE")]
    table_5 = [row["model"] for row in load("table5")["rows"]]
    return [*dict.fromkeys([*table_1, *table_5, *load("presets")["originals"]])]


@cache
def every_preset() -> list[Preset]:
    """Return the presets of all names for all data sets, following the paper and following the code."""
    return [
        preset(name, dataset, following)
        for dataset in datasets()
        for name in names()
        if dataset in _datasets_with(name)
        for following in FOLLOWING
    ]


def preset(name: str, dataset: str, following: str = "paper") -> Preset:
    """Return the overrides of a method for a data set.

    Raises:
        InputError: if there is no such preset, naming the closest.
    """
    if name not in names():
        folded = {each.lower(): each for each in names()}
        close = folded[get_close_matches(name.lower(), folded, n=1, cutoff=0)[0]]
        raise InputError(f"there is no preset '{name}' (did you mean '{close}'?); see `fne preset --list`")
    if dataset not in _datasets_with(name):
        allowed = " and ".join(_datasets_with(name))
        raise InputError(
            f"'{name}' is a row of Table 5 alone, and a preset only for {allowed}, not {dataset}"
        )
    rules = load("presets")
    if name in rules["originals"]:
        chosen, notes = _original(name)
    else:
        chosen, notes = _of_the_paper(name, dataset, following)
    if dataset == DEMO:
        lists = (chosen[key] for key in PER_PHASE if isinstance(chosen.get(key), list))
        epochs = rules["epochs_of_demo"] // max(map(len, lists))
        chosen |= rules["demo"] | {"train.epochs": [epochs]}
    notes = [*notes, *rules["notes_for"].get(dataset, [])]
    chosen["train.patience"] = chosen["train.epochs"]
    texts = rules["notes"] | load("table1")["errata"] | load("table5")["errata"]
    ordered = sorted(chosen.items(), key=lambda item: SECTIONS.index(item[0].split(".")[0]))
    overrides = {key: _shortest(value) if key in PER_PHASE else value for key, value in ordered}
    return Preset(name, dataset, following, overrides, [texts[note] for note in notes])


def arguments(overrides: Mapping[str, Any]) -> list[str]:
    """Return overrides as arguments of `dvc exp run`, each free of blanks and quotes.

    Example:
        >>> arguments({"train.loss": ["sum_hinge", "max_hinge"], "train.absolute": True})
        ['-S', 'train.loss=[sum_hinge,max_hinge]', '-S', 'train.absolute=true']
    """
    return [word for key, value in overrides.items() for word in ("-S", f"{key}={_spelled(value)}")]


def _of_the_paper(name: str, dataset: str, following: str) -> tuple[Overrides, list[str]]:
    rules = load("presets")
    kind, method = name.split("-", 1)
    # The demo has no column of its own: it takes what Flickr8k has, and its own dimensions.
    column = "flickr8k" if dataset == DEMO else dataset
    if method in load("table1")["methods"]:
        printed = load("table1")["methods"][method]
        epochs = for_dataset(rules["epochs"].get(method, rules["epochs"]["others"]), column)
    else:
        printed, epochs = _row_of_table_5(name)
    settings = {
        "similarity": rules["names"]["similarity"][printed["similarity"]],
        "loss": [rules["names"]["loss"][loss] for loss in printed["loss"]],
        **{key: for_dataset(printed[key], column) for key in ("embed_dim", "word_dim", "learning_rate")},
        **{key: printed[key] for key in ("margin", "absolute")},
        "epochs": [epochs],
    }
    chosen: Overrides = rules["embeddings"][kind] | rules["all"] | rules["following"][following]
    chosen |= {f"train.{key}": value for key, value in settings.items()}
    notes = [*printed.get("errata", []), "epochs", *rules["notes_of"].get(method, [])]
    if following == "code" and method in rules["code_only"]:
        chosen |= rules["code_only"][method]
        notes = [*(note for note in notes if note != "moe_rate"), "moe_code"]
    return chosen, notes


def _row_of_table_5(name: str) -> tuple[dict[str, Any], int]:
    table = load("table5")
    [row] = [row for row in table["rows"] if row["model"] == name]
    return table["shared"] | row | {"learning_rate": [row["learning_rate"]]}, table["shared"]["epochs"]


def _datasets_with(name: str) -> list[str]:
    is_general = name in load("presets")["originals"] or name.split("-", 1)[1] in load("table1")["methods"]
    return datasets() if is_general else [load("table5")["dataset"], DEMO]


def _original(name: str) -> tuple[Overrides, list[str]]:
    rules = load("presets")
    chosen: Overrides = rules["embeddings"]["FC7"] | rules["all"] | rules["originals"][name]
    return chosen, rules["notes_of"][name]


def _shortest(value: Any) -> Any:
    """Return one value where it serves all phases."""
    return value[0] if isinstance(value, list) and len({str(each) for each in value}) == 1 else value


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(_spelled(each) for each in value)}]"
    return str(value)
