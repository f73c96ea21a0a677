"""The web application: the page, and the JSON interface that it uses.

The functions below `api` answer requests, in threads, a few at a time; `/openapi.json` is made from them and
from `fne.serve.schemas`. What they find comes from `fne.search.engine`, and is only presented here. Every
answer names the version of the artifacts that it was made with. No answer has a path of a file: images are
named by their ids, and their pictures by the digests of the files.

Photos are limited in bytes, pixels and time, and decoded in another process (`fne.search.decode_process`). A
picture is found by the digest of its file, and is sent only if the file still has that digest: so nothing but
images of the catalog and of the folder can be read, whatever a request says.
"""

import asyncio
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from importlib.metadata import version
from pathlib import Path as FilePath
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp

from fne.core.errors import InputError
from fne.matching.word_removal import levels
from fne.report.facts import ancestors, feature_source
from fne.search import engine
from fne.search.answer import Answer
from fne.search.decode_process import Decoder, Picture, RefusedError
from fne.search.describe_photo import Wanted, read_writing
from fne.search.engine import AbsentError, Filters, explain_sentence
from fne.search.folder import IndexedFolder
from fne.search.open_project import EmbeddedImage
from fne.search.snapshot import Snapshot
from fne.serve import schemas
from fne.serve.forms import form_file
from fne.serve.guard import Guard
from fne.serve.session import BusyError, Live, MissingError, Session
from fne.store.artifact import merge
from fne.store.images import UndecodableError, read_image_file

MAX_BYTES = 32 << 20
MAX_PIXELS = 50_000_000
BODY_SECONDS = 30.0
# Requests that are answered at the same time, and photos that are embedded or wait for it.
THREADS, PHOTOS = 4, 6
SIDES = {"small": 320, "large": 1600}
PICTURE_CACHE = 96 << 20  # bytes
MAX_TAGS = 500  # in the status
CONCEPTS = 8
WARM_UP = "a first sentence"
PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
# Why a request is not answered, in the description of the interface.
PROBLEMS = {
    400: "The request is wrong, or the photo cannot be decoded.",
    401: "The token is missing or wrong.",
    403: "The request comes from another site, or names another host.",
    404: "There is no such image.",
    409: "The project lacks what this needs, such as a trained model.",
    503: "Busy; try again in a moment.",
}
PHOTO_PROBLEMS = {408: "The photo came too slowly.", 413: "The photo has too many bytes."}
BINARY = {"type": "string", "format": "binary"}
PHOTO_BODY = {
    "required": True,
    "content": {
        "application/octet-stream": {"schema": BINARY},
        "multipart/form-data": {"schema": {"type": "object", "properties": {"file": BINARY}}},
    },
}
# Nothing is sent to anybody, whatever the environment says.
SILENT: TelemetryConfig = {"auto_configure": False, "tracing": False, "metrics": False, "logs": False}

Values = dict[str, Any]


@dataclass
class Server:
    """What all requests share."""

    live: Live
    decoder: Decoder = field(default_factory=Decoder)
    photos: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(PHOTOS))
    photo_limiter: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(PHOTOS))
    pictures: "PictureCache" = field(default_factory=lambda: PictureCache(PICTURE_CACHE))


class PictureCache:
    """The JPEGs that were asked for last, up to a number of bytes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._used = 0
        self._pictures: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str]) -> bytes | None:
        """Return a picture, if it is here."""
        with self._lock:
            if key in self._pictures:
                self._pictures.move_to_end(key)
            return self._pictures.get(key)

    def put(self, key: tuple[str, str], content: bytes) -> None:
        """Keep a picture, and drop the oldest ones if there are too many bytes."""
        with self._lock:
            self._used += len(content) - len(self._pictures.pop(key, b""))
            self._pictures[key] = content
            while self._used > self._capacity:
                _, dropped = self._pictures.popitem(last=False)
                self._used -= len(dropped)


class Operation(APIRoute):
    """A request of the JSON interface: one that names a parameter twice is refused."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            names = [name for name, _ in request.query_params.multi_items()]
            repeated = [name for name in names if names.count(name) > 1]
            if repeated:
                return _problem(400, f"{repeated[0]} is given twice")
            try:
                return await handle(request)
            except asyncio.CancelledError:  # uvicorn waits for answers only for a moment when it stops
                return _problem(503, "the server is being stopped", {"Connection": "close"})

        return answer


