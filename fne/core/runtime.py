"""How the work is done: settings that change the speed of a stage, and of its result at most the last bits.

No stage lists this section as a dependency, so that a machine with more cores does
not repeat hours of work.
"""

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fne.core.errors import InputError
from fne.core.params import Section, load_section, not_one_of, one_of

# Where the extraction computes; the variable wins over `params.yaml`.
ENGINES = ("local", "ray")
ENGINE_VARIABLE = "FNE_ENGINE"


class Runtime(Section):
    """The `runtime` section of `params.yaml`."""

    device: Annotated[str, one_of(["auto", "cpu", "cuda"])]
    threads: Annotated[int, Field(ge=0)]
    workers: Annotated[int, Field(ge=0)]
    batch: Annotated[int, Field(ge=0)]
    engine: Annotated[str, one_of(ENGINES)]
    algorithm: Annotated[str, Field(min_length=1)]
    scratch: Annotated[str, Field(min_length=1)]

    def scratch_folder(self) -> Path:
        """Return the folder for what may be computed again but need not be.

        A relative path counts from the project's root, which DVC names to its stages, also
        when it runs them in a temporary copy.
        """
        return Path(os.environ.get("DVC_ROOT", ".")) / Path(self.scratch).expanduser()


def load_runtime(params: Path) -> Runtime:
    """Read the `runtime` section of a parameter file; `FNE_ENGINE` in the environment wins over `engine`."""
    runtime = load_section(params, "runtime", Runtime)
    engine = os.environ.get(ENGINE_VARIABLE) or runtime.engine
    if engine not in ENGINES:
        raise InputError(f"{ENGINE_VARIABLE}: {not_one_of(engine, ENGINES)}")
    return runtime.model_copy(update={"engine": engine})
