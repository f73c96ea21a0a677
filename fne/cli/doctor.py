"""`fne doctor`: describe the machine and the scratch folder, find problems, remove rows, share folders.

A problem is one line that ends in `; fix: ` and the command or the change that fixes it. What works and
could be better, such as defaults of DVC, is listed below the problems, as advice.
"""

from pathlib import Path

import click

from fne.core.options import OUTPUT, params_option
from fne.core.settings import load_runtime
from fne.core.terminal import say
from fne.sharing.device_check import check_device
from fne.sharing.doctor import diagnose
from fne.sharing.folders import share_with_group
from fne.sharing.scratch_folder import prune_rows


@click.command()
@params_option
@click.option(
    "--prune",
    metavar="NAME",
    help="Remove finished rows from the scratch folder, by name or 'all', or finished 'training_runs'.",
)
@click.option(
    "--share", type=OUTPUT, metavar="DIR", help="Share the cache and the scratch folder with a group, in DIR."
)
@click.option("--group", metavar="NAME", help="With --share, for a new DIR: the group that may use it.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="Test a device for about a minute.",
)
def doctor(
    params: Path, prune: str | None, share: Path | None, group: str | None, device: str | None
) -> None:
    """Describe the machine and the scratch folder, and list problems.

    Checks links, permissions, free space, the Git identity, DVC's remotes and locks, settings
    of params.yaml that the machine does not support, and weights. Every problem is one line
    that ends with the command that fixes it. Advice about what could be better follows.

    The scratch folder (runtime.scratch) keeps finished rows of the extraction, so that no
    image is computed twice. Clones and users can share it. It can be removed at any time:
    missing rows are computed again.

    --device computes drawn images with the settings of params.yaml and compares them with the
    plain algorithm on the CPU. It prints a table and advice for the section runtime, and
    writes a JSON file to the scratch folder; attach it to bug reports.
    """
    runtime = load_runtime(params)
    scratch = runtime.scratch_folder()
    if device:
        say(check_device(params, device, scratch))
    elif share:
        say(share_with_group(share.absolute(), group, scratch))
    else:
        say(prune_rows(scratch, prune) if prune else diagnose(runtime, params))
