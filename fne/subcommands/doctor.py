"""`fne doctor`: its arguments and its help; `fne.commands` does the work."""

from pathlib import Path

import click

from fne.core.command import OUTPUT, params_option


@click.command()
@params_option
@click.option(
    "--prune", metavar="ROWS", help="Remove finished rows from the scratch folder: by name, or 'all'."
)
@click.option(
    "--share", type=OUTPUT, metavar="DIR", help="Share cache and scratch folder with a group, in DIR."
)
@click.option("--group", metavar="NAME", help="With --share, the first time: the group that may use DIR.")
def doctor(params: Path, prune: str | None, share: Path | None, group: str | None) -> None:
    """Say what machine and scratch folder offer, and what needs mending.

    Looks at links, permissions, free space, Git's identity, DVC's remotes and locks, settings
    of params.yaml that the machine cannot follow, and weights. Every fault is a line
    that ends with the command that mends it.

    The scratch folder (runtime.scratch) keeps finished rows of the extraction, so that no
    image is computed twice. It can be shared by clones and users, and removed at any time:
    what is missing is computed again.
    """
    from fne.commands import doctor as work
    from fne.core.runtime import load_runtime

    runtime = load_runtime(params)
    if share:
        click.echo(work.share(runtime, share.absolute(), group))
    else:
        click.echo(work.prune(runtime, prune) if prune else work.examine(runtime, params))
