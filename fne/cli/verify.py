"""`fne verify`: whether artifacts are intact and fit together, and whether a remote has everything."""

from pathlib import Path

import click

from fne.cli.artifacts import KINDS, SOURCES
from fne.core.options import INPUT
from fne.core.terminal import harmless, say
from fne.sharing import git_hook
from fne.sharing.remote_verdict import verify_remote
from fne.store.verify import verify_artifacts


@click.command()
@click.argument("paths", nargs=-1, type=INPUT)
@click.option("--remote", metavar="NAME", help="Check this DVC remote instead of artifacts.")
@click.option("--read", is_flag=True, help="Remote: read all contents, not only where sizes leave a doubt.")
@click.option(
    "--repair", is_flag=True, help="Remote: send again what is missing or damaged, and check again."
)
@click.option("--all-commits", is_flag=True, help="Remote: also check what all commits track.")
@click.option(
    "--rev", "revisions", metavar="REV", multiple=True, help="Remote: check only what this commit tracks."
)
@click.option("--run-cache", is_flag=True, help="Remote: also check what `dvc repro --pull` restores.")
@click.option("--install-hook", is_flag=True, help="Remote: check it before each `git push`.")
def verify(
    paths: tuple[Path, ...],
    remote: str | None,
    read: bool,
    repair: bool,
    all_commits: bool,
    revisions: tuple[str, ...],
    run_cache: bool,
    install_hook: bool,
) -> None:
    """Check artifacts completely: those at PATHS, or all of the pipeline.

    Hashes every byte. Checks shapes, ids, values, links out of files, foreign files, and whether
    the artifacts were made from each other. Every fault is a line that ends with the command
    that repairs it; the exit code is then 2.

    With --remote, check that a colleague can pull from there everything that dvc.lock and .dvc
    files record, in the workspace and in the last commit.
    """
    choices = [read, repair, all_commits, revisions, run_cache, install_hook]
    if any(choices) if remote is None else paths:
        raise click.UsageError("name either artifacts or --remote NAME; the other options go with --remote")
    if remote is not None and install_hook:
        say(f"`git push` now checks '{remote}' first; remove the hook with: {git_hook.install_hook(remote)}")
        return
    if remote is not None:
        result = verify_remote(remote, read, repair, all_commits, revisions, run_cache)
        say(result.summary)
        for fault in result.faults:
            say(harmless(fault, keep=""), err=True)
        raise click.exceptions.Exit(2 if result.faults else 0)
    verdict = verify_artifacts(paths, KINDS, SOURCES)
    for fault in verdict.faults:
        say(harmless(fault, keep=""), err=True)
    absent = f", {len(verdict.absent)} not here (`dvc pull` fetches them)" if verdict.absent else ""
    say(f"{_count(verdict.checked, 'artifact')} verified{absent}, {_count(len(verdict.faults), 'fault')}")
    if verdict.faults:
        raise click.exceptions.Exit(2)


def _count(number: int, what: str) -> str:
    """Return a number of things as text.

    Example:
        >>> _count(0, "fault"), _count(1, "fault"), _count(2, "fault")
        ('no faults', '1 fault', '2 faults')
    """
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
