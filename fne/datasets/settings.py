"""The `catalog` section of `params.yaml`."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from fne.core.params import Section, one_of
from fne.datasets.readers import AUTO, READERS
from fne.datasets.splits import RESTVAL, Splitting

Share = Annotated[float, Field(ge=0, lt=1)]
Name = Annotated[str, Field(min_length=1)]
Folder = Annotated[Name, AfterValidator(lambda name: str(Path(name)))]  # `./data/demo/` is `data/demo`


class Catalog(Section):
    """Where the data set is, how to read it, and how much of it may be unusable."""

    root: Folder
    format: Annotated[str, one_of([AUTO, *READERS])]
    annotations: Name
    images: Name
    restval: Annotated[str, one_of(RESTVAL)]
    val_share: Share
    test_share: Share
    seed: Annotated[int, Field(ge=0)]
    max_rejects: Annotated[int, Field(ge=0)]

    @property
    def splitting(self) -> Splitting:
        """How to split what the data set itself does not."""
        return Splitting(self.restval, self.val_share, self.test_share, self.seed)

    @model_validator(mode="after")
    def _something_is_left_for_train(self) -> Self:
        if self.val_share + self.test_share >= 1:
            raise ValueError(
                f"val_share {self.val_share} and test_share {self.test_share} leave nothing for train; "
                "their sum must be below 1"
            )
        return self
