"""The seal of a training run's history: a folder of tables that `fne.training.history` writes.

`history.json` names the model that the history belongs to and what that is, and the digest of every other
file. So a changed table is detected, and so is the history of another run.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.core.files import files_in, read_bytes, sync, write_text
from fne.store.artifact import Artifact, Format, parse_document, repair_hint
from fne.store.checksums import seal_text

FORMAT = Format("fne-history", 2)
SEAL = "history.json"
MODEL = "model"  # what a matching model is called in lineages


@dataclass(frozen=True)
class HistorySeal:
    """What the seal of a history says."""

    model: str  # the SHA-256 of the model file that the run wrote
    points: int  # how many validations there are
    artifact: Artifact  # the history, made from that model


def seal_history(folder: Path, points: int, model: str, kind: str = MODEL) -> None:
    """Seal the files of a folder, with the digest of the model of the run, and its name in lineages."""
    files = _digests(folder)
    for name in files:
        sync(folder / name)
    seal: dict[str, Any] = FORMAT.header() | {"model": model, "points": points, "files": files}
    if kind != MODEL:  # histories of matching models stay as they were
        seal["kind"] = kind
    write_text(folder / SEAL, seal_text(json.dumps(seal, indent=1) + "\n"))


def read_history_seal(folder: Path) -> HistorySeal:
    """Return what a history says about itself, checking every file."""
    place = folder / SEAL
    content = read_bytes(place)
    document = parse_document(place, content, FORMAT, repair_hint(folder))
    try:
        model, points, files = str(document["model"]), int(document["points"]), dict(document["files"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{place}: damaged ({error!r}); {repair_hint(folder)}") from None
    found = _digests(folder)
    for name in sorted({*files, *found}):
        if files.get(name) != found.get(name):
            expected, actual = (str(each.get(name, "no file"))[:12] for each in (files, found))
            raise InputError(
                f"{folder / name}: damaged: expected {expected}…, found {actual}…; {repair_hint(folder)}"
            )
    lineage = {str(document.get("kind", MODEL)): {"digest": model, "settings": {}}}
    return HistorySeal(
        model, points, Artifact(folder, "history", hashlib.sha256(content).hexdigest(), {}, lineage)
    )


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in files_in(folder) if path != folder / SEAL)
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }
