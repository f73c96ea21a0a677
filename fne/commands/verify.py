"""`fne verify`: every artifact in full, by itself and against the others.

What was remembered about shards is never asked: each byte is hashed now. A fault is one
line that names the place, what is wrong and the command that mends it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from fne.commands.agreement import disagreements, look_around
from fne.commands.contents import CHECKS, Contents
from fne.commands.kinds import STORE, kind_of
from fne.commands.tracked import Out, content_md5, pipeline_outs, remedy, stage_sources
from fne.core.errors import InputError
from fne.store.formats import is_sealed
from fne.store.layout import MANIFEST


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
    chosen = list(dict.fromkeys(paths)) or [path for path in known if path.exists()]
    found: dict[Path, Contents] = {}
    faults: list[str] = []
    with tqdm(total=sum(map(_size, chosen)), unit="B", unit_scale=True, disable=None, leave=False) as bar:
        for path in chosen:
            bar.set_description(str(path))
            contents, own = _check(path, outs.get(path), bar.update)
            found[path] = contents
            if own:
                mend = remedy(path, outs.get(path))
                faults += [f"{fault}; {mend}" for fault in own]
    around = look_around(path for path in dict.fromkeys([*known, *chosen]) if path.exists())
    for path, contents in found.items():
        faults += [f"{fault}; run `dvc repro`" for fault in disagreements(path, contents, around)]
    return Verdict(len(chosen), [] if paths else [path for path in known if not path.exists()], faults)


def _check(path: Path, out: Out | None, done: Callable[[int], object]) -> tuple[Contents, list[str]]:
    """Return what an artifact holds and its own faults, without what mends them."""
    if not path.exists():
        return Contents(), [f"{path}: no such file or folder"]
    check = CHECKS.get(kind_of(path))
    if check is None and out is None:
        return Contents(), [f"{path}: not an artifact of the pipeline"]
    try:
        contents = check(path, done) if check else Contents()
    except InputError as error:
        return Contents(), [_without_remedy(error.message)]
    return contents, [_without_remedy(fault) for fault in contents.faults] + _against_lock(path, out)


def _against_lock(path: Path, out: Out | None) -> list[str]:
    """Hold an artifact against the lock file, unless it is a store, whose manifest is sealed."""
    if out is None or out.md5 is None:
        return []
    if kind_of(path) == STORE and is_sealed((path / MANIFEST).read_bytes()):
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
