"""What the server works with at a moment: a snapshot, the network that belongs to it, photos and a folder.

A `Session` belongs to one snapshot. `Live` replaces the whole session when `dvc repro` has made new
artifacts. A request takes the session once, at its start, so that no answer mixes two of them.

Slow work is done in threads: loading the network, indexing a folder whenever its files change, and
looking for new artifacts.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
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
from fne.search.engine import MODEL, AbsentError, as_stored
from fne.search.folder import FolderState, FolderWatch, Index, IndexedFolder
from fne.search.open_project import MATCHING, EmbeddedImage, Project, Space
from fne.search.snapshot import Snapshot, fingerprint, load_snapshot
from fne.store.artifact import Artifact

if TYPE_CHECKING:
    from fne.search.decode_process import Picture
    from fne.search.embed_query import Network

MAX_PHOTOS = 256  # visitors' photos in memory
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


class MissingError(Exception):
    """An image or a photo that the server does not have."""


class Session:
    """A snapshot in use."""

    def __init__(self, project: Project, snapshot: Snapshot, folder: Path | None) -> None:
        self.project = project
        self.snapshot = snapshot
        self.folder = FolderState(folder) if folder else None
        self._network: Future[Network] = Future()
        self._photos: OrderedDict[str, EmbeddedImage] = OrderedDict()
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
        """Return this session with the index of the folder as it is now: a later index changes no answer."""
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
        """Return the network, and wait for it if it is being loaded; `BusyError` if that takes too long."""
        try:
            return self._network.result(NETWORK_SECONDS)
        except LateError:
            raise BusyError("the network is still being loaded; try again in a moment") from None

    def add_photo(self, sha256: str, picture: "Picture") -> EmbeddedImage:
        """Embed a photo and keep the result in memory."""
        network, pixels = self.network(), picture.image()
        embedded, vector = network.embed(sha256, pixels)
        rows = network.rows_of_tuned(sha256, pixels)
        space = self.snapshot.embeddings
        row = as_stored(embedded, space.store) if space else None
        photo = EmbeddedImage(None, sha256, None, row, vector, picture.width, picture.height, rows)
        with self._lock:
            self._photos[sha256] = photo
            self._photos.move_to_end(sha256)
            while len(self._photos) > MAX_PHOTOS:
                self._photos.popitem(last=False)
        return photo

    def photo(self, sha256: str) -> EmbeddedImage | None:
        """Return a photo of a visitor, or one of the folder."""
        with self._lock:
            if sha256 in self._photos:
                self._photos.move_to_end(sha256)
                return self._photos[sha256]
        index = self.folder.index if self.folder else None
        image = index.by_digest.get(sha256) if index else None
        if index is None or image is None:
            return None
        row, vector = _rows(image.id, index.embeddings, index.vectors)
        return EmbeddedImage(None, sha256, None, row, vector, image.width, image.height)

    def find_image(self, image: str | None, photo: str | None) -> EmbeddedImage:
        """Return the image of the catalog, or the photo by its digest, that a request names.

        Raises:
            MissingError: if there is no such image.
        """
        if (image is None) == (photo is None):
            raise InputError("name an image of the catalog (image) or a photo (photo)")
        snapshot = self.snapshot
        known = snapshot.by_digest.get(photo) if photo else None
        identity = known.id if known else image
        if identity is None:
            found = self.photo(str(photo))
            if found is None:
                raise MissingError("this photo is not here any more; send it again")
            return found
        if identity not in snapshot.catalog.captioned:
            raise MissingError(f"the catalog has no image {identity!r}")
        file = snapshot.catalog.images.get(identity)
        row, vector = _rows(identity, snapshot.embeddings, snapshot.images)
        return EmbeddedImage(identity, file.sha256 if file else None, None, row, vector)

    def tuned_rows(
        self, image: EmbeddedImage, decode: Callable[[str], "Picture"]
    ) -> Mapping[str, np.ndarray]:
        """Return what tuned taggers and captioners read of an image, by their names in `PARTS`.

        `decode` returns the pixels of an image of the catalog or of the folder, by the digest of its file.
        """
        if image.tuned_rows is not None or not any(self._tuned):
            return image.tuned_rows or {}
        if image.sha256 is None:
            raise MissingError(f"{image.id} has no image file, which a tuned network needs")
        return self.network().rows_of_tuned(image.sha256, decode(image.sha256).image())

    @property
    def _tuned(self) -> dict[str, Artifact]:
        described = self.snapshot.describing
        return {name: file.artifact for name, file in described.items() if file.is_tuned}

    def index(self) -> IndexedFolder:
        """Return the photos of the folder; `AbsentError` if there is no folder, or no index of it yet."""
        if self.folder is None:
            raise AbsentError("there is no folder; start `fne serve --in FOLDER`")
        if self.folder.index is None:
            raise AbsentError(self.folder.message or "the folder is still being indexed")
        return self.folder.index

    def file(self, sha256: str) -> Path | None:
        """Return the file of an image of the catalog or of the folder, by the digest of its content."""
        image = self.snapshot.by_digest.get(sha256)
        if image:
            return self.snapshot.catalog.root / image.path
        index = self.folder.index if self.folder else None
        found = index.by_digest.get(sha256) if index else None
        return index.folder.path / found.path if index and found else None

    def prepare(self) -> None:
        """Load the network and index the folder."""
        try:
            from fne.search.embed_query import open_served_network  # torch: slow to import

            space, model = self.snapshot.embeddings, self.snapshot.model
            network = open_served_network(
                self.project,
                space.artifact if space else None,
                model.artifact if model else None,
                self._tuned,
            )
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
            state.update(self.project, *self._indexes(state), self._watch.unfinished)
        except Exception as error:  # whatever it is, the page shows it
            message = str(getattr(error, "message", error))
            if message != state.message:
                say(f"the folder is not indexed: {message}", err=True)
            state.message, state.state = message, "failed"
            return
        if state.index and (before is None or before.version != state.index.version):
            count = len(state.index.folder.images)
            say(f"{state.path}: {count:,} photo{'s' * (count != 1)} can be searched", err=True)

    def _indexes(self, state: FolderState) -> tuple[Index | None, Index | None]:
        """Return what the embeddings and the vectors of the folder's photos are made with."""
        network, space, model = self.network(), self.snapshot.embeddings, self.snapshot.model
        embeddings = vectors = None
        if space:
            kind, dtype = str(space.artifact.settings["kind"]), space.store.dtype
            embeddings = Index(kind, space.artifact, lambda: network.embedding_source(dtype, state.watch))
        if model:
            vectors = Index(MODEL, model.artifact, lambda: network.vector_source(state.watch))
        return embeddings, vectors


