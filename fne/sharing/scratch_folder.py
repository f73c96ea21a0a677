"""The scratch folder: what it holds, and how finished work is removed from it."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.core.files import files_in, read_bytes
from fne.extraction.finished_rows import HARDWARE_SUFFIX, KIND
from fne.store.journal import Journal
from fne.training.finished_runs import finished_training_runs

# The settings of finished rows that the summary shows.
SUMMARY_KEYS = ("backbone", "crops", "resize", "activations", "precision", "algorithm", "device", "weights")
# Other folders of the scratch folder; all of them may be removed while nothing runs.
OTHER_FOLDERS = {
    "training": "unfinished training",
    "search": "indexes of searched folders",
    "settings": "copies of recorded settings",
    "written": "written tags and captions",
}
TRAINING_RUNS = "training_runs"  # the name of finished training runs in --prune


def describe_scratch(scratch: Path) -> Iterator[str]:
    """Yield a line for each kind of finished rows, each finished training run and each other folder."""
    yield from map(_line, _row_folders(scratch))
    for each in finished_training_runs(scratch):
        size = each.path.stat().st_size
        yield f"  finished training {each.path.stem[:12]}: {each.summary}, {size / 1e6:.1f} MB"
    for name, title in OTHER_FOLDERS.items():
        folder = scratch / name
        size = sum(path.stat().st_size for path in files_in(folder)) if folder.is_dir() else 0
        if size:
            yield f"  {title}: {size / 1e6:.1f} MB, in {folder}"


def prune_rows(scratch: Path, name: str) -> str:
    """Remove finished training runs, or the rows in one folder or in all; return the freed size."""
    if name == TRAINING_RUNS:
        files = [each.path for each in finished_training_runs(scratch)]
        freed = sum(each.stat().st_size for each in files)
        for each in files:
            each.unlink(missing_ok=True)
        return f"removed {len(files)} finished training runs, {freed / 1e6:.1f} MB"
    folders = _row_folders(scratch)
    chosen = [folder for folder in folders if name in ("all", folder.name)]
    if not chosen:
        known = ", ".join([*(folder.name for folder in folders), TRAINING_RUNS])
        raise InputError(f"no rows '{name}' in {scratch}; existing rows: {known}")
    freed = sum(_size(folder) for folder in chosen)
    for folder in chosen:
        _remove_rows(folder)
    return f"removed {len(chosen)} kinds of rows, {freed / 1e6:.1f} MB"


def _remove_rows(folder: Path) -> None:
    """Remove the rows in a folder while holding all its locks; the lock files stay."""
    features = _settings(folder)["features"]
    journals = [Journal(path.with_suffix(".rows"), features) for path in sorted(folder.glob("*.lock"))]
    held = []
    try:
        for journal in journals:
            if not journal.lock():
                raise InputError(
                    f"{folder}: process {journal.owner()} is using it; wait for the process or stop it"
                )
            held.append(journal)
        for journal in journals:
            for path in (journal.path, journal.path.with_suffix(HARDWARE_SUFFIX)):
                path.unlink(missing_ok=True)
    finally:
        for journal in held:
            journal.unlock()


def _row_folders(scratch: Path) -> list[Path]:
    return sorted(
        path.parent
        for path in scratch.glob(f"activations/*/{KIND}")
        if any(path.parent.glob("*.rows")) and _settings(path.parent)
    )


def damaged_rows(scratch: Path) -> Iterator[str]:
    """Find entries of the scratch folder that are not rows, or whose description is damaged."""
    for path in sorted(scratch.glob("activations/*")):
        if path.is_symlink() or not path.is_dir() or ((path / KIND).exists() and not _settings(path)):
            command = f"rm -r {shlex.quote(str(path))}"
            yield f"{path}: no rows of fne, or their description is damaged; fix: {command}"


def _settings(folder: Path) -> dict[str, Any]:
    """Return the description of rows; empty if it is damaged."""
    try:
        settings = json.loads(read_bytes(folder / KIND))
        usable = isinstance(settings["features"], int) and settings["features"] > 0
    except (InputError, ValueError, TypeError, KeyError, RecursionError):
        return {}
    return dict(settings) if usable else {}


def _line(folder: Path) -> str:
    settings = _settings(folder)
    shown = ", ".join(str(settings[key])[:12] for key in SUMMARY_KEYS if key in settings)
    size = _size(folder)
    rows = size // (settings["features"] * 4 + 64)
    return f"  {folder.name}  {rows} rows, {size / 1e6:.1f} MB: {shown}"


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.rows") if path.is_file())
