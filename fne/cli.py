"""The `fne` command: a group of the subcommands in `fne.subcommands`."""

import click

from fne.subcommands.bring import import_
from fne.subcommands.check import check
from fne.subcommands.doctor import doctor
from fne.subcommands.inspect import inspect
from fne.subcommands.preset import preset
from fne.subcommands.search import search
from fne.subcommands.table import table
from fne.subcommands.verify import verify


# In the docstrings of commands, \b tells click to leave a paragraph's lines as they are.
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

    The commands below ask what it has made, and look after parameters, artifacts and the machine.
    """


for command in (check, inspect, verify, search, import_, doctor, preset, table):
    main.add_command(command)
