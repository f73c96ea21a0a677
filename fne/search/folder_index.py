"""The folder of photos that a server searches: its index, how far that is, and which files have changed.

An `IndexedFolder` never changes. When files are added, changed or removed, another one replaces it as a
whole, and searches use the old one until then.

`FolderWatch` notices such files by looking at the folder again and again. It needs no service of the
operating system, so it also works on network drives.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fne.core.errors import InputError
from fne.core.progress import Progress
from fne.search.engine import MODEL
from fne.search.folder import Folder, file_states, index_folder, list_folder
from fne.search.open_project import Project
from fne.search.snapshot import Snapshot, Space
from fne.store.catalog import Image
from fne.store.rows import Rows

if TYPE_CHECKING:
    from fne.search.photo_network import Network  # slow to import


@dataclass(frozen=True)
class IndexedFolder:
    """A folder of photos with their rows."""

    folder: Folder
    embeddings: Space | None
    vectors: Space | None

    @cached_property
    def by_digest(self) -> dict[str, Image]:
        """The photos by the digests of their files; of equal ones the first."""
        return {image.sha256: image for image in reversed(self.folder.images)}

    @cached_property
    def by_name(self) -> dict[str, Image]:
        """The photos by relative path."""
        return {image.id: image for image in self.folder.images}

    @cached_property
    def version(self) -> str:
        """A digest of the names and contents of all photos."""
        lines = [f"{image.sha256} {image.id}" for image in self.folder.images]
        return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:16]


@dataclass
class FolderState:
    """What is known about a folder at the moment.

    Attributes:
        path: the folder.
        state: `reading`, `indexing`, `ready` or `failed`.
        message: why it failed.
        progress: what the extraction counts.
        index: the last complete index, which is searched while a new one is made.
    """

    path: Path
    state: str = "reading"
    message: str | None = None
    progress: Progress | None = None
    index: IndexedFolder | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return what the page shows."""
        shown, index = self.progress, self.index
        return {
            "name": self.path.resolve().name,
            "version": index.version if index else None,
            "state": self.state,
            "message": self.message,
            "done": shown.done if shown else None,
            "total": shown.total if shown else None,
            "photos": len(index.folder.images) if index else None,
            "unreadable": index.folder.unreadable if index else {},
        }

    def update(
        self, project: Project, snapshot: Snapshot, network: "Network", unfinished: Collection[str]
    ) -> None:
        """Index the folder as it is now; only photos without rows go through the network.

        Args:
            project: the project.
            snapshot: the artifacts that rows are made with.
            network: the network that belongs to them.
            unfinished: files that are left out.

        Raises:
            InputError: if there are no photos, in which case there is no index any more, or if rows cannot
                be computed.
        """
        self.state, self.progress = "reading", None
        try:
            folder = list_folder(self.path, project.runtime.workers, project.scratch, unfinished)
        except InputError:
            self.index = None
            raise
        self.state = "indexing"
        embeddings = vectors = None
        if snapshot.embeddings:
            stored = snapshot.embeddings
            kind = str(stored.artifact.settings["kind"])
            rows = index_folder(
                folder,
                kind,
                stored.artifact,
                project.scratch,
                lambda: network.embedding_source(stored.dtype, self._watch),
            )
            embeddings = _space(folder, rows)
        if snapshot.joint:
            model = snapshot.joint.model.artifact
            rows = index_folder(
                folder, MODEL, model, project.scratch, lambda: network.vector_source(self._watch)
            )
            vectors = _space(folder, rows)
        self.index = IndexedFolder(folder, embeddings, vectors)
        self.state, self.message = "ready", None

    def _watch(self, progress: Progress) -> None:
        self.progress = progress


class FolderWatch:
    """Tells whether image files of a folder were added, changed or removed.

    A file that is being copied into the folder changes from one look to the next. It counts only when two
    looks find it the same.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = self._used = file_states(path)
        self.unfinished: frozenset[str] = frozenset()

    def look(self) -> bool:
        """Return whether finished files differ from those of the last look that returned true."""
        found = file_states(self._path)
        finished = {name: state for name, state in found.items() if self._last.get(name) == state}
        self._last, self.unfinished = found, frozenset(found.keys() - finished.keys())
        changed = finished != self._used
        self._used = finished
        return changed


def _space(folder: Folder, rows: Rows) -> Space:
    stored = rows.read_stored([image.sha256 for image in folder.images])
    return Space(rows.artifact, [image.id for image in folder.images], stored, rows.layers, rows.dtype)
