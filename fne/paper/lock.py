"""What a `dvc.lock` records of a run: the parameters that were really used, and the hashes of all files."""

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from fne.core.errors import InputError
from fne.paper.runs import Settings


def read_lock(text: bytes, place: str, params: str) -> tuple[Settings, dict[str, str]]:
    """Return the settings by section, and DVC's hash of each file and folder by its path.

    Args:
        text: the content of the lock.
        place: what to call it in messages.
        params: the parameter file whose values are asked for.

    Raises:
        InputError: if it is not valid YAML, as after a merge with conflicts.
    """
    stages = read_yaml(text, place).get("stages", {}).values()
    entries = [entry for stage in stages for key in ("deps", "outs") for entry in stage.get(key, [])]
    hashes = {entry["path"]: entry["md5"] for entry in entries if "md5" in entry}
    settings: Settings = {}
    for stage in stages:
        # A stage lists whole sections, or keys such as `train.seed`.
        for key, value in stage.get("params", {}).get(params, {}).items():
            section, _, name = key.partition(".")
            settings.setdefault(section, {}).update({name: value} if name else value)
    return settings, hashes


def read_yaml(text: bytes, place: str) -> dict[str, Any]:
    """Return the content of a YAML file that Git keeps."""
    try:
        content: dict[str, Any] = YAML(typ="safe", pure=True).load(text.decode()) or {}
    except (YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{place} is not valid YAML: {' '.join(str(error).split())}") from None
    return content
