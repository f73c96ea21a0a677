"""Rows of the store that `dvc.lock` names, from DVC's cache.

DVC deletes the stage's folder before it runs the stage, but not the cached objects. So
when only a comment in the code has changed, or when a colleague's store was pulled, its
rows can be taken over instead of being computed again.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fne.activations.extractor import Extractor
from fne.activations.processor import UNKNOWN, processors_of
from fne.activations.scratch import Scratch
from fne.core.errors import InputError
from fne.core.params import load_params
from fne.store.catalog import Image, read_images
from fne.store.rows import Rows


def adopt(scratch: Scratch, wanted: Sequence[Image], store: Path, images: Path, extractor: Extractor) -> None:
    """Copy rows of the previous store that the scratch folder lacks, and which processors computed them.

    Args:
        scratch: where finished rows are kept.
        wanted: the images of the catalog as it is now.
        store: the store's folder, as `dvc.lock` names it.
        images: the catalog that it was made from, as `dvc.lock` names it.
        extractor: what must have made the rows.
    """
    digests = {image.sha256 for image in wanted}
    missing = digests - set(scratch.rows(digests))
    if not missing:
        return
    with tempfile.TemporaryDirectory() as folder:
        rows, sources = _open(Path(folder), store, images)
        if rows is None or rows.layers != extractor.layers or rows.artifact.settings != extractor.kind:
            return
        processors = processors_of(rows.processors or UNKNOWN, rows.ids)
        for journal, _, unfinished in scratch.claims(missing & set(sources)):
            try:
                for digest in unfinished:
                    row_id = sources[digest]
                    journal.append(digest, rows.read([row_id])[0], processors.get(row_id, UNKNOWN))
            finally:
                journal.unlock()


def _open(folder: Path, store: Path, images: Path) -> tuple[Rows | None, dict[str, str]]:
    """Return the previous store and its row ids by image digests, or nothing if there is none to be had."""
    try:
        stage = load_params(Path("dvc.lock"))["stages"]["extract"]
        made = {entry["path"]: entry["md5"] for entry in stage["outs"] + stage["deps"] if "md5" in entry}
        cache = _cache()
        for entry in json.loads(_object(cache, made[str(store)]).read_text()):
            (folder / entry["relpath"]).symlink_to(_object(cache, entry["md5"]).resolve())
        catalog, artifact = read_images(_object(cache, made[str(images)]))
        rows = Rows.open(folder, "activations")
        rows.verify()
    except (OSError, KeyError, TypeError, ValueError, InputError):
        # Whatever is missing or damaged there, the rows can be computed.
        return None, {}
    if rows.artifact.lineage.get("images", {}).get("digest") != artifact.digest:
        return None, {}
    return rows, {image.sha256: image.id for image in catalog}


def _cache() -> Path:
    from dvc.exceptions import NotDvcRepoError  # slow to import, and not always needed
    from dvc.repo import Repo

    try:
        with Repo() as repo:
            return Path(repo.cache.local.path)
    except NotDvcRepoError as error:
        raise FileNotFoundError(str(error)) from None


def _object(cache: Path, md5: str) -> Path:
    return cache / md5[:2] / md5[2:]
