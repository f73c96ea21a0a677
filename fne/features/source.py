"""The store that statistics and embeddings are made from: `embed.source`."""

from collections.abc import Sequence
from pathlib import Path

from fne.core.errors import InputError
from fne.store.lineage import Artifact
from fne.store.rows import Rows

# What the pipeline extracts; anything else was imported.
EXTRACTED = "features/activations"
REPRO = "run `dvc repro`"
ELSEWHERE = "have the same files under the same names below catalog.root, or set catalog.images to none"


def open_source(path: Path, images: Sequence[str] = (), files: Artifact | None = None) -> Rows:
    """Open a store of activations, extracted or brought from elsewhere.

    Args:
        path: the store's folder.
        images: the ids that it must have.
        files: the catalog's image files, if it has any: a store that says from which files it was made
            must have been made from these.

    Raises:
        InputError: if it is empty, lacks an image or was made from other files, saying what to do.
    """
    rows = Rows.open(path, "activations")
    if not rows.ids:
        raise InputError(
            f"{path}: holds no images, as with catalog.images 'none'; bring their features with "
            "`fne import FILE` and name its folder with `-S embed.source=FOLDER`"
        )
    known = set(rows.ids)
    missing = [each for each in images if each not in known]
    if missing:
        remedy = REPRO if path == Path(EXTRACTED) else "import features of all of them"
        raise InputError(
            f"{path}: lacks {len(missing)} of the catalog's {len(images)} images, "
            f"the first is {missing[0]!r}; {remedy}"
        )
    made_from = rows.artifact.lineage.get("images")
    if files and made_from and made_from["digest"] != files.digest:
        remedy = REPRO if path == Path(EXTRACTED) else ELSEWHERE
        raise InputError(
            f"{path} was made from images {made_from['digest'][:12]}…, but "
            f"{files.path} holds images {files.digest[:12]}…; {remedy}"
        )
    return rows
