"""`fne verify`: every artifact in full, by itself and against the others.

What was remembered about shards is never asked: each byte is hashed now. A fault is one
line that names the place, what is wrong and the command that mends it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from fne.commands.agreement import disagreements, look_around
from fne.commands.contents import CHECKS, Contents
from fne.commands.kinds import FOLDER, STORE, kind_of
from fne.commands.tracked import (
    Out,
    added_out,
    content_md5,
    in_project,
    pipeline_outs,
    remedy,
    stage_sources,
)
from fne.core.errors import InputError


@dataclass(frozen=True)
class Verdict:
    """How many artifacts were checked, which of the pipeline's are not here, and all faults."""

    checked: int
    absent: list[Path]
    faults: list[str]


def verify(paths: Sequence[Path]) -> Verdict:
    """Check the artifacts at `paths`, or all of the pipeline that are here.

    Raises:
        InputError: if there is neither a path nor a pipeline.
    """
    outs = pipeline_outs()
    if not paths and not outs:
        raise InputError("dvc.yaml: no such file; run this in the project's folder, or name the artifacts")
    sources = [path for path in stage_sources() if kind_of(path) == STORE]
    known = list(dict.fromkeys([*outs, *sources]))
    here = [path for path in known if path.exists()]
    chosen = list(dict.fromkeys(each for path in paths for each in _within(in_project(path), here))) or here
    found: dict[Path, Contents] = {}
    faults: list[str] = []
    with tqdm(total=sum(map(_size, chosen)), unit="B", unit_scale=True, disable=None, leave=False) as bar:
        for path in chosen:
            bar.set_description(str(path))
            strange = _strange(path, outs)
            if strange:
                faults.append(f"{path}: {strange}")
                continue
            contents, own = _check(path, outs.get(path), bar.update)
            found[path] = contents
            if own:
                mend = remedy(path, outs.get(path) or added_out(path))
                faults += [f"{fault}; {mend}" for fault in own]
    around = look_around(path for path in dict.fromkeys([*known, *chosen]) if path.exists())
    for path, contents in found.items():
        # No stage makes an imported store.
        mend = "run `dvc repro`" if path in outs else "bring it again, or import it again with `fne import`"
        faults += [f"{fault}; {mend}" for fault in disagreements(path, contents, around)]
    return Verdict(len(found), [] if paths else [path for path in known if not path.exists()], faults)


def _within(path: Path, artifacts: Sequence[Path]) -> list[Path]:
    """Return the artifacts in a folder that is none itself, or the path as it is."""
    if kind_of(path) != FOLDER or path in artifacts:
        return [path]
    return [each for each in artifacts if each.is_relative_to(path)] or [path]


def _strange(path: Path, outs: Mapping[Path, Out]) -> str | None:
    """Say why a path cannot be checked at all, if nothing is known about it."""
    if path in outs or added_out(path):
        return None
    if not path.exists():
        return "no such file or folder"
    return None if kind_of(path) in CHECKS else "not an artifact of the pipeline"


def _check(path: Path, out: Out | None, done: Callable[[int], object]) -> tuple[Contents, list[str]]:
    """Return what an artifact holds and its own faults, without what mends them."""
    if not path.exists():
        return Contents(), [f"{path}: no such file or folder"]
    check = CHECKS.get(kind_of(path))
    try:
        contents = check(path, done) if check else Contents()
    except InputError as error:
        return Contents(), [_without_remedy(error.message)]
    return contents, [_without_remedy(fault) for fault in contents.faults] or _against_lock(path, out)


def _against_lock(path: Path, out: Out | None) -> list[str]:
    """Hold an artifact that is sound by itself against the lock file: it may be a sound other one."""
    if out is None or out.md5 is None:
        return []
    found = content_md5(path)
    if found == out.md5:
        return []
    return [f"{path}: is not what dvc.lock names: expected md5 {out.md5[:12]}…, found {found[:12]}…"]


def _without_remedy(message: str) -> str:
    """Cut off what a stage would advise: here DVC's cache is looked at before anything is advised."""
    fault, _, advice = message.rpartition("; ")
    return fault if advice.startswith(("remove ", "run ")) else message


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
