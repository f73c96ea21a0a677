"""The web application: the page, and the JSON interface that it uses.

`OPERATIONS` lists every request that is answered. The routes and `/openapi.json` are both made from it.

Handlers run in threads, a few at a time. Photos are limited in bytes, pixels and time, and decoded in another
process (`fne.search.decode_process`). A picture is found by the digest of its file, and is sent only if the
file still has that digest: so nothing but images of the catalog and of the folder can be read, whatever a
request says.
"""

import asyncio
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from anyio import CapacityLimiter, to_thread
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from fne.core.errors import InputError
from fne.report.facts import feature_source
from fne.search.decode_process import Decoder, RefusedError
from fne.serve import answers, schemas
from fne.serve.answers import AbsentError, Filters, MissingError, find_image
from fne.serve.forms import form_file
from fne.serve.guard import Guard
from fne.serve.openapi import Operation, describe_interface
from fne.serve.session import BusyError, Live, Session
from fne.store.images import UndecodableError, read_image_file

MAX_BYTES = 32 << 20
MAX_PIXELS = 50_000_000
BODY_SECONDS = 30.0
# Requests that are answered at the same time, and photos that are embedded or wait for it.
THREADS, PHOTOS = 4, 6
SIDES = {"small": 320, "large": 1600}
PICTURE_CACHE = 96 << 20  # bytes
MAX_TAGS = 500  # in the status
WARM_UP = "a first sentence"
PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}

Values = dict[str, Any]


@dataclass
class Server:
    """What all handlers share."""

    live: Live
    decoder: Decoder = field(default_factory=Decoder)
    limiter: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(THREADS))
    photos: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(PHOTOS))
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


def status(server: Server, session: Session, parameters: Any, request: Request, body: bytes) -> Values:
    """Return what is loaded."""
    snapshot = session.snapshot
    network, message = session.network_state
    embeddings = snapshot.embeddings
    return {
        "version": snapshot.version,
        "images": len(snapshot.catalog.captioned),
        "captions": sum(len(record.captions) for record in snapshot.catalog.captioned.values()),
        "splits": snapshot.splits,
        "tags": dict(list(snapshot.tags.items())[:MAX_TAGS]),
        "features": feature_source(snapshot.lineage),
        "embedding": str(embeddings.artifact.settings["kind"]) if embeddings else None,
        "layers": answers.layers_of(session),
        "sentences": snapshot.joint is not None,
        "examples": snapshot.examples if snapshot.joint else [],
        "samples": answers.samples(session),
        "descriptions": list(snapshot.describers),
        "network": network,
        "network_message": message,
        "folder": session.folder.as_dict() if session.folder else None,
        "notes": snapshot.notes,
        "waiting": server.live.waiting,
        "limits": {
            "bytes": MAX_BYTES,
            "pixels": MAX_PIXELS,
            "text": schemas.MAX_TEXT,
            "k": schemas.MAX_MATCHES,
        },
    }


def search(
    server: Server, session: Session, given: schemas.SearchParameters, request: Request, body: bytes
) -> Values:
    """Return images for a sentence."""
    if not given.text.strip():
        raise InputError("the query is empty; describe what the image shows")
    return answers.images_for_sentence(session, given.text, _filters(given), given.k)


def sentences(
    server: Server, session: Session, given: schemas.SentenceParameters, request: Request, body: bytes
) -> Values:
    """Return sentences for an image."""
    return answers.sentences_for_image(session, find_image(session, given.image, given.photo), given.k)


def similar(
    server: Server, session: Session, given: schemas.SimilarParameters, request: Request, body: bytes
) -> Values:
    """Return images that look similar to an image."""
    query = find_image(session, given.image, given.photo)
    return answers.similar_images(session, query, given.layer, _filters(given), given.k)


def details(
    server: Server, session: Session, given: schemas.ImageParameters, request: Request, body: bytes
) -> Values:
    """Return what is known about an image."""
    return answers.image_details(session, find_image(session, given.image, given.photo))


def describe(
    server: Server, session: Session, given: schemas.ImageParameters, request: Request, body: bytes
) -> Values:
    """Return what models say about an image."""
    return answers.description(session, find_image(session, given.image, given.photo))


def add_photo(server: Server, session: Session, parameters: Any, request: Request, body: bytes) -> Values:
    """Embed a photo."""
    body = form_file(request.headers.get("content-type", ""), body)
    if not body:
        raise InputError("the photo is empty; send the content of an image file")
    sha256 = hashlib.sha256(body).hexdigest()
    known = session.snapshot.by_digest.get(sha256)
    found: Any = known or session.photo(sha256)
    if found is None:
        found = session.add_photo(sha256, server.decoder.pixels(body, MAX_PIXELS))
    return {
        "version": session.snapshot.version,
        "photo": sha256,
        "image": known.id if known else None,
        "width": found.width,
        "height": found.height,
    }


def picture(
    server: Server, session: Session, given: schemas.PictureParameters, request: Request, body: bytes
) -> Response:
    """Return the picture of an image of the catalog or of the folder, as a JPEG."""
    digest = str(request.path_params["digest"])
    file = session.file(digest)
    if file is None:
        raise MissingError("there is no such picture")
    content = server.pictures.get((digest, given.size))
    if content is None:
        try:
            original = read_image_file(file)
            if hashlib.sha256(original).hexdigest() != digest:
                raise MissingError("the file of this picture has changed")
            content = server.decoder.jpeg(original, SIDES[given.size]).content
        except (UndecodableError, RefusedError) as error:
            raise MissingError(f"the picture cannot be shown: {error}") from None
        server.pictures.put((digest, given.size), content)
    # A digest names one content forever.
    caching = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(content, media_type="image/jpeg", headers=caching)


