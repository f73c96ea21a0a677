"""The `fne` command.

Each subcommand's work is a module of `fne.commands`, imported when it is called: the
help shall not wait for torch.
"""

from pathlib import Path

import click

from fne.core.command import INPUT, params_option


# In the docstrings below, \b tells click to leave a paragraph's lines as they are.
@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="fne-pipeline", prog_name="fne")
def main() -> None:
    """Find the image for a sentence, and the sentence for an image.

    The pipeline itself is run by DVC:

    \b
      dvc repro                             run what has changed, from images to report
      dvc exp run -S train.margin=0.1       try a variant
      dvc exp show --only-changed           compare variants
      dvc metrics show                      recalls and ranks

    The commands below look after parameters, artifacts and the machine; they compute nothing.
    """


@main.command()
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


@main.command()
@click.argument("paths", nargs=-1, required=True, type=INPUT)
def inspect(paths: tuple[Path, ...]) -> None:
    """Say what each artifact of the pipeline is, and what made it.

    \b
      fne inspect metrics/retrieval.json         the table of recalls
      fne inspect features/embeddings            layers, rows, settings, digests
      fne inspect models/matching.safetensors    settings, best epoch, ancestors
    """
    from fne.commands.inspect import inspect_path

    click.echo("\n\n".join(inspect_path(path) for path in paths))


@main.command()
@params_option
@click.option(
    "--prune", metavar="ROWS", help="Remove finished rows from the scratch folder: by name, or 'all'."
)
def doctor(params: Path, prune: str | None) -> None:
    """Say what this machine offers and what the scratch folder holds.

    The scratch folder (runtime.scratch) keeps finished rows of the extraction, so that no
    image is computed twice. It can be shared by clones and users, and removed at any time:
    what is missing is computed again.
    """
    from fne.commands import doctor as work
    from fne.core.runtime import load_runtime

    runtime = load_runtime(params)
    click.echo(work.prune(runtime, prune) if prune else work.examine(runtime))
