"""Stage `check`: validate all parameters, before any other stage of its pipeline.

DVC removes the outputs of a stage before its command runs. So a refused value must be refused by a
stage that has no results to lose. All other stages depend on the output of this one, which is
constant: none of them runs again because of it.
"""

import os
from contextlib import suppress
from pathlib import Path

import click

from fne.cli.check import check_params
from fne.core.errors import InputError, LinesError
from fne.core.files import write_text
from fne.core.options import OUTPUT, TABLE, params_option
from fne.core.settings import Runtime, load_runtime, parameter_files
from fne.core.stage import stage
from fne.core.terminal import say
from fne.experiments.effective_settings import (
    DEFAULT,
    PIPELINES,
    SECTIONS,
    pipeline_params,
    restore_settings,
    write_settings,
)
from fne.finetuning.settings import PIPELINES as TUNED_BY
from fne.store.catalog import CAPTIONS_FILE


@stage(*(name for name in SECTIONS if name != "runtime"))
@click.argument("checked", type=TABLE)
@click.argument("settings", type=OUTPUT)
@click.option("--pipeline", type=click.Choice(list(PIPELINES)), default=DEFAULT, show_default=True)
@params_option
def main(checked: Path, settings: Path, pipeline: str, params: Path) -> None:
    """Refuse faults of the parameter files, and write the constant file CHECKED.

    SETTINGS are the effective settings of the pipeline, for tables and comparisons of its results.
    """
    # Before anything is refused: DVC has removed the file, and nothing else must be missing afterwards.
    write_text(checked, "The parameters were valid.\n")
    # Git takes a file of the same size and second for unchanged: `git checkout` would keep what DVC wrote.
    for file in parameter_files(params):
        with suppress(OSError):
            os.utime(file)
    try:
        tuning = [section for section, folder in TUNED_BY.items() if folder == f"pipelines/{pipeline}"]
        # Without a catalog, there may still be a store to import.
        sections = check_params(params, not CAPTIONS_FILE.exists(), tuning)
    except InputError as error:
        restore_settings(settings, _scratch(params))
        lost = [str(settings)] * (not settings.exists())
        restored = dict.fromkeys([str(params), pipeline_params(pipeline), *lost])
        raise LinesError(
            f"{error.message}\nNo result was removed; set a valid value, or restore the committed ones with "
            f"`git checkout {' '.join(restored)}`"
        ) from None
    write_settings(settings, params, pipeline, sections, _scratch(params))
    say(f"{params}: {len(sections)} sections, all valid")


def _scratch(params: Path) -> Path:
    """Return the scratch folder; the usual one if the section that names it has a fault."""
    try:
        return load_runtime(params).scratch_folder()
    except InputError:
        return Runtime().scratch_folder()


if __name__ == "__main__":
    main()
