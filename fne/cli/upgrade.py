"""`fne upgrade`: move a project to the installed version of fne."""

from pathlib import Path

import click

from fne.core.terminal import say
from fne.projects.upgrade import upgrade_project


@click.command()
def upgrade() -> None:
    """Move a project to the installed version of fne.

    Run it after `pip install --upgrade`. It writes the digests of the new code to code.yaml, and
    replaces pipeline files that you have not edited. It says which stages run again, which finished
    work is reused, and which settings have another default. `dvc repro` then computes.
    """
    say("\n".join([*upgrade_project(Path()), "next:", "  fne check && dvc repro"]))
