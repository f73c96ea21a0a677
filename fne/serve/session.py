"""What the server works with at a moment: a snapshot, the network that belongs to it, photos and a folder.

A `Session` belongs to one snapshot. `Live` replaces the whole session when `dvc repro` has made new
artifacts. A request takes the session once, at its start, so that no answer mixes two of them.

Slow work is done in threads: loading the network, indexing a folder whenever its files change, and
looking for new artifacts.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fne.core import stat_cache
from fne.core.errors import InputError
from fne.core.terminal import say
from fne.search.folder_index import FolderState, FolderWatch
from fne.search.open_project import Project
from fne.search.snapshot import Snapshot, fingerprint, load_snapshot
from fne.store.layout import TERNARY, pack

if TYPE_CHECKING:
    from fne.search.decode_process import Picture
    from fne.search.photo_network import Network  # slow to import

MAX_PHOTOS = 256  # of visitors, in memory
POLL_SECONDS = 2.0
# Between two looks at a large folder, in times that a look takes.
LOOK_PAUSE = 20
# Between two attempts to load artifacts that did not belong together, or to index a folder that could not be
# indexed; a file that changes is an attempt, too.
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


class Session:
    """A snapshot in use."""

    def __init__(self, project: Project, snapshot: Snapshot, folder: Path | None) -> None:
        self.project = project
        self.snapshot = snapshot
        self.folder = FolderState(folder) if folder else None
        self._network: Future[Network] = Future()
        self._photos: OrderedDict[str, Photo] = OrderedDict()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._watch: FolderWatch | None = None
        self._tried = 0.0  # when the folder was indexed last

    def start(self) -> None:
        """In a thread, load the network, index the folder, and do so again when its files change."""
        threading.Thread(target=self._run, name="network", daemon=True).start()

    def stop(self) -> None:
        """Look no more at the files of the folder."""
        self._stop.set()

    def for_request(self) -> "Session":
        """Return this session with the index of the folder as it is now.

        An index that is finished while a request is being answered does not change its answer.
        """
        found = copy(self)
        found.folder = copy(self.folder)
        return found

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
        embedded, vector = self.network().embed(sha256, picture.image())
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
            from fne.search.photo_network import open_network  # torch: slow to import

            network = open_network(self.project, self.snapshot)
            network.warm_up()
            self._network.set_result(network)
        except Exception as error:  # whatever it is, those who wait for the network get it
            self._network.set_exception(error)
            say(f"new photos cannot be embedded: {getattr(error, 'message', error)}", err=True)
        self._index()

    def refresh_folder(self) -> bool:
        """Index the folder again if its files have changed, or if it failed; return whether that was done."""
        if self._watch is None or self.folder is None:
            return False
        late = self.folder.state == "failed" and time.monotonic() - self._tried >= RETRY_SECONDS
        if not self._watch.look() and not late:
            return False
        self._index()
        return True

    def _run(self) -> None:
        self.prepare()
        pause = POLL_SECONDS
        while self.folder and not self._stop.wait(pause):
            started = time.monotonic()
            indexed = self.refresh_folder()
            pause = max(POLL_SECONDS, 0 if indexed else LOOK_PAUSE * (time.monotonic() - started))

    def _index(self) -> None:
        state = self.folder
        if state is None:
            return
        self._tried = time.monotonic()
        # Files that are written from here on are noticed at the next look.
        self._watch = self._watch or FolderWatch(state.path)
        before = state.index
        try:
            state.update(self.project, self.snapshot, self.network(), self._watch.unfinished)
        except Exception as error:  # whatever it is, the page shows it
            message = str(getattr(error, "message", error))
            if message != state.message:
                say(f"the folder is not indexed: {message}", err=True)
            state.message, state.state = message, "failed"
            return
        if state.index and (before is None or before.version != state.index.version):
            count = len(state.index.folder.images)
            say(f"{state.path}: {count:,} photo{'s' * (count != 1)} can be searched", err=True)


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
        """Stop looking for new artifacts and photos."""
        self._stop.set()
        self.session.stop()

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
        self.session.stop()
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
