"""The keys of a section of `params.yaml` that every trained task has."""

from functools import partial
from typing import Annotated, Any

from pydantic import Field

from fne.core.params import PerPhase, Section, TrainingThreads, one_of
from fne.core.variants import blocks, chosen, settings_of
from fne.training.best_epoch import Phase, expand_phases
from fne.training.loop import KEEP, Schedule
from fne.training.optimizers import CLIPS, OPTIMIZERS

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, lt=1000)]


class TrainingSection(Section):
    """What the trainer needs; a task's own section adds its keys. Lists have one value per phase."""

    seed: Annotated[int, Field(ge=0, lt=2**32)]
    threads: TrainingThreads
    optimizer: Annotated[str, one_of(OPTIMIZERS)]
    optimizers: blocks(OPTIMIZERS)  # type: ignore[valid-type]
    clip: Annotated[float, Field(ge=0)]
    clip_by: Annotated[str, one_of(CLIPS)]
    validate_every: Annotated[int, Field(ge=0)]
    keep: Annotated[str, one_of(KEEP), Field(examples=["best"])]
    learning_rate: Annotated[list[Rate], PerPhase]
    epochs: Annotated[list[Count], PerPhase]
    patience: Annotated[list[Count], PerPhase]

    def phase_keys(self) -> dict[str, list[Any]]:
        """Return the values of every key that may have one per phase."""
        return {key: getattr(self, key) for key in ("learning_rate", "epochs", "patience")}

    def phase_values(self) -> list[dict[str, Any]]:
        """Return the keys of each phase; `ValueError` if lists have different lengths."""
        return expand_phases(self.phase_keys())

    def schedule(self, titles: list[str], validate_start: bool = False) -> Schedule:
        """Return how to train, with a title per phase for the progress bar."""
        make = OPTIMIZERS[self.optimizer].make
        optimizer = partial(make, settings=settings_of(self.optimizer, self.optimizers))
        phases = [
            Phase(title, values["learning_rate"], values["epochs"], values["patience"])
            for title, values in zip(titles, self.phase_values(), strict=True)
        ]
        return Schedule(
            phases,
            self.seed,
            optimizer,
            self.clip,
            self.clip_by,
            self.validate_every,
            self.keep,
            validate_start,
        )

    def applied(self) -> dict[str, Any]:
        """Return the settings that apply: of the families' blocks, only those of the chosen variants."""
        return self.model_dump() | {"optimizers": chosen([self.optimizer], self.optimizers)}
