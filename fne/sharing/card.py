"""The card of a published folder: what a stranger needs to know, and to read the rows with h5py alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from fne.core.code import installed_version
from fne.core.terminal import format_bytes, printable
from fne.store.rows import Rows

TAGS = ["full-network-embedding", "hdf5", "image-features"]
# The Hub takes its own identifiers, such as `cc-by-4.0`, and a name for any other license.
OTHER = "other"
LONGEST = 200  # characters of a setting; longer ones stand in the manifest only
READ = '''import json
from pathlib import Path

import h5py
import numpy as np


def read_rows(folder):
    """Return the ids and the rows (ids, values) of a store."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    values = sum(count for _, count in manifest["layers"])
    ids, blocks = [], []
    for shard in manifest["shards"]:
        with h5py.File(folder / shard["file"], "r") as file:
            block = file["rows"][:]
        if manifest["dtype"] == "ternary":  # two planes of bits: where a value is +1, and where it is -1
            bits = [np.unpackbits(plane, axis=1, count=values) for plane in np.split(block, 2, axis=1)]
            block = bits[0].astype(np.int8) - bits[1].astype(np.int8)
        ids += shard["ids"]
        blocks.append(block)
    return ids, np.concatenate(blocks)
'''


@dataclass(frozen=True)
class About:
    """What the publisher says, and what the project knows of the images."""

    license: str
    dataset: str
    features: str  # the network, its crops and weights, in words


def card(stores: Mapping[str, Rows], about: About) -> str:
    """Return the card of stores by the names of their folders."""
    first = next(iter(stores))
    sections = [
        _head(about),
        f"# Image features: {about.dataset}",
        "Rows of numbers that were computed from images. The images and their captions are not part of this "
        "folder: a row has the id that its image or caption has in the data set.",
        _table(
            ["", ""],
            [
                ["data set", about.dataset],
                ["license, as the publisher states it", about.license],
                ["computed", about.features],
            ],
        ),
        "## Stores",
        _table(["folder", "what", "rows", "values", "type", "size", "digest"], map(_row, stores.items())),
        *(_made(name, rows) for name, rows in stores.items()),
        "## How it was verified",
        f"Before it was published, fne {installed_version()} hashed every shard, looked at every value and "
        "id, and compared the settings and digests with what the project had recorded. "
        "`sha256sum --check SHA256SUMS` checks the files again, `fne verify FOLDER` also their content.",
        "## Read it without fne",
        f'```python\n{READ}\n\nids, rows = read_rows(Path("{first}"))\nprint(rows.shape, ids[0])\n```',
        "## Get it",
        "```\nhf download USER/NAME --repo-type dataset --local-dir FOLDER    # from the Hugging Face Hub\n"
        "dvc get URL FOLDER                                              # from a Git repository with DVC\n"
        "rsync --archive HOST:FOLDER .                                   # from a machine\n```",
        "Then `fne import FOLDER` copies it into a project, with the origin of each store.",
    ]
    return "\n\n".join(sections) + "\n"


def _head(about: About) -> str:
    """Return the YAML head that the Hugging Face Hub reads."""
    is_identifier = about.license == about.license.lower() and " " not in about.license
    named = {"license": about.license} if is_identifier else {"license": OTHER, "license_name": about.license}
    out, yaml = StringIO(), YAML()
    yaml.width = 4096
    yaml.dump(named | {"pretty_name": f"{about.dataset}: image features", "tags": TAGS}, out)
    return f"---\n{out.getvalue()}---"


def _row(entry: tuple[str, Rows]) -> list[str]:
    name, rows = entry
    size = sum(file.stat().st_size for file in rows.artifact.path.iterdir())
    what = rows.artifact.name.replace("_", " ")
    counted = [f"{len(rows.ids):,}", f"{rows.features:,}"]
    return [f"`{name}`", what, *counted, rows.dtype, format_bytes(size), f"`{rows.artifact.digest[:16]}`"]


def _made(name: str, rows: Rows) -> str:
    """Return the layers of a store, its settings, and its ancestors with theirs."""
    layers = ", ".join(f"{layer.name} {layer.features}" for layer in rows.layers)
    lines = [f"### {name}", "", f"- layers: {printable(layers)}"]
    shown = {key: _shown(value) for key, value in rows.artifact.settings.items()}
    lines += [f"- {key}: `{value}`" for key, value in shown.items() if len(value) <= LONGEST]
    for ancestor, entry in rows.artifact.lineage.items():
        given = (entry.get("settings") or {}).items()
        settings = ", ".join(
            f"{key} `{text}`" for key, value in given if len(text := _shown(value)) <= LONGEST
        )
        lines.append(f"- made from {ancestor} `{entry['digest'][:16]}`{': ' * bool(settings)}{settings}")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return printable(str(value)).replace("`", "'")


def _table(head: list[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *([each.replace("|", "\\|") for each in row] for row in rows)]
    return "\n".join(f"| {' | '.join(map(printable, line))} |" for line in lines)
