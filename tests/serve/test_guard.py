"""Who may talk to the server, and for how long it waits for a request."""

import socket
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.testclient import TestClient

from fne.serve import guard
from fne.serve.app import build_app
from fne.serve.guard import Connection

TOKEN = "0123456789abcdef0123456789abcdef"
ELSEWHERE = "http://192.0.2.7:8000"


@pytest.fixture(scope="module")
def public(live):
    """A client of a server on another address, without the token."""
    with TestClient(build_app(live, TOKEN), ELSEWHERE, follow_redirects=False) as opened:
        yield opened


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "127.0.0.1"])
def test_loopback_names_are_answered(client, host):
    assert client.get("/api/status", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example:8000", "0.0.0.0:8000", "[::1", "", "localhost@evil.example"],
)
def test_a_name_that_a_web_site_controls_is_refused(client, host):
    response = client.get("/api/status", headers={"host": host})
    assert response.status_code == 403
    assert response.json()["error"].startswith("this server answers only to localhost; open http://localhost")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    ],
)
def test_pages_of_other_sites_are_refused(client, headers):
    response = client.post("/api/photos", content=b"x", headers=headers)
    assert response.status_code == 403
    assert response.json()["error"] == "pages of other sites may not use this server"
    # The page itself may send photos.
    response = client.post("/api/photos", content=b"x", headers={"origin": "http://127.0.0.1:8000"})
    assert response.status_code == 400  # it is not a photo


@pytest.mark.parametrize(
    "path", ["/", "/api/status", "/openapi.json", "/page.js", "/nothing", "/?token=wrong"]
)
def test_another_address_demands_the_token(public, path):
    response = public.get(path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["error"].startswith("this server needs its token: open /?token=TOKEN")


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (f"Bearer {TOKEN[:-1]}", 401),
        (f"Basic {TOKEN}", 401),
        ("Bearer ", 401),
        ("Bearer \xe9", 401),
    ],
)
def test_the_token_is_taken_from_the_header(public, header, code):
    assert public.get("/api/status", headers={"authorization": header.encode("latin-1")}).status_code == code


def test_the_address_with_the_token_sets_a_cookie_that_scripts_cannot_read(live):
    with TestClient(build_app(live, TOKEN), ELSEWHERE, follow_redirects=False) as browser:
        first = browser.get(f"/?token={TOKEN}")
        assert (first.status_code, first.headers["location"]) == (303, "/")
        assert first.headers["set-cookie"] == f"fne_token={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
        assert browser.get("/api/status").status_code == 200
        assert browser.get(f"/api/status?token={TOKEN}").status_code == 400  # only the page takes it there


@pytest.mark.parametrize("path", ["/", "/api/status", "/nothing", "/api/search"])
def test_every_answer_restricts_what_a_browser_may_do(client, path):
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    )
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def greet(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@pytest.fixture
def connect(monkeypatch):
    """Return a function that connects to a server with two places, which waits 0.5 s for a header."""
    monkeypatch.setattr(guard, "HEADER_SECONDS", 0.5)
    config = uvicorn.Config(
        greet, http=Connection, ws="none", lifespan="off", log_level="critical", limit_concurrency=3
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()

        @contextmanager
        def connecting():
            with socket.create_connection(listener.getsockname(), timeout=20) as opened:
                yield opened

        yield connecting
        server.should_exit = True
        thread.join()


def answer_of(opened):
    """Return a whole answer: its body may come after its header."""
    received = b""
    while not received.endswith(b"hi"):
        received += opened.recv(1000)
    return received


def test_silent_connections_do_not_keep_others_out(connect):
    with connect() as first, connect() as second, connect() as refused:
        refused.sendall(REQUEST)
        assert b" 503 " in refused.recv(1000)
        assert first.recv(1) == second.recv(1) == b""  # closed
        with connect() as third:
            third.sendall(REQUEST)
            assert b" 200 " in answer_of(third)


@pytest.mark.parametrize("answered", [False, True])
def test_a_header_that_comes_byte_by_byte_does_not_keep_its_connection(connect, answered):
    with connect() as opened:
        if answered:
            opened.sendall(REQUEST)
            assert b" 200 " in answer_of(opened)
        started = time.monotonic()
        with pytest.raises(OSError, match="reset|Broken pipe"):
            while time.monotonic() - started < 20:
                opened.sendall(b"G")
                time.sleep(0.05)


def test_a_connection_that_was_answered_may_ask_again_later(connect):
    with connect() as opened:
        for _ in range(2):
            opened.sendall(REQUEST[:9])
            time.sleep(0.1)
            opened.sendall(REQUEST[9:])
            assert b" 200 " in answer_of(opened)
            time.sleep(1)
