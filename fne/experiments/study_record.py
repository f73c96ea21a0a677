"""What a study leaves in its folder: the digest of its file, and a file with the ranks of each training.

`record.json` is written before the first run. A file that was changed afterwards is refused with both
digests: hypotheses that were written after the results would count for nothing.

`results/GRID/LEVEL/…/fold-F-seed-S.h5` holds the ranks of one training, the key that decided them, and
what was chosen on the inner validation.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fne.core.errors import InputError
from fne.core.files import read_bytes, text_digest, write_text
from fne.evaluation.metrics.recall import sum_of_recalls, summarize
from fne.evaluation.ranks_file import RANKS
from fne.experiments.study_file import Study, StudyCell
from fne.store.arrays import read_arrays, write_arrays

RECORD, LOCK, WORK = "record.json", "lock", ".study-work"
AGAIN = "remove the file, and `fne study run` computes it again"


@dataclass(frozen=True)
class StudyResult:
    """The ranks of one training on the test images of its fold.

    Attributes:
        image_ids: of the test images.
        caption_image: the position of each caption's image (captions).
        image_ranks: of the first true caption of each image (images).
        caption_ranks: of the image of each caption (captions).
        validation: the sum of recalls on the inner validation, of the chosen draw.
        features: the values of an image.
        size: the bytes of the code of an image.
        trials: each draw with its validation and what was chosen.
        decided_by: the key of the training: its settings, and the digests of its inputs.
    """

    image_ids: list[str]
    caption_image: np.ndarray
    image_ranks: np.ndarray
    caption_ranks: np.ndarray
    validation: float
    features: int
    size: int
    trials: list[dict[str, Any]]
    decided_by: dict[str, Any] = field(default_factory=dict)

    @property
    def rsum(self) -> float:
        """The sum of the six recalls on the test images."""
        return sum_of_recalls(summarize(self.image_ranks), summarize(self.caption_ranks))


def require_own_folder(folder: Path) -> None:
    """Refuse a folder that holds something else than the results of a study.

    Raises:
        InputError: if it holds files but no record, or is no folder.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose another folder with --to")
    if not folder.exists() or (folder / RECORD).exists():
        return
    others = sorted(each.name for each in folder.iterdir() if each.name not in (LOCK, WORK))
    if others:
        raise InputError(
            f"{folder}: holds '{others[0]}' and no record of a study; choose another folder with --to"
        )


def record_study(study: Study, folder: Path) -> None:
    """Record the digest of a study's file before its first run, or compare it with the recorded one.

    Raises:
        InputError: if the file was changed, with both digests.
    """
    path = folder / RECORD
    current = {"file": study.digest, **_conditions(study)}
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(current | {"hypotheses": len(study.file.hypotheses)}, indent=2) + "\n")
        return
    check_record(study, folder)


def check_record(study: Study, folder: Path) -> None:
    """Compare a study with its record.

    Raises:
        InputError: if nothing was run, or if the file was changed since, with both digests.
    """
    path = folder / RECORD
    if not path.exists():
        raise InputError(f"{folder}: nothing was run yet; use `fne study run {study.path}`")
    try:
        recorded = json.loads(read_bytes(path))
        before, conditions = recorded["file"], {name: recorded[name] for name in _conditions(study)}
        if not isinstance(before, str):
            raise KeyError("file")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: damaged ({error}); choose another folder with --to") from None
    if before != study.digest:
        raise InputError(
            f"{study.path} was recorded as {before[:12]}… before its first run, and is "
            f"{study.digest[:12]}… now; restore the file, or run the new one in another folder with --to"
        )
    if conditions != _conditions(study):
        said = [
            ", ".join(f"{name} {value}" for name, value in each.items())
            for each in (conditions, _conditions(study))
        ]
        raise InputError(
            f"{folder}: was run with {said[0]}, not with {said[1]}; choose another folder with --to"
        )


def keep_result(
    folder: Path, cell: StudyCell, fold: int, seed: int, key: dict[str, Any], result: StudyResult
) -> None:
    """Keep the ranks of a training."""
    path = _path(folder, cell, fold, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray | Sequence[str]] = {
        "image_ids": result.image_ids,
        "caption_image": result.caption_image.astype(np.int32),
        "image_ranks": result.image_ranks.astype(np.int32),
        "caption_ranks": result.caption_ranks.astype(np.int32),
    }
    settings = {
        "cell": cell.name,
        "fold": fold,
        "seed": seed,
        "key": _digest(key),
        "decided_by": key,
        "validation": result.validation,
        "features": result.features,
        "bytes": result.size,
        "trials": result.trials,
    }
    write_arrays(path, "ranks", arrays, settings, {})


def find_result(
    folder: Path, cell: StudyCell, fold: int, seed: int, key: dict[str, Any] | None = None
) -> StudyResult | None:
    """Return the kept ranks of a training, or None; with a key, only those that this key decided.

    Raises:
        InputError: if the file is damaged, or holds the result of another training than its name says.
    """
    path = _path(folder, cell, fold, seed)
    if not path.exists():
        return None
    try:
        found = read_arrays(path, RANKS)
    except InputError as error:
        raise InputError(f"{error.message} (a result of a study: {AGAIN})") from None
    settings = found.artifact.settings
    if key is not None and settings.get("key") != _digest(key):
        return None
    place = f"{cell.name!r}, fold {fold}, seed {seed}"
    own = f"{settings.get('cell')!r}, fold {settings.get('fold')}, seed {settings.get('seed')}"
    if own != place:
        told = f"{own} (key {str(settings.get('key'))[:12]}…)"
        raise InputError(f"{path}: holds the result of {told}, not of {place}; {AGAIN}")
    return StudyResult(
        image_ids=found.texts("image_ids"),
        caption_image=found["caption_image"],
        image_ranks=found["image_ranks"],
        caption_ranks=found["caption_ranks"],
        validation=float(settings["validation"]),
        features=int(settings["features"]),
        size=int(settings["bytes"]),
        trials=list(settings["trials"]),
        decided_by=dict(settings["decided_by"]),
    )


def _conditions(study: Study) -> dict[str, int]:
    return {"seed": study.file.seed, "folds": study.file.folds, "images": study.images}


def _digest(key: dict[str, Any]) -> str:
    return text_digest(json.dumps(key, sort_keys=True))


def _path(folder: Path, cell: StudyCell, fold: int, seed: int) -> Path:
    return folder.joinpath("results", *cell.name.split("/"), f"fold-{fold}-seed-{seed}.h5")