def _rows(
    image_id: str, embeddings: Space | None, vectors: Space | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    row = embeddings.row(image_id) if embeddings else None
    return row, vectors.row(image_id) if vectors else None


@dataclass
class Live:
    """The current session, replaced when the artifacts on disk are replaced."""

    params: Path
    folder: Path | None  # to search
    model: str = MATCHING
    session: Session = field(init=False)
    waiting: str | None = None  # why new artifacts on disk are not used yet
    log: Callable[[str], None] = lambda text: say(text, err=True)

    def __post_init__(self) -> None:
        """Load the artifacts."""
        stat_cache.use(Project(self.params).scratch)
        self._seen = fingerprint(self.params, self.model)
        self._stop = threading.Event()
        self.session = self._open(load_snapshot(self.params, self.model))

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
        seen = fingerprint(self.params, self.model)
        if seen == self._seen and self.waiting is None:
            return False
        try:
            snapshot = load_snapshot(self.params, self.model)
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
        return Session(Project(self.params, self.model), snapshot, self.folder)

    def _watch(self) -> None:
        waited = 0.0
        while not self._stop.wait(POLL_SECONDS):
            waited += POLL_SECONDS
            replaced = fingerprint(self.params, self.model) != self._seen
            if replaced or (self.waiting and waited >= RETRY_SECONDS):
                waited = 0.0
                self.refresh()