def _described(problems: dict[int, str]) -> dict[int | str, Values]:
    return {code: {"model": schemas.Problem, "description": text} for code, text in problems.items()}


def _server(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


def _session(request: Request) -> Session:
    """Return the session as it is now; a request takes it once, so that no answer mixes two of them."""
    return _server(request).live.session.for_request()


api = APIRouter(
    route_class=Operation,
    responses=_described(PROBLEMS),
    generate_unique_id_function=lambda route: route.name,
)


@api.get("/api/status", response_model=schemas.Status, summary="What is loaded, and what can be searched.")
def status(request: Request, given: Annotated[schemas.NoParameters, Query()]) -> Response:
    """Return what is loaded."""
    session = _session(request)
    snapshot, space = session.snapshot, session.snapshot.embeddings
    network, message = session.network_state
    layers = [layer.name for layer in space.store.layers] if space else []
    return _json(
        {
            "version": snapshot.version,
            "images": len(snapshot.catalog.captioned),
            "captions": sum(len(record.captions) for record in snapshot.catalog.captioned.values()),
            "splits": snapshot.splits,
            "tags": dict(list(snapshot.tags.items())[:MAX_TAGS]),
            "features": feature_source(snapshot.lineage),
            "embedding": str(space.artifact.settings["kind"]) if space else None,
            # By which embeddings can be compared separately.
            "layers": layers if len(layers) > 1 else [],
            "sentences": snapshot.model is not None,
            "examples": snapshot.examples if snapshot.model else [],
            "samples": [_shown(snapshot, each, None) for each in snapshot.samples],
            "descriptions": list(snapshot.describing),
            "network": network,
            "network_message": message,
            "folder": session.folder.as_dict() if session.folder else None,
            "notes": snapshot.notes,
            "waiting": _server(request).live.waiting,
            "limits": {
                "bytes": MAX_BYTES,
                "pixels": MAX_PIXELS,
                "text": schemas.MAX_TEXT,
                "k": schemas.MAX_MATCHES,
            },
        }
    )


@api.get("/api/search", response_model=schemas.Answer, summary="Images for a sentence.")
def search(request: Request, given: Annotated[schemas.SearchParameters, Query()]) -> Response:
    """Return images for a sentence."""
    if not given.text.strip():
        raise InputError("the query is empty; describe what the image shows")
    session = _session(request)
    filters, folder = _searched(session, given)
    found = engine.images_for_sentence(session.snapshot, given.text, given.k, filters, folder)
    return _json(_answer(session.snapshot, found, folder))


@api.get("/api/sentences", response_model=schemas.Answer, summary="Sentences for an image.")
def sentences(request: Request, given: Annotated[schemas.SentenceParameters, Query()]) -> Response:
    """Return sentences for an image."""
    session = _session(request)
    image = session.find_image(given.image, given.photo)
    found = engine.sentences_for_image(session.snapshot, image, given.k)
    return _json(_answer(session.snapshot, found, None) | _named(image))


@api.get("/api/words", response_model=schemas.Words, summary="How much each word of a sentence matters.")
def words(request: Request, given: Annotated[schemas.WordsParameters, Query()]) -> Response:
    """Return by how much the score of a sentence and an image drops without each word."""
    session = _session(request)
    image = session.find_image(given.image, given.photo)
    found = explain_sentence(session.snapshot, given.text, image.vector)
    listed = [
        {"text": word.text, "drop": word.drop, "level": level}
        for word, level in zip(found, levels(found), strict=True)
    ]
    return _json({"version": session.snapshot.version, **_named(image), "words": listed})


@api.get("/api/similar", response_model=schemas.Answer, summary="Images that look similar.")
def similar(request: Request, given: Annotated[schemas.SimilarParameters, Query()]) -> Response:
    """Return images that look similar to an image."""
    session = _session(request)
    image = session.find_image(given.image, given.photo)
    filters, folder = _searched(session, given)
    found = engine.similar_images(session.snapshot, image, given.k, filters, folder, given.layer)
    return _json(_answer(session.snapshot, found, folder) | _named(image))


@api.get("/api/image", response_model=schemas.Details, summary="What is known about an image.")
def details(request: Request, given: Annotated[schemas.ImageParameters, Query()]) -> Response:
    """Return what is known about an image: sentences, tags, sizes, and what its rows were made from."""
    session = _session(request)
    image, snapshot = session.find_image(given.image, given.photo), session.snapshot
    record = snapshot.catalog.captioned.get(image.id) if image.id else None
    file = snapshot.catalog.images.get(image.id) if image.id else None
    index = session.folder.index if session.folder else None
    in_folder = index.by_digest.get(image.sha256) if index and image.sha256 else None
    sized = file or image
    return _json(
        {
            "version": snapshot.version,
            **_named(image),
            "name": image.id or (in_folder.id if in_folder else None),
            "picture": image.sha256 if file or in_folder else None,
            "split": record.split if record else None,
            "sentences": list(record.captions) if record else [],
            "tags": list(record.tags) if record else [],
            "width": sized.width,
            "height": sized.height,
            **_origin(snapshot),
        }
    )


@api.get("/api/description", response_model=schemas.Description, summary="What models say about an image.")
def describe(request: Request, given: Annotated[schemas.ImageParameters, Query()]) -> Response:
    """Return what models say about an image."""
    session = _session(request)
    image, snapshot = session.find_image(given.image, given.photo), session.snapshot
    writing = read_writing(session.project.params, None)
    rows = session.tuned_rows(image, partial(_pixels, _server(request), session))
    values = engine.describe_image(snapshot, image, Wanted(CONCEPTS, writing=writing), rows)
    models = [file.artifact for file in snapshot.describing.values()]
    tuned = {file.artifact.name: file.is_tuned for file in snapshot.describing.values()}
    made = [each for each in ancestors(merge(*models)) if each.name in tuned]
    return _json(
        {
            "version": snapshot.version,
            **_named(image),
            **values,
            "models": [
                {"name": each.name, "digest": each.digest, "tuned": tuned[each.name]} for each in made
            ],
        }
    )


@api.post(
    "/api/photos",
    response_model=schemas.SentPhoto,
    responses=_described(PHOTO_PROBLEMS),
    openapi_extra={"requestBody": PHOTO_BODY},
    summary="Embed a photo: the body of the request is an image file, or a form with one file.",
)
async def add_photo(request: Request, given: Annotated[schemas.NoParameters, Query()]) -> Response:
    """Embed a photo; a few at a time, because bodies take memory and photos take long."""
    server, session = _server(request), _session(request)
    if not server.photos.acquire(blocking=False):
        raise BusyError("other photos are waiting; try again in a moment")
    try:
        body = form_file(request.headers.get("content-type", ""), await _body(request))
        found = await to_thread.run_sync(_embed, server, session, body, limiter=server.photo_limiter)
        return _json(found)
    finally:
        server.photos.release()


@api.get(
    "/api/pictures/{digest}",
    response_class=Response,
    responses={200: {"description": "A JPEG.", "content": {"image/jpeg": {}}}},
    summary="The picture of an image, by the SHA-256 of its file.",
)
def picture(
    request: Request,
    # The pattern is not checked: what is not a digest names no picture.
    digest: Annotated[
        str, Path(description="The SHA-256 of a file.", json_schema_extra={"pattern": schemas.DIGEST})
    ],
    given: Annotated[schemas.PictureParameters, Query()],
) -> Response:
    """Return the picture of an image of the catalog or of the folder, as a JPEG."""
    server = _server(request)
    file = _session(request).file(digest)
    if file is None:
        raise MissingError("there is no such picture")
    content = server.pictures.get((digest, given.size))
    if content is None:
        content = _decoded(file, digest, partial(server.decoder.jpeg, side=SIDES[given.size])).content
        server.pictures.put((digest, given.size), content)
    # A digest names one content forever.
    caching = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(content, media_type="image/jpeg", headers=caching)


def build_app(live: Live, token: str | None) -> ASGIApp:
    """Return the application; every request has to have the token, unless that is None."""
    server = Server(live)
    _warm_up(live.session)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield
        server.decoder.close()

    pages = [Route(path, _static(*file)) for path, file in PAGE.items()]
    pages.append(Route("/openapi.json", _constant(_json(describe_interface()))))
    app = FastAPI(
        routes=[*pages, *(_with_head(route) for route in api.routes if isinstance(route, APIRoute))],
        exception_handlers={
            HTTPException: _http_problem,
            Exception: _internal_problem,
            **dict.fromkeys(REASONS, _refuse),
        },
        lifespan=lifespan,
        openapi_url=None,
        telemetry=SILENT,
    )
    app.state.server = server
    return Guard(app, token)


def _with_head(route: APIRoute) -> APIRoute:
    """Return a route that also answers HEAD, if it answers GET; the interface describes GET only."""
    found = copy(route)
    methods = route.methods or set()
    found.methods = methods | ({"HEAD"} if "GET" in methods else set())
    return found


def describe_interface() -> Values:
    """Return the content of `/openapi.json`."""
    described = get_openapi(
        title="fne serve",
        version=version("fne-pipeline"),
        description="Images for a sentence, sentences for an image, and images that look similar.",
        routes=api.routes,
    )
    # FastAPI describes its own answer to wrong parameters; ours is 400.
    for operation in (each for path in described["paths"].values() for each in path.values()):
        operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        described["components"]["schemas"].pop(name, None)
    described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    described["security"] = [{}, {"token": []}]
    return described


def _warm_up(session: Session) -> None:
    """Answer a query of each kind, so that the first visitor does not wait for compilers and libraries."""
    image = next(iter(session.snapshot.catalog.captioned))
    with suppress(AbsentError, InputError):
        engine.images_for_sentence(session.snapshot, WARM_UP, 1)
    with suppress(AbsentError, InputError):
        engine.similar_images(session.snapshot, session.find_image(image, None), 1)


def _searched(
    session: Session, given: schemas.SearchParameters | schemas.SimilarParameters
) -> tuple[Filters, IndexedFolder | None]:
    """Return what is searched: images of the catalog that pass filters, or the folder."""
    if given.where == "catalog":
        return Filters(given.split or None, given.tag or None), None
    if given.split or given.tag:
        raise InputError("photos of the folder have no splits and tags; leave split and tag out")
    return Filters(), session.index()


def _answer(snapshot: Snapshot, found: Answer, folder: IndexedFolder | None) -> Values:
    """Return an answer for JSON."""
    matches = [
        {"rank": match.rank, "score": match.score, "id": match.id}
        | _shown(snapshot, match.image, folder)
        | {"sentences": match.sentences, "true": match.true}
        for match in found.matches
    ]
    return {
        "version": snapshot.version,
        "by": found.by,
        "measure": found.measure,
        "pool": folder.folder.path.resolve().name if folder else found.pool,
        "text": found.text,
        "unknown_words": found.unknown_words,
        "candidates": found.candidates,
        "matches": matches,
        "found": found.found,
    }


def _shown(snapshot: Snapshot, image_id: str, folder: IndexedFolder | None) -> Values:
    """Return what is shown of an image of the catalog, or of a photo of the folder."""
    if folder:
        digest = folder.by_name[image_id].sha256
        return {"image": None, "name": image_id, "picture": digest, "split": None, "sentences": []}
    file, record = snapshot.catalog.images.get(image_id), snapshot.catalog.captioned.get(image_id)
    return {
        "image": image_id,
        "name": image_id,
        "picture": file.sha256 if file else None,
        "split": record.split if record else None,
        "sentences": list(record.captions) if record else [],
    }


def _named(image: EmbeddedImage) -> Values:
    return {"image": image.id, "photo": image.sha256}


def _origin(snapshot: Snapshot) -> Values:
    """Return what the artifacts were made from."""
    made = [
        {"name": each.name, "digest": each.digest, "settings": each.settings}
        for each in ancestors(snapshot.lineage)
    ]
    return {"features": feature_source(snapshot.lineage), "made": made}


def _embed(server: Server, session: Session, content: bytes) -> Values:
    """Embed a photo, unless it is known."""
    if not content:
        raise InputError("the photo is empty; send the content of an image file")
    sha256 = hashlib.sha256(content).hexdigest()
    known = session.snapshot.by_digest.get(sha256)
    found = known or session.photo(sha256)
    if found is None:
        found = session.add_photo(sha256, server.decoder.pixels(content, MAX_PIXELS))
    return {
        "version": session.snapshot.version,
        "photo": sha256,
        "image": known.id if known else None,
        "width": found.width,
        "height": found.height,
    }


def _pixels(server: Server, session: Session, digest: str) -> Picture:
    """Return the pixels of an image of the catalog or of the folder."""
    file = session.file(digest)
    if file is None:
        raise MissingError("this image has no file, which a tuned network needs")
    return _decoded(file, digest, partial(server.decoder.pixels, max_pixels=MAX_PIXELS))


def _decoded(file: FilePath, digest: str, decode: Callable[[bytes], Picture]) -> Picture:
    """Return an image file of the catalog or of the folder, decoded in a process of its own."""
    try:
        original = read_image_file(file)
        if hashlib.sha256(original).hexdigest() != digest:
            raise MissingError("the file of this picture has changed")
        return decode(original)
    except (UndecodableError, RefusedError) as error:
        raise MissingError(f"the picture cannot be shown: {error}") from None


async def _body(request: Request) -> bytes:
    """Return the body of a request, unless it is too long or comes too slowly."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MAX_BYTES:
        raise HTTPException(413, f"a photo may have at most {MAX_BYTES >> 20} MB")
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                content += part
                if len(content) > MAX_BYTES:
                    raise HTTPException(413, f"a photo may have at most {MAX_BYTES >> 20} MB")
    except TimeoutError:
        raise HTTPException(408, f"the photo did not arrive within {BODY_SECONDS:g} s") from None
    except ClientDisconnect:
        raise HTTPException(400, "the photo did not arrive") from None
    return bytes(content)


def _static(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    content = (resources.files("fne.serve") / "static" / name).read_bytes()
    return _constant(Response(content, media_type=media_type))


def _constant(response: Response) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return Response(response.body, media_type=response.headers["content-type"])

    return answer


def _json(values: Values, code: int = 200, headers: dict[str, str] | None = None) -> Response:
    # ASCII: a file name may hold bytes that are not text.
    body = json.dumps(values, allow_nan=False, separators=(",", ":")).encode()
    return Response(body, code, headers, "application/json")


def _problem(code: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    return _json({"error": reason}, code, headers)


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer with the reason why a request cannot be answered."""
    code = next(code for kind, code in REASONS.items() if isinstance(error, kind))
    reason = getattr(error, "message", str(error))
    if isinstance(error, RequestValidationError):
        fault = error.errors()[0]
        reason = f"{'.'.join(str(part) for part in fault['loc'][1:])}: {fault['msg']}"
    return _problem(code, reason, {"Retry-After": "2"} if code == 503 else None)


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(error.status_code, error.detail, dict(error.headers or {}))


async def _internal_problem(request: Request, error: Exception) -> Response:
    # Starlette raises it again, so that the log has its traceback.
    return _problem(500, "the server failed to answer; its log says why")


REASONS: dict[type[Exception], int] = {
    RequestValidationError: 400,
    InputError: 400,
    RefusedError: 400,
    MissingError: 404,
    AbsentError: 409,
    BusyError: 503,
}
