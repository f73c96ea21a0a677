"""The command `fne serve`: where it listens, what it demands and what it says."""

import builtins
import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner
from PIL import Image

from fne.cli import main
from fne.cli.serve import _listen


def run(*arguments, **environment):
    return CliRunner().invoke(main, ["serve", *arguments], env={"FNE_TOKEN": None} | environment)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_another_address_demands_a_token_and_says_what_is_exposed(host):
    result = run("--host", host)
    assert result.exit_code == 2
    assert result.stderr == (
        f"Error: --host {host}: other machines could see all images and captions of the catalog; set a token of at least "
        "16 characters in FNE_TOKEN, or leave --host out to serve this machine only\n"
    )


@pytest.mark.parametrize("token", ["short", "with spaces in its middle", "ümläut" * 5, 'quote"quote"quote"'])
def test_a_token_that_can_be_guessed_or_does_not_fit_a_header_is_refused(token):
    result = run("--host", "0.0.0.0", FNE_TOKEN=token)
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: FNE_TOKEN: a token has at least 16 letters and digits; `openssl rand -hex 16` makes one\n",
    )


def test_a_port_that_is_taken_is_an_error():
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = run("--port", str(port))
    assert result.exit_code == 2
    assert (
        result.stderr == f"Error: 127.0.0.1:{port}: Address already in use; choose another --port or --host\n"
    )


def test_a_project_without_artifacts_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("catalog:\n  root: x\n")
    result = run("--port", "0")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


def test_missing_packages_are_named(monkeypatch):
    original = builtins.__import__

    def without(name, *arguments, **options):
        if name == "uvicorn":
            raise ModuleNotFoundError(name)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    assert run().stderr == "Error: fne serve needs uvicorn and fastapi; run `pip install -e .`\n"


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_the_server_says_where_it_is_answers_and_stops(finished, stop):
    command = [sys.executable, "-u", "-m", "fne", "serve", "--port", "0"]
    with subprocess.Popen(
        command, cwd=finished, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            line = server.stdout.readline()
            found = re.fullmatch(r"24 images: open (http://127\.0\.0\.1:\d+)/ \(Ctrl-C stops\)\n", line)
            page = urllib.request.urlopen(f"{found[1]}/", timeout=60).read()
            assert b"<!DOCTYPE html>" in page
        finally:
            os.kill(server.pid, stop)
            _, errors = server.communicate(timeout=60)
    assert "Traceback" not in errors


SLOW = """
import time
from fne.cli import main
from fne.serve.session import Session

def slow(*arguments):
    print("computing", flush=True)
    time.sleep(60)

Session.add_photo = slow
main(["serve", "--port", "0"])
"""


def test_stopping_while_a_photo_is_computed_answers_503_without_a_traceback(finished):
    with subprocess.Popen(
        [sys.executable, "-u", "-c", SLOW],
        cwd=finished,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as server:
        try:
            port = int(re.search(r":(\d+)/", server.stdout.readline())[1])
            content = io.BytesIO()
            Image.new("RGB", (40, 32), "teal").save(content, "PNG")
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/api/photos", content.getvalue())
            assert server.stdout.readline() == "computing\n"
            os.killpg(server.pid, signal.SIGTERM)
            response = connection.getresponse()
            assert (response.status, json.load(response)["error"]) == (503, "the server is being stopped")
            _, errors = server.communicate(timeout=30)
        finally:
            server.kill()
    assert server.returncode == -signal.SIGTERM
    assert "Traceback" not in errors


def test_another_address_is_served_with_the_token_and_a_warning(finished):
    token = "0123456789abcdef"
    command = [
        sys.executable,
        "-u",
        "-m",
        "fne",
        "serve",
        "--host",
        "0.0.0.0",
        "--port",
        "0",
        "--in",
        "photos",
    ]
    with subprocess.Popen(
        command,
        cwd=finished,
        env=os.environ | {"FNE_TOKEN": token},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            line = server.stdout.readline()
            port = re.fullmatch(
                r"24 images: open http://0\.0\.0\.0:(\d+)/\?token=TOKEN, with your token \(Ctrl-C stops\)\n",
                line,
            )[1]
            status = f"http://127.0.0.1:{port}/api/status"
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(status, timeout=60)
            asked = urllib.request.Request(status, headers={"Authorization": f"Bearer {token}"})
            assert urllib.request.urlopen(asked, timeout=60).status == 200
        finally:
            server.terminate()
            _, errors = server.communicate(timeout=60)
    assert (
        f"Warning: whoever can reach 0.0.0.0:{port} and has the token can see every image and caption of the "
        "catalog and of photos, and use computing time for photos that they send, but read no other file. The "
        "connection is not encrypted.\n"
    ) in errors
    assert token not in errors


def test_answers_are_sent_without_delay():
    """Accepted connections have the protocol of the listening socket, and asyncio looks at it."""
    with _listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
