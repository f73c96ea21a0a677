"""What the server works with at a moment: a snapshot, the network that belongs to it, photos and a folder.

A `Session` belongs to one snapshot. `Live` replaces the whole session when `dvc repro` has made new
artifacts. A request takes the session once, at its start, so that no answer mixes two of them.

Slow work is done in threads: loading the network, indexing a folder, and looking for new artifacts.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fne.core import stat_cache
from fne.core.errors import InputError
from fne.core.progress import Progress
from fne.core.terminal import say
from fne.search.engine import MODEL
from fne.search.folder import Folder, index_folder, list_folder
from fne.search.project import Project
from fne.serve.snapshot import Snapshot, Space, fingerprint, load_snapshot
from fne.store.catalog import Image
from fne.store.layout import TERNARY, pack
from fne.store.rows import Rows

if TYPE_CHECKING:
    from fne.serve.decoder import Picture
    from fne.serve.network import Network  # slow to import

MAX_PHOTOS = 256  # of visitors, in memory
POLL_SECONDS = 2.0
# Between two attempts to load artifacts that did not belong together; a file that changes is an attempt, too.
RETRY_SECONDS = 15.0
# How long a request waits for the network.
NETWORK_SECONDS = 120.0


class BusyError(Exception):
    """Something that will be there in a moment; the message says what."""


@dataclass(frozen=True)
class Photo:
    """A photo of a visitor: its embedding as a store would have it, and its vector in the joint space."""

    sha256: str
    width: int
    height: int
    embedding: np.ndarray | None
    vector: np.ndarray | None


@dataclass(frozen=True)
class IndexedFolder:
    """A folder of photos with their rows, by relative path."""

    folder: Folder
    embeddings: Space | None
    vectors: Space | None
    by_digest: dict[str, Image]
    by_name: dict[str, Image]


@dataclass
class FolderState:
    """How far the index of a folder is.

    Attributes:
        path: the folder.
        state: `reading`, `indexing`, `ready` or `failed`.
        message: why it failed.
        progress: what the extraction counts.
        index: the result.
    """

    path: Path
    state: str = "reading"
    message: str | None = None
    progress: Progress | None = None
    index: IndexedFolder | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return what the page shows."""
        shown = self.progress
        return {
            "name": self.path.resolve().name,
            "state": self.state,
            "message": self.message,
            "done": shown.done if shown else None,
            "total": shown.total if shown else None,
            "photos": len(self.index.folder.images) if self.index else None,
            "unreadable": self.index.folder.unreadable if self.index else {},
        }


