"""Who may talk to the server, and what a browser may do with its answers.

On a loopback address there is no token: everybody with an account on this machine may search. Names of
other hosts are refused, so that no web site can reach the server through a name that it controls (DNS
rebinding), and so are requests that pages of other sites make.

On any other address every request needs the token, in a header (`Authorization: Bearer TOKEN`) or in the
cookie that `/?token=TOKEN` sets. The token is compared in constant time.

A `Connection` is closed if it asks nothing. uvicorn waits for a request as long as the client keeps the
connection open, and each connection takes one of the few places: silent clients could keep others out.
"""

import asyncio
import hmac
import ipaddress
import json
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
COOKIE = "fne_token"
MIN_TOKEN = 16  # characters
CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """Refuses requests that may not be answered, and adds headers to all answers; see above for the token."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answer[name] = value
                answer.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope, headers)
        if refusal:
            await _refuse(guarded, *refusal)
        elif self._token and scope["path"] == "/" and _query_token(scope):
            await _set_cookie(guarded, self._token)
        else:
            await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self._token is None and not _is_loopback_host(host):
            return 403, "this server answers only to localhost; open http://localhost and its port"
        origin = headers.get("origin")
        if origin is not None and not _is_same_host(origin, host):
            return 403, "pages of other sites may not use this server"
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return 403, "pages of other sites may not use this server"
        if self._token is None or self._is_known(scope, headers):
            return None
        return (
            401,
            "this server needs its token: open /?token=TOKEN, or send the header Authorization: Bearer TOKEN",
        )

    def _is_known(self, scope: Scope, headers: Headers) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = [bearer] if scheme.lower() == "bearer" else []
        given += [_cookie(headers.get("cookie", ""))]
        if scope["path"] == "/":
            given.append(_query_token(scope))
        expected = (self._token or "").encode()
        return any(hmac.compare_digest(each.encode(), expected) for each in given if each)


class Connection(H11Protocol):
    """An HTTP connection that is closed if the header of a request is not complete in time.

    A connection that has been answered and is silent may stay for uvicorn's `timeout_keep_alive`.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start to wait for the first request."""
        super().connection_made(transport)
        self._wait_for_header()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; what belongs to none so far must become one in time."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_header()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_header(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._close)

    def _stop_waiting(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._deadline = None
        # The request may have been taken from what was received with an earlier one.
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


def is_loopback(address: str) -> bool:
    """Tell whether an address is reached from this machine only.

    Example:
        >>> [is_loopback(each) for each in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "192.168.1.7")]
        [True, True, True, False, False]
    """
    if address.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _is_loopback_host(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def _is_same_host(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # no address at all, such as http://[
        return False


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def _query_token(scope: Scope) -> str:
    values = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
    return values[0] if values else ""


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"error": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _set_cookie(send: Send, token: str) -> None:
    """Keep the token in a cookie that scripts cannot read, and remove it from the address."""
    cookie = f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict"
    headers = [(b"location", b"/"), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