OPERATIONS = [
    Operation(
        "GET",
        "/api/status",
        "What is loaded, and what can be searched.",
        schemas.NoParameters,
        schemas.Status,
        status,
    ),
    Operation(
        "GET", "/api/search", "Images for a sentence.", schemas.SearchParameters, schemas.Answer, search
    ),
    Operation(
        "GET",
        "/api/sentences",
        "Sentences for an image.",
        schemas.SentenceParameters,
        schemas.Answer,
        sentences,
    ),
    Operation(
        "GET", "/api/similar", "Images that look similar.", schemas.SimilarParameters, schemas.Answer, similar
    ),
    Operation(
        "GET",
        "/api/image",
        "What is known about an image.",
        schemas.ImageParameters,
        schemas.Details,
        details,
    ),
    Operation(
        "GET",
        "/api/description",
        "What models say about an image.",
        schemas.ImageParameters,
        schemas.Description,
        describe,
    ),
    Operation(
        "POST",
        "/api/photos",
        "Embed a photo: the body of the request is the content of an image file, or a form with one file.",
        schemas.NoParameters,
        schemas.SentPhoto,
        add_photo,
    ),
    Operation(
        "GET",
        "/api/pictures/{digest}",
        "The picture of an image, by the SHA-256 of its file.",
        schemas.PictureParameters,
        None,
        picture,
    ),
]


def build_app(live: Live, token: str | None) -> ASGIApp:
    """Return the application.

    Args:
        live: what is searched.
        token: what every request has to have, or None on a loopback address.
    """
    server = Server(live)
    _warm_up(live.session)
    routes = [Route(path, _static(*file)) for path, file in PAGE.items()]
    routes.append(Route("/openapi.json", _constant(_json(describe_interface(OPERATIONS)))))
    routes += [Route(each.path, _endpoint(server, each), methods=[each.method]) for each in OPERATIONS]
    handlers = {HTTPException: _http_problem, Exception: _internal_problem}

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        server.decoder.close()

    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.state.server = server
    return Guard(app, token)


def _warm_up(session: Session) -> None:
    """Answer a query of each kind, so that the first visitor does not wait for compilers and libraries."""
    image = next(iter(session.snapshot.catalog.captioned))
    with suppress(AbsentError, InputError):
        answers.images_for_sentence(session, WARM_UP, Filters(), 1)
    with suppress(AbsentError, InputError):
        answers.similar_images(session, find_image(session, image, None), None, Filters(), 1)


def _endpoint(server: Server, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        session = server.live.session.for_request()
        try:
            parameters = _parse(operation.parameters, request)
            if operation.method == "POST":
                found = await _with_body(server, operation, session, parameters, request)
            else:
                found = await to_thread.run_sync(
                    operation.handle, server, session, parameters, request, b"", limiter=server.limiter
                )
        except (InputError, RefusedError) as error:
            return _problem(400, getattr(error, "message", str(error)))
        except MissingError as error:
            return _problem(404, str(error))
        except AbsentError as error:
            return _problem(409, str(error))
        except BusyError as error:
            return _problem(503, str(error), {"Retry-After": "2"})
        except asyncio.CancelledError:  # uvicorn waits for answers only for a moment when it stops
            return _problem(503, "the server is being stopped", {"Connection": "close"})
        return found if isinstance(found, Response) else _json(found)

    return answer


async def _with_body(
    server: Server, operation: Operation, session: Session, parameters: schemas.Parameters, request: Request
) -> Values | Response:
    """Answer a request with a body; a few at a time, because bodies take memory and photos take long."""
    if not server.photos.acquire(blocking=False):
        raise BusyError("other photos are waiting; try again in a moment")
    try:
        body = await _body(request)
        found: Values | Response = await to_thread.run_sync(
            operation.handle, server, session, parameters, request, body
        )
        return found
    finally:
        server.photos.release()


def _parse(model: type[schemas.Parameters], request: Request) -> schemas.Parameters:
    pairs = request.query_params.multi_items()
    names = [name for name, _ in pairs]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise InputError(f"{repeated[0]} is given twice")
    try:
        return model.model_validate(dict(pairs))
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise InputError(f"{place}: {fault['msg']}") from None


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


def _filters(given: schemas.SearchParameters | schemas.SimilarParameters) -> Filters:
    if given.where == answers.FOLDER and (given.split or given.tag):
        raise InputError("photos of the folder have no splits and tags; leave split and tag out")
    return Filters(given.where, given.split or None, given.tag or None)


def _static(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    content = (resources.files("fne.serve") / "static" / name).read_bytes()
    return _constant(Response(content, media_type=media_type))


def _constant(response: Response) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return Response(response.body, media_type=response.headers["content-type"])

    return answer


def _json(values: Any, code: int = 200, headers: dict[str, str] | None = None) -> Response:
    # ASCII: a file name may hold bytes that are no text.
    body = json.dumps(values, allow_nan=False, separators=(",", ":")).encode()
    return Response(body, code, headers, "application/json")


def _problem(code: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    return _json({"error": reason}, code, headers)


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(error.status_code, error.detail, dict(error.headers or {}))


async def _internal_problem(request: Request, error: Exception) -> Response:
    # Starlette raises it again, so that the log has its traceback.
    return _problem(500, "the server failed to answer; its log says why")
