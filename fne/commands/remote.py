"""`fne verify --remote`: can a colleague really pull everything?"""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any

from fne.core.errors import InputError
from fne.sharing.check import Fault, Findings, check_objects
from fne.sharing.depot import Depot
from fne.sharing.named import Named, named_objects, open_project
from fne.sharing.repair import ABSENT, ROTTEN, send_again
from fne.sharing.runs import RUNS, missing_notes, restorable_results, send_notes

SHOWN = 20  # faults in one folder: a remote that has nothing would have a line for every image


@dataclass(frozen=True)
class Answer:
    """What was checked, and what a colleague could not pull: a line each, with the command that mends it."""

    summary: str
    faults: list[str]


def verify_remote(
    name: str,
    read: bool = False,
    repair: bool = False,
    all_commits: bool = False,
    revisions: Sequence[str] = (),
    run_cache: bool = False,
) -> Answer:
    """Check that a remote has every object that the project names.

    Args:
        name: the remote, as DVC knows it.
        read: also read all contents.
        repair: send again what is missing or wrong, and check again.
        all_commits: also what all commits name.
        revisions: only what these commits name, not the workspace.
        run_cache: also the notes and results of the run-cache.

    Raises:
        InputError: if there is no such remote, or if it cannot be reached.
    """
    with open_project() as repo:
        cache, remote = Depot("the local cache", repo.cache.local), _depot(repo, name)
        named = named_objects(repo, name, revisions, all_commits)
        for out in restorable_results(repo, cache) if run_cache else []:
            named.add(out)
        start = time.perf_counter()
        found = check_objects(named.outs.values(), remote, cache, read)
        notes = missing_notes(repo, name) if run_cache else []
        unsent: dict[str, str] = {}
        sent = ""
        if repair and (found.faults or notes):
            unsent = send_again(found.faults, cache, remote)
            if notes:
                send_notes(repo, name)
            sent = f"sent {len({fault.oid for fault in found.faults}) - len(unsent) + len(notes)} again\n"
            found = check_objects(named.outs.values(), remote, cache, read)
            notes = missing_notes(repo, name) if run_cache else []
        seconds = time.perf_counter() - start
    faults = [*_fault_lines(found.faults, unsent, name), *_note_lines(notes, name), *_unmade_lines(named)]
    return Answer(sent + _summary(remote, named, found, seconds), faults)


def _depot(repo: Any, name: str) -> Depot:
    from dvc.config import ConfigError  # slow to import
    from dvc.exceptions import DvcException

    try:
        return Depot(name, repo.cloud.get_remote_odb(name, "verify"))
    except (ConfigError, DvcException) as error:
        known = ", ".join(sorted(repo.config["remote"])) or "none; add one with `dvc remote add NAME URL`"
        raise InputError(f"remote '{name}': {' '.join(str(error).split())}; there are: {known}") from None


def _summary(remote: Depot, named: Named, found: Findings, seconds: float) -> str:
    checked = len(found.paths)
    bad = len({fault.oid for fault in found.faults})
    lines = [
        f"{remote.name} ({remote.url}): {checked} objects, {found.size / 1e6:,.1f} MB, "
        f"{checked - bad} as they should be, {found.read} of them read; "
        f"{seconds:.1f} s, {checked / max(seconds, 1e-9):,.0f} objects/s"
    ]
    if named.imported:
        lines.append(
            f"not looked for, because other repositories have it: {', '.join(sorted(named.imported))}"
        )
    lines += [f"passed over, because DVC cannot read it: commit {each}" for each in named.unreadable]
    return "\n".join(lines)


def _fault_lines(faults: Sequence[Fault], unsent: Mapping[str, str], name: str) -> list[str]:
    lines = []
    ordered = sorted(faults, key=lambda fault: (_folder(fault), fault.path))
    for folder, group in groupby(ordered, key=_folder):
        alike = list(group)
        lines += [_line(fault, unsent.get(fault.oid), name) for fault in alike[:SHOWN]]
        if len(alike) > SHOWN:
            lines.append(f"{folder}: and {len(alike) - SHOWN} more objects like these")
    return lines


def _folder(fault: Fault) -> str:
    return str(PurePosixPath(fault.path).parent)


def _line(fault: Fault, unsent: str | None, name: str) -> str:
    command = f"fne verify --remote {shlex.quote(name)} --repair"
    if unsent is None:
        remedy = f"mend it: {command}"
    elif unsent == ABSENT:
        remedy = f"{unsent}; mend it where it was made, or after `dvc repro`: {command}"
    else:
        damaged, path = shlex.quote(unsent.removesuffix(ROTTEN)), shlex.quote(fault.path)
        remedy = f"{unsent}; mend it: rm -rf {damaged} {path} && dvc repro && {command}"
    return f"{fault.path} ({fault.oid}) {fault.what}; {remedy}"


def _note_lines(notes: Sequence[str], name: str) -> list[str]:
    command = f"fne verify --remote {shlex.quote(name)} --run-cache --repair"
    shown = [
        f"{RUNS}/{note}: this note of the run-cache is missing; mend it: {command}" for note in notes[:SHOWN]
    ]
    return shown + [f"{RUNS}: and {len(notes) - SHOWN} more notes like these"] * (len(notes) > SHOWN)


def _unmade_lines(named: Named) -> list[str]:
    return [f"{path}: dvc.lock has no digest of it; mend it: dvc repro" for path in named.unmade]
