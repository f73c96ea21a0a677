"""How the work is done: settings that change the speed of a stage, and of its result at most the last bits.

No stage lists this section as a dependency, so that a machine with more cores does
not repeat hours of work.
"""

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fne.core.params import Section, load_section, one_of


class Runtime(Section):
    """The `runtime` section of `params.yaml`."""

    device: Annotated[str, one_of(["auto", "cpu", "cuda"])]
    threads: Annotated[int, Field(ge=0)]
    workers: Annotated[int, Field(ge=0)]
    batch: Annotated[int, Field(ge=0)]
    algorithm: Annotated[str, Field(min_length=1)]
    scratch: Annotated[str, Field(min_length=1)]

    def scratch_folder(self) -> Path:
        """Return the folder for what may be computed again but need not be.

        A relative path counts from the project's root, which DVC names to its stages, also
        when it runs them in a temporary copy.
        """
        return Path(os.environ.get("DVC_ROOT", ".")) / Path(self.scratch).expanduser()


def load_runtime(params: Path) -> Runtime:
    """Read the `runtime` section of a parameter file."""
    return load_section(params, "runtime", Runtime)
