"""Published folders: row stores that strangers can use, with a card and the digest of every file.

```
README.md                      the card: what the rows are, and how to read them without this package
SHA256SUMS                     one line per file, which `sha256sum --check` reads
activations/manifest.json      a row store, byte for byte as it is in the project
activations/shard-0000.h5
```

A store has ids and numbers. Images and captions are never among its files. Nothing is read that the list does
not name, and names lead nowhere else. What begins with a dot in the folder itself is of the program that
carried it, such as `.gitattributes`, and is ignored.
"""

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from fne.core.errors import InputError, LinesError
from fne.core.files import (
    check_regular,
    file_digest,
    files_in,
    read_bytes,
    readable_read_errors,
    replacing_folder,
    sync,
)
from fne.core.progress import progress
from fne.core.terminal import BYTES
from fne.store.artifact import Contents, Done, Kind, Lines
from fne.store.layout import MANIFEST
from fne.store.rows import STORE, Rows

DIGESTS, CARD = "SHA256SUMS", "README.md"
NAME = r"\w[\w.-]*"
LINE = re.compile(
    rf"([0-9a-f]{{64}})  (README\.md|{NAME}/(?:manifest\.json|shard-[0-9]{{4,9}}\.h5))", re.ASCII
)
AGAIN = "get the folder again from where it is published"


def publish(stores: Mapping[str, Rows], folder: Path, card: str) -> None:
    """Write stores, by the names of their folders, a card and the digests of all files to a new folder."""
    for name, rows in stores.items():
        if not re.fullmatch(NAME, name, re.ASCII):
            raise InputError(
                f"{rows.artifact.path}: folder {name!r} is not published; use letters, digits, - and _"
            )
        if not rows.ids:
            raise InputError(f"{rows.artifact.path}: has no rows; nothing was published")
    files = {
        f"{name}/{file}": rows.artifact.path / file
        for name, rows in stores.items()
        for file in (MANIFEST, *(shard.file for shard in rows.shards))
    }
    refuse_existing(folder)
    with replacing_folder(folder) as written:
        (written / CARD).write_text(card, encoding="utf-8", newline="\n")
        digests = {CARD: file_digest(written / CARD)} | _copy(files, written, "publishing")
        lines = [f"{digest}  {name}\n" for name, digest in sorted(digests.items())]
        (written / DIGESTS).write_text("".join(lines), encoding="utf-8", newline="\n")
        _refuse(_faults(written, digests, lambda size: None), written, folder)


def take(source: Path, folder: Path) -> list[Rows]:
    """Check a published folder and copy it, with the lineage of its stores; return these."""
    digests = read_digests(source)
    refuse_existing(folder)
    _refuse(_faults(source, digests, lambda size: None), source, source)
    with replacing_folder(folder) as written:
        copied = _copy({name: source / name for name in [*digests, DIGESTS]}, written, "importing")
        changed = [name for name, digest in digests.items() if copied[name] != digest]
        _refuse([f"{written / name}: changed while it was read" for name in changed], written, source)
    return [Rows.open(folder / name) for name in stores_of(digests)]


def read_digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file of a published folder by its path; refuse what leads out of it."""
    path = folder / DIGESTS
    if not path.is_file():
        raise InputError(f"{folder}: has no {DIGESTS}; a folder that `fne publish` wrote is expected")
    found: dict[str, str] = {}
    for number, line in enumerate(read_bytes(path).decode("utf-8", "replace").splitlines(), start=1):
        listed = LINE.fullmatch(line)
        if listed is None or listed[2] in found:
            raise InputError(f"{path}: line {number} {line[:120]!r} names no file of such a folder; {AGAIN}")
        found[listed[2]] = listed[1]
    needed = [CARD, *(f"{store}/{MANIFEST}" for store in stores_of(found))]
    if lacking := [name for name in needed if name not in found] or [MANIFEST] * (len(needed) == 1):
        raise InputError(f"{path}: does not name {lacking[0]}; {AGAIN}")
    return found


def stores_of(digests: Iterable[str]) -> list[str]:
    """Return the folders of the stores among the files of a published folder."""
    return sorted({name.partition("/")[0] for name in digests if "/" in name})


def _faults(folder: Path, digests: Mapping[str, str], done: Done) -> Lines:
    """Return where a folder is not what its digests say, or its stores are damaged; one line each."""
    here = {each.relative_to(folder).as_posix() for each in files_in(folder)}
    here = {each for each in here if not each.startswith(".")} - {DIGESTS}
    faults = [f"{folder / name}: is missing" for name in sorted(digests.keys() - here)]
    faults += [f"{folder / name}: {DIGESTS} does not name it" for name in sorted(here - digests.keys())]
    faults += [f"{folder / name}: is a link" for name in sorted(here) if _is_link(folder, name)]
    if faults:
        return faults
    for name in [CARD, *(f"{store}/{MANIFEST}" for store in stores_of(digests))]:
        faults += _digest_fault(folder / name, file_digest(folder / name), digests[name])
    if faults:
        return faults
    # The shards are hashed with the stores, which name the same digests.
    for store in stores_of(digests):
        try:
            for shard in Rows.open(folder / store).shards:
                name = f"{store}/{shard.file}"
                faults += _digest_fault(folder / name, shard.sha256, digests.get(name, "none"))
            faults += STORE.check(folder / store, done).faults
        except InputError as error:
            faults.append(error.message)
    return faults


def _is_link(folder: Path, name: str) -> bool:
    return any((folder / each).is_symlink() for each in (name, str(Path(name).parent)))


def _digest_fault(path: Path, found: str, expected: str) -> Lines:
    if found == expected:
        return []
    return [f"{path}: {DIGESTS} says {expected[:12]}…, found {found[:12]}…"]


def _copy(files: Mapping[str, Path], target: Path, title: str) -> dict[str, str]:
    """Copy files to their names in a folder, and return the digests of the copies."""
    digests = {}
    sizes = {name: path.stat().st_size for name, path in files.items() if path.is_file()}
    with progress(title, sum(sizes.values()), unit=BYTES, leave=False) as shown:
        for name, path in files.items():
            copy = target / name
            copy.parent.mkdir(exist_ok=True)
            with readable_read_errors(path):
                check_regular(path)
                shutil.copyfile(path, copy)
            sync(copy)
            digests[name] = file_digest(copy)
            shown.update(sizes[name])
    return digests


def refuse_existing(folder: Path) -> None:
    """Refuse to replace a folder."""
    if folder.exists() or folder.is_symlink():
        raise InputError(f"{folder}: exists already and is not replaced; name another folder with --to")


def _refuse(faults: Lines, place: Path, shown: Path) -> None:
    """Raise an error with all faults of a folder, which messages call by another name if it is temporary."""
    if faults:
        raise LinesError("\n".join(f"{each.replace(str(place), str(shown))}; {AGAIN}" for each in faults))


def _check(path: Path, done: Done) -> Contents:
    return Contents(faults=_faults(path, read_digests(path), done))


def _describe(path: Path) -> Lines:
    digests = read_digests(path)
    lines = [f"{path}: a published folder, {len(digests)} files"]
    for store in stores_of(digests):
        lines += STORE.describe(path / store) if STORE.describe else []
    return lines


PUBLISHED = Kind("published folders", _check, None, _describe, lambda path: (path / DIGESTS).is_file())
