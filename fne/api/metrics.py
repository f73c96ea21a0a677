"""The metrics of a project, as its stages wrote them."""

from pathlib import Path
from typing import Any

from fne.api.project import open_project
from fne.core.errors import InputError
from fne.core.files import FETCH
from fne.store.artifact import read_metrics

FOLDER = "metrics"


def load_metrics(root: str | Path = ".") -> dict[str, Any]:
    """Return the content of all JSON files in the folder `metrics`, by their names.

    Args:
        root: the folder of the project.

    Returns:
        Among others `retrieval`, by split and protocol: recalls in percent, ranks, and `rsum`, the sum of the
        recalls; `intervals`: the 95 % intervals of these; `floor`: what a closed-form model reaches.

    Raises:
        InputError: if the folder has no `params.yaml`, or if there are no metrics or damaged ones.

    Example:
        >>> metrics = fne.load_metrics(project)
        >>> sorted(metrics["retrieval"]["test_full"]["image_to_text"])
        ['R@1', 'R@10', 'R@5', 'mean_rank', 'median_rank']
    """
    folder = open_project(root).path(FOLDER)
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError(f"{folder}: no metrics; {FETCH}")
    return {file.stem: read_metrics(file, "run `dvc repro`") for file in files}
