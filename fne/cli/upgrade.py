"""`fne upgrade`: move a project to the installed version of fne."""

from pathlib import Path

import click

from fne.core.terminal import say
from fne.projects.upgrade import told, upgrade_project


@click.command()
def upgrade() -> None:
    """Move a project to the installed version of fne, after `pip install --upgrade`.

    Writes the digests of the new code to code.yaml, and replaces pipeline files that you have not
    edited. Says which stages run again, which finished work is reused, and which settings have
    another default. Nothing is computed: `dvc repro` does that.
    """
    found = upgrade_project(Path())
    say("\n".join([*told(found), "next:", "  fne check && dvc repro"]))
