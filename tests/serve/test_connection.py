import socket
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn

from fne.serve import connection
from fne.serve.connection import Connection

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def greet(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@pytest.fixture
def connect(monkeypatch):
    """Return a function that connects to a server with two places, which waits 0.5 s for a header."""
    monkeypatch.setattr(connection, "HEADER_SECONDS", 0.5)
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