class Session:
    """A snapshot in use."""

    def __init__(self, project: Project, snapshot: Snapshot, folder: Path | None) -> None:
        self.project = project
        self.snapshot = snapshot
        self.folder = FolderState(folder) if folder else None
        self._network: Future[Network] = Future()
        self._photos: OrderedDict[str, Photo] = OrderedDict()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Load the network in a thread, and then index the folder."""
        threading.Thread(target=self.prepare, name="network", daemon=True).start()

    @property
    def network_state(self) -> tuple[str, str | None]:
        """`loading`, `ready` or `failed`, and why it failed."""
        if not self._network.done():
            return "loading", None
        error = self._network.exception()
        return ("failed", str(getattr(error, "message", error))) if error else ("ready", None)

    def network(self) -> "Network":
        """Return the network, and wait for it if it is being loaded.

        Raises:
            InputError: if it cannot be loaded.
            BusyError: if loading takes too long.
        """
        try:
            return self._network.result(NETWORK_SECONDS)
        except LateError:
            raise BusyError("the network is still being loaded; try again in a moment") from None

    def add_photo(self, sha256: str, picture: "Picture") -> Photo:
        """Embed a photo and keep the result in memory."""
        network = self.network()
        embedded = network.embed(sha256, picture.image())
        vector = network.vector(embedded)
        photo = Photo(sha256, picture.width, picture.height, self._as_stored(embedded), vector)
        with self._lock:
            self._photos[sha256] = photo
            self._photos.move_to_end(sha256)
            while len(self._photos) > MAX_PHOTOS:
                self._photos.popitem(last=False)
        return photo

    def photo(self, sha256: str) -> Photo | None:
        """Return a photo of a visitor, or one of the folder."""
        with self._lock:
            if sha256 in self._photos:
                self._photos.move_to_end(sha256)
                return self._photos[sha256]
        index = self.folder.index if self.folder else None
        image = index.by_digest.get(sha256) if index else None
        if index is None or image is None:
            return None
        rows = [
            space.rows[space.places[image.id]] if space else None
            for space in (index.embeddings, index.vectors)
        ]
        return Photo(sha256, image.width, image.height, rows[0], rows[1])

    def file(self, sha256: str) -> Path | None:
        """Return the file of an image of the catalog or of the folder, by the digest of its content."""
        image = self.snapshot.by_digest.get(sha256)
        if image:
            return self.snapshot.catalog.root / image.path
        index = self.folder.index if self.folder else None
        found = index.by_digest.get(sha256) if index else None
        return index.folder.path / found.path if index and found else None

    def _as_stored(self, embedded: np.ndarray) -> np.ndarray | None:
        space = self.snapshot.embeddings
        if space is None:
            return None
        stored: np.ndarray = (
            pack(embedded[None])[0] if space.dtype == TERNARY else embedded.astype(space.dtype)
        )
        return stored

    def prepare(self) -> None:
        """Load the network and index the folder."""
        try:
            from fne.serve.network import open_network  # slow to import

            network = open_network(self.project, self.snapshot)
            network.warm_up()
            self._network.set_result(network)
        except Exception as error:  # whatever it is, those who wait for the network get it
            self._network.set_exception(error)
            say(f"new photos cannot be embedded: {getattr(error, 'message', error)}", err=True)
        if self.folder:
            try:
                self._index(self.folder)
            except Exception as error:  # whatever it is, the page shows it
                self.folder.message = str(getattr(error, "message", error))
                self.folder.state = "failed"
                say(f"the folder is not indexed: {self.folder.message}", err=True)

    def _index(self, state: FolderState) -> None:
        project, snapshot, network = self.project, self.snapshot, self.network()
        folder = list_folder(state.path, project.runtime.workers, project.scratch)
        state.state = "indexing"

        def watch(progress: Progress) -> None:
            state.progress = progress

        embeddings = vectors = None
        if snapshot.embeddings:
            stored = snapshot.embeddings
            kind = str(stored.artifact.settings["kind"])
            rows = index_folder(
                folder,
                kind,
                stored.artifact,
                project.scratch,
                lambda: network.embedding_source(stored.dtype, watch),
            )
            embeddings = _space(folder, rows)
        if snapshot.joint:
            model = snapshot.joint.model.artifact
            rows = index_folder(folder, MODEL, model, project.scratch, lambda: network.vector_source(watch))
            vectors = _space(folder, rows)
        by_digest = {image.sha256: image for image in reversed(folder.images)}
        by_name = {image.id: image for image in folder.images}
        state.index = IndexedFolder(folder, embeddings, vectors, by_digest, by_name)
        state.state = "ready"
        say(f"{state.path}: {len(folder.images)} photos can be searched", err=True)


@dataclass
class Live:
    """The current session, replaced when the artifacts on disk are replaced.

    Attributes:
        params: the parameter file of the project.
        folder: a folder to search, or None.
        session: the current session.
        waiting: why new artifacts on disk are not used yet, or None.
    """

    params: Path
    folder: Path | None
    session: Session = field(init=False)
    waiting: str | None = None
    log: Callable[[str], None] = lambda text: say(text, err=True)

    def __post_init__(self) -> None:
        """Load the artifacts.

        Raises:
            InputError: if they are missing or do not belong together.
        """
        stat_cache.use(Project(self.params).scratch)
        self._seen = fingerprint(self.params)
        self._stop = threading.Event()
        self.session = self._open(load_snapshot(self.params))

    def start(self) -> None:
        """Load the network, index the folder, and look for new artifacts, in threads."""
        self.session.start()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def stop(self) -> None:
        """Stop looking for new artifacts."""
        self._stop.set()

    def refresh(self) -> bool:
        """Load new artifacts if there are any that belong together; return whether that was done."""
        seen = fingerprint(self.params)
        if seen == self._seen and self.waiting is None:
            return False
        try:
            snapshot = load_snapshot(self.params)
            # What was read may have been replaced meanwhile; the digests of its parts agree all the same.
            lost = snapshot.lost(self.session.snapshot)
            if lost:
                raise InputError(f"waiting for {' and '.join(lost)}")
        except (InputError, OSError) as error:
            self._seen, self.waiting = seen, str(getattr(error, "message", error))
            return False
        self._seen, self.waiting = seen, None
        if snapshot.version == self.session.snapshot.version:
            return False
        session = self._open(snapshot)
        session.start()
        self.session = session
        self.log(f"loaded new artifacts, version {snapshot.version}")
        return True

    def _open(self, snapshot: Snapshot) -> Session:
        return Session(Project(self.params), snapshot, self.folder)

    def _watch(self) -> None:
        waited = 0.0
        while not self._stop.wait(POLL_SECONDS):
            waited += POLL_SECONDS
            if fingerprint(self.params) != self._seen or (self.waiting and waited >= RETRY_SECONDS):
                waited = 0.0
                self.refresh()


def _space(folder: Folder, rows: Rows) -> Space:
    stored = rows.read_stored([image.sha256 for image in folder.images])
    return Space(rows.artifact, [image.id for image in folder.images], stored, rows.layers, rows.dtype)
