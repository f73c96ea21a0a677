"""The store that statistics and embeddings are made from: `embed.source`."""

from collections.abc import Sequence
from pathlib import Path

from fne.core.errors import InputError
from fne.store.rows import Rows

# What the pipeline extracts; anything else was imported.
EXTRACTED = "features/activations"


def open_source(path: Path, images: Sequence[str] = ()) -> Rows:
    """Open a store of activations, extracted or imported.

    Args:
        path: the store's folder.
        images: the ids that it must have.

    Raises:
        InputError: if it is empty or lacks an image, saying what to do.
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
        remedy = "run `dvc repro`" if path == Path(EXTRACTED) else "import features of all of them"
        raise InputError(
            f"{path}: lacks {len(missing)} of the catalog's {len(images)} images, "
            f"the first is {missing[0]!r}; {remedy}"
        )
    return rows
