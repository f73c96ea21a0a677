"""`fne check`: its arguments and its help; `fne.commands` does the work."""

from pathlib import Path

import click

from fne.core.command import INPUT, params_option


@click.command()
@params_option
@click.option("--demo", is_flag=True, help="Also refuse parameters that do not name the embedded data set.")
@click.option("--captions", type=INPUT, help="Also look for the splits needed later in this catalog.")
def check(params: Path, demo: bool, captions: Path | None) -> None:
    """Validate all parameters before anything is computed.

    Names every unknown key, wrong type, unknown variant and missing file, and what is
    allowed instead. `dvc repro` does this before it starts.
    """
    from fne.commands.check import check_demo, check_params, check_splits

    sections = check_params(params)
    if demo:
        check_demo(params, sections)
    if captions and captions.exists():
        check_splits(params, sections, captions)
    click.echo(f"{params}: {len(sections)} sections, all valid")
