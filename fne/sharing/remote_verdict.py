"""The verdict about a remote: what was checked there, and how to repair what is missing or damaged."""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath

from fne.core.dvc import added_path, is_own_object, open_repo, shared_objects
from fne.sharing.run_cache import RUNS, missing_entries, restorable_results
from fne.sharing.verify_remote import (
    CACHE_DAMAGED,
    NOT_CACHED,
    Fault,
    Findings,
    ObjectStore,
    TrackedOutputs,
    check_objects,
    remote_store,
    send_again,
    tracked_outputs,
)

SHOWN = 20  # faults per folder: an empty remote would have a line for every image


@dataclass(frozen=True)
class RemoteVerdict:
    """What was checked on a remote, and a line for each object that a colleague could not pull."""

    summary: str
    faults: list[str]


def verify_remote(
    name: str,
    read: bool = False,
    repair: bool = False,
    all_commits: bool = False,
    revisions: Sequence[str] = (),
    run_cache: bool = False,
) -> RemoteVerdict:
    """Check that a remote has every object that the project tracks, with the options of `fne verify`."""
    with open_repo() as repo:
        cache, remote = ObjectStore("the local cache", repo.cache.local), remote_store(repo, name)
        tracked = tracked_outputs(repo, name, revisions, all_commits)
        for output in restorable_results(repo, cache) if run_cache else []:
            tracked.outputs.setdefault(output.oid, output)
        start = time.perf_counter()
        found = check_objects(tracked.outputs.values(), remote, cache, read)
        entries = missing_entries(repo, name) if run_cache else []
        unsent: dict[str, str] = {}
        sent = ""
        if repair and (found.faults or entries):
            unsent = send_again(found.faults, cache, remote)
            if entries:
                repo.stage_cache.push(name)
            sent = f"sent {len({fault.oid for fault in found.faults}) - len(unsent) + len(entries)} again\n"
            found = check_objects(tracked.outputs.values(), remote, cache, read)
            entries = missing_entries(repo, name) if run_cache else []
        seconds = time.perf_counter() - start
    faults = [*_fault_lines(found.faults, unsent, name), *_entry_lines(entries, name)]
    faults += [f"{path}: dvc.lock has no digest of it; fix: dvc repro" for path in tracked.without_digest]
    return RemoteVerdict(sent + _summary(remote, tracked, found, seconds), faults)


def _summary(remote: ObjectStore, tracked: TrackedOutputs, found: Findings, seconds: float) -> str:
    checked = len(found.paths)
    bad = len({fault.oid for fault in found.faults})
    lines = [
        f"{remote.name} ({remote.url}): {checked} objects, {found.size / 1e6:,.1f} MB, "
        f"{checked - bad} intact, {found.read} of them read; "
        f"{seconds:.1f} s, {checked / max(seconds, 1e-9):,.0f} objects/s"
    ]
    if tracked.imported:
        lines.append(
            f"not checked, because other repositories have it: {', '.join(sorted(tracked.imported))}"
        )
    lines += [f"not checked, because DVC cannot read it: commit {each}" for each in tracked.unreadable]
    return "\n".join(lines)


def _fault_lines(faults: Sequence[Fault], unsent: Mapping[str, str], name: str) -> list[str]:
    lines = []
    ordered = sorted(faults, key=lambda fault: (_folder(fault), fault.path))
    for folder, group in groupby(ordered, key=_folder):
        alike = list(group)
        lines += [_line(fault, unsent.get(fault.oid), name) for fault in alike[:SHOWN]]
        if len(alike) > SHOWN:
            lines.append(f"{folder}: and {len(alike) - SHOWN} more objects")
    return lines


def _folder(fault: Fault) -> str:
    return str(PurePosixPath(fault.path).parent)


def _line(fault: Fault, unsent: str | None, name: str) -> str:
    command = f"fne verify --remote {shlex.quote(name)} --repair"
    if unsent is None:
        advice = f"fix: {command}"
    elif unsent == NOT_CACHED:
        advice = f"{unsent}; fix, on the machine that made it or after `dvc repro`: {command}"
    else:
        cached, path = Path(unsent.removesuffix(CACHE_DAMAGED)), shlex.quote(fault.path)
        own = is_own_object(cached)
        added = added_path(Path(fault.path))
        if added:  # by the user, whose file may be the only intact copy
            remove = f"rm -rf {shlex.quote(str(cached))} && " if own else ""
            again = f"if {path} is intact: {remove}dvc add {shlex.quote(str(added))}"
        else:
            removed = shlex.join([str(cached), fault.path] if own else [fault.path])
            again = f"rm -rf {removed} && dvc repro"
        shared = "" if own else f": {shared_objects([cached])}"
        advice = f"{unsent}{shared}; {'fix' if own else 'then'}{', ' if added else ': '}{again} && {command}"
    return f"{fault.path} ({fault.oid}) {fault.what}; {advice}"


def _entry_lines(entries: Sequence[str], name: str) -> list[str]:
    command = f"fne verify --remote {shlex.quote(name)} --run-cache --repair"
    shown = [
        f"{RUNS}/{entry}: this entry of the run cache is missing; fix: {command}" for entry in entries[:SHOWN]
    ]
    return shown + [f"{RUNS}: and {len(entries) - SHOWN} more entries"] * (len(entries) > SHOWN)
