"""`fne verify`: its arguments and its help; `fne.commands` does the work."""

from pathlib import Path

import click

from fne.core.command import INPUT


@click.command()
@click.argument("paths", nargs=-1, type=INPUT)
@click.option("--remote", metavar="NAME", help="Check this remote of DVC instead of artifacts.")
@click.option("--read", is_flag=True, help="Remote: read all contents, not only where sizes leave a doubt.")
@click.option("--repair", is_flag=True, help="Remote: send again what is missing or wrong, and check again.")
@click.option("--all-commits", is_flag=True, help="Remote: also what all commits name.")
@click.option("--rev", "revisions", metavar="REV", multiple=True, help="Remote: only what this commit names.")
@click.option("--run-cache", is_flag=True, help="Remote: also what `dvc repro --pull` restores.")
@click.option("--install-hook", is_flag=True, help="Remote: check it before each `git push` from now on.")
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
    """Check artifacts in full: those at PATHS, or all of the pipeline.

    Hashes every byte; looks at shapes, ids, values, links out of files, files that do not
    belong, and whether the artifacts were made from each other. Every fault is a line that
    ends with the command that mends it; the exit code is then 2.

    With --remote, check that a colleague can really pull from there everything that
    dvc.lock and .dvc files name, in the workspace and in the last commit.
    """
    choices = [read, repair, all_commits, revisions, run_cache, install_hook]
    if any(choices) if remote is None else paths:
        raise click.UsageError("name either artifacts or --remote NAME; the other options go with --remote")
    if remote is not None and install_hook:
        from fne.sharing.hook import install_hook as install

        click.echo(f"`git push` now checks '{remote}' first; remove the hook with: {install(remote)}")
        return
    if remote is not None:
        from fne.commands.remote import verify_remote

        answer = verify_remote(remote, read, repair, all_commits, revisions, run_cache)
        click.echo(answer.summary)
        for fault in answer.faults:
            click.echo(fault, err=True)
        raise click.exceptions.Exit(2 if answer.faults else 0)
    from fne.commands.verify import verify as work

    verdict = work(paths)
    for fault in verdict.faults:
        click.echo(fault, err=True)
    absent = f", {len(verdict.absent)} not here (`dvc pull` fetches them)" if verdict.absent else ""
    click.echo(f"{verdict.checked} artifacts verified{absent}, {len(verdict.faults) or 'no'} faults")
    if verdict.faults:
        raise click.exceptions.Exit(2)
