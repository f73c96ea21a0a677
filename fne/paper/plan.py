"""The experiments that a table still lacks, and the commands that run them."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fne.core.errors import InputError
from fne.core.params import not_one_of
from fne.paper.data import load
from fne.paper.presets import DEMO, Preset, arguments, preset
from fne.paper.rule import DEMO_ROOT, equals
from fne.paper.runs import Settings
from fne.paper.tables import STARTS, rows, starts

# What an experiment takes from params.yaml as it stands: the data, and the images' activations.
SURROUNDINGS = ("catalog", "extract")
HARMLESS = {("extract", "shards")}  # how a store is cut into files changes no result


@dataclass(frozen=True)
class Planned:
    """An experiment to be run."""

    preset: Preset
    seed: int

    @property
    def title(self) -> str:
        """What it is, for people."""
        return f"{self.preset.name}, seed {self.seed}"

    def command(self, how: str = "--queue") -> list[str]:
        """Return the words of the command that puts it into DVC's queue, or runs it in another way."""
        overrides = self.preset.overrides | {"train.seed": self.seed}
        return ["dvc", "exp", "run", how, *arguments(overrides)]

    def typed(self) -> str:
        """Return the command for the queue as one can type it."""
        return shlex.join(self.command())


def models(number: int) -> list[str]:
    """Return the methods of a table that can be run."""
    if number == STARTS:
        return [row.model for row in starts()]
    return [row.model for row in rows(number) if row.is_ours_to_run]


def planned(number: int, dataset: str, following: str, seeds: int, only: Sequence[str] = ()) -> list[Planned]:
    """Return all experiments of a table, or those of some of its methods.

    Raises:
        InputError: if a method is not in the table.
    """
    for name in only:
        if name not in models(number):
            raise InputError(f"Table {number}: {not_one_of(name, models(number))}")
    chosen = [name for name in models(number) if not only or name in only]
    return [Planned(preset(name, dataset, following), seed) for name in chosen for seed in range(seeds)]


def missing(wanted: Iterable[Planned], known: Iterable[Settings], params: Settings) -> list[Planned]:
    """Return the experiments that none of the `known` settings is, with the data and weights of `params`."""
    candidates = [settings for settings in known if _has_surroundings(settings, params)]
    return [
        each
        for each in wanted
        if not any(
            settings.get("train", {}).get("seed") == each.seed and equals(settings, each.preset.overrides)
            for settings in candidates
        )
    ]


def names_other_data(dataset: str, params: Settings) -> str | None:
    """Say what is wrong if `params` cannot name the data set's folder."""
    root = params.get("catalog", {}).get("root")
    if (dataset == DEMO) == (root == DEMO_ROOT):
        return None
    title = "the embedded data set" if dataset == DEMO else load("datasets")[dataset]["title"]
    return f"params.yaml: catalog.root is '{root}', which is not {title}; name its folder there first"


def _has_surroundings(settings: Settings, params: Settings) -> bool:
    """Tell whether what was recorded of the data and the weights is what `params` asks for now."""
    return all(
        params.get(section, {}).get(key) == value
        for section in SURROUNDINGS
        for key, value in settings.get(section, {}).items()
        if (section, key) not in HARMLESS
    )
