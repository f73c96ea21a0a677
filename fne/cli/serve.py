"""`fne serve`: a page and a JSON interface for searching, on one's own machine."""

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fne.core.errors import InputError
from fne.core.options import INPUT, model_option, params_option
from fne.core.terminal import say

if TYPE_CHECKING:
    from fne.serve.session import Live

EXPOSED = (
    "every image and caption of the catalog{folder}, and use computing time for photos that they send, but "
    "read no other file. The connection is not encrypted"
)
MAX_CONNECTIONS = 128
KEEP_ALIVE, SHUTDOWN = 30, 3  # seconds


@click.command()
@params_option
@click.option("--in", "folder", type=INPUT, help="Also search this folder of photos.")
@model_option("matching", "tuned")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any free port."
)
@click.option("--token", envvar="FNE_TOKEN", show_envvar=True, help="What visitors of another address need.")
def serve(params: Path, folder: Path | None, model: str, host: str, port: int, token: str | None) -> None:
    """Search in a browser, with the model loaded once.

    \b
      fne serve                     open http://127.0.0.1:8000
      fne serve --in ~/photos       also search a folder of photos; it is indexed meanwhile

    With --model tuned, tuned taggers and captioners describe photos where there are any; the page says which.

    The page needs no network. The same is available as JSON: see /openapi.json. Only this machine can
    connect. To let others connect, give another --host, and a token in the environment variable FNE_TOKEN.
    """
    # Before NumPy is imported: products of a single sentence are too small for several threads, which would
    # wait for each other while other requests are answered.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        import fastapi  # noqa: F401  # fastapi: slow to import
        import uvicorn
    except ModuleNotFoundError:
        raise InputError("fne serve needs uvicorn and fastapi; run `pip install -e .`") from None
    from fne.search.open_project import choose_model  # NumPy: reads the setting above
    from fne.serve.app import build_app
    from fne.serve.guard import Connection, is_loopback
    from fne.serve.session import Live

    public = not is_loopback(host)
    if public:
        _check_token(host, token)
    with _listen(host, port) as listener:
        choose_model(params, model)  # a missing one is refused now, and waited for later
        live = Live(params, folder, model)
        where = f"{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        _announce(live, where, public)
        config = uvicorn.Config(
            build_app(live, token if public else None),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            http=Connection,
            ws="none",
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=SHUTDOWN,
        )
        live.start()
        try:
            uvicorn.Server(config).run([listener])
        finally:
            live.stop()


def _announce(live: "Live", where: str, public: bool) -> None:
    """Say what is served, what is missing, and what others can see."""
    snapshot = live.session.snapshot
    for note in snapshot.notes:
        say(f"note: {note}", err=True)
    if public:
        exposed = EXPOSED.format(folder=f" and of {live.folder}" if live.folder else "")
        say(f"Warning: whoever can reach {where} and has the token can see {exposed}.", err=True)
    page = f"http://{where}/" + ("?token=TOKEN, with your token" if public else "")
    say(f"{len(snapshot.catalog.captioned):,} images: open {page} (Ctrl-C stops)")


def _check_token(host: str, token: str | None) -> None:
    from fne.serve.guard import MIN_TOKEN  # starlette: slow to import

    if token is None:
        raise InputError(
            f"--host {host}: other machines could see all images and captions of the catalog; set a token of "
            f"at least {MIN_TOKEN} characters in FNE_TOKEN, or leave --host out to serve this machine only"
        )
    if len(token) < MIN_TOKEN or not token.isalnum() or not token.isascii():
        raise InputError(
            f"FNE_TOKEN: a token has at least {MIN_TOKEN} letters and digits; "
            "`openssl rand -hex 16` makes one"
        )


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; who connects before everything is loaded waits."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends each part of an answer at once (TCP_NODELAY) and not 40 ms later.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(MAX_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise InputError(
            f"{host}:{port}: {error.strerror or error}; choose another --port or --host"
        ) from None
    return listener
