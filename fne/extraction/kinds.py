"""What `fne verify` compares between activations and the weights that the lock file records."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fne.core.dvc import project_path
from fne.extraction.settings import INPUTS
from fne.extraction.text_networks import ARTIFACT, find_network
from fne.extraction.weights import has_digest
from fne.store.artifact import Artifact, Source
from fne.store.layout import plan_shards
from fne.store.rows import WITHOUT_ROWS, Rows


def _fault(artifact: Artifact, file: Path, recorded: Mapping[str, Any]) -> str | None:
    source, without_rows = recorded.get("embed.source"), WITHOUT_ROWS in artifact.settings
    if source is not None and (Path(str(source)) != project_path(artifact.path)) != without_rows:
        return f"embed.source is not {source!r}"
    if without_rows:
        return None
    backbone, digest = artifact.settings.get("backbone"), artifact.lineage.get("weights", {}).get("digest")
    if not has_digest(file, str(backbone), str(digest)):
        return f"{file} has other weights"
    wanted = INPUTS.get(str(recorded.get("input")))  # none for `auto`
    if wanted and wanted.model_dump() != artifact.settings.get("input"):
        return f"extract.input is not {recorded['input']!r}"
    shards, rows = recorded.get("shards"), Rows.open(artifact.path)
    if isinstance(shards, int) and shards > 0 and plan_shards(rows.ids, shards) != rows.plan():
        return f"extract.shards is not {shards}"
    return None


def _text_fault(artifact: Artifact, place: Path, recorded: Mapping[str, Any]) -> str | None:
    known = artifact.lineage.get(ARTIFACT)
    if known is None:  # imported
        return None
    same = find_network(place)[0].digest == known["digest"]
    return None if same else f"{place} names another text network"


TEXT_NETWORK = Source("caption_features", "extract_text", "network", _text_fault)
WEIGHTS = Source("activations", "extract", "weights", _fault)
