"""`fne inspect`: its arguments and its help; `fne.commands` does the work."""

from pathlib import Path

import click

from fne.core.command import INPUT


@click.command()
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
