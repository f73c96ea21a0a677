"""What a report page records about itself: its settings, and what it was made from.

The record is JSON in a `meta` element of the page. `fne verify` compares it with `dvc.lock` and with the
artifacts that are there.
"""

import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

from fne.core.errors import InputError
from fne.core.files import read_bytes
from fne.store.artifact import Artifact, Lineage, Sections, repair_hint

NAME = "fne-record"
REPORT = "report"  # the page that a record without a name is of
_RECORD = re.compile(rf'<meta name="{NAME}" content="([^"]*)">'.encode())


def page_record(
    settings: dict[str, Any],
    lineage: Lineage,
    files: dict[str, str],
    page: str = REPORT,
) -> str:
    """Return the record of a page, as JSON; the page itself shows the settings of its ancestors.

    The name of a page is that of its section of `params.yaml`.
    """
    digests = {name: entry["digest"] for name, entry in lineage.items()}
    named = {} if page == REPORT else {"page": page}
    made_in: Sections = {page: {}, "catalog.root": {}}
    record = {"settings": settings, "sections": made_in, "made_from": digests, "files": files}
    return json.dumps(named | record)


def catalog_state(lineage: Lineage) -> str:
    """Return the start of the digest of the images and captions that a page is about."""
    digests = [lineage[name]["digest"] for name in ("images", "captions") if name in lineage]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:8]


def pages_of_other_catalogs(page: Path, lineage: Lineage) -> list[Path]:
    """Return the pages beside a page that are about other images or captions, and damaged ones."""

    def differs(path: Path) -> bool:
        try:
            artifact = page_artifact(path)
        except InputError:
            return True
        return artifact is not None and catalog_state(artifact.lineage) != catalog_state(lineage)

    return [path for path in sorted(page.parent.glob("*.html")) if path != page and differs(path)]


def page_artifact(path: Path) -> Artifact | None:
    """Return a page as an artifact; None if it was made before pages had a record."""
    content = read_bytes(path)
    found = _RECORD.search(content)
    if found is None:
        return None
    try:
        record = json.loads(html.unescape(found[1].decode()))
        lineage = {name: {"digest": digest, "settings": {}} for name, digest in record["made_from"].items()}
        digest = hashlib.sha256(content).hexdigest()
        name = str(record.get("page", REPORT))
        sections = record.get("sections") or {}
        return Artifact(path, name, digest, record["settings"], lineage, record["files"], sections)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: its record is damaged ({error!r}); {repair_hint(path)}") from None
