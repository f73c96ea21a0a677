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
from contextlib import contextmanager

import pytest
from PIL import Image

from fne.cli.serve import _listen
from tests.support.commands import fne


def run(*arguments, **environment):
    return fne("serve", *arguments, env={"FNE_TOKEN": None} | environment)


def refused(*arguments, **environment) -> str:
    result = run(*arguments, **environment)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    return result.stderr.removeprefix("Error: ")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_another_address_demands_a_token_and_says_what_is_exposed(host):
    said = refused("--host", host)
    assert said.startswith(
        f"--host {host}: other machines could see all images and captions of the catalog; set a "
    )
    assert said.endswith("16 characters in FNE_TOKEN, or leave --host out to serve this machine only\n")


@pytest.mark.parametrize("token", ["short", "with spaces in its middle", "ümläut" * 5, 'quote"quote"quote"'])
def test_a_token_that_can_be_guessed_or_does_not_fit_a_header_is_refused(token):
    said = refused("--host", "0.0.0.0", FNE_TOKEN=token)
    assert said == "FNE_TOKEN: a token has at least 16 letters and digits; `openssl rand -hex 16` makes one\n"


def test_a_port_that_is_taken_is_an_error():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = refused("--port", str(port))
    assert said == f"127.0.0.1:{port}: Address already in use; choose another --port or --host\n"


def test_a_project_without_artifacts_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("catalog:\n  root: x\n")
    refused("--port", "0")


def test_missing_packages_are_named(monkeypatch):
    original = builtins.__import__

    def without(name, *arguments, **options):
        if name == "uvicorn":
            raise ModuleNotFoundError(name)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    assert run().stderr == "Error: fne serve needs uvicorn and fastapi; run `pip install -e .`\n"


@contextmanager
def started(folder, *command, environment=os.environ, stop=signal.SIGTERM, **options):
    """Start a server, give it and its first line, and stop it; afterwards `errors` is what it wrote."""
    server = subprocess.Popen(
        [sys.executable, "-u", *command], cwd=folder, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip
    try:
        yield server, server.stdout.readline()
    finally:
        server.send_signal(stop)
        _, server.errors = server.communicate(timeout=60)
    assert "Traceback" not in server.errors


def test_the_server_says_where_it_is_answers_and_stops_with_ctrl_c(finished):
    with started(finished, "-m", "fne", "serve", "--port", "0", stop=signal.SIGINT) as (_, line):
        found = re.fullmatch(r"24 images: open (http://127\.0\.0\.1:\d+)/ \(Ctrl-C stops\)\n", line)
        assert b"<!DOCTYPE html>" in urllib.request.urlopen(f"{found[1]}/", timeout=60).read()


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
    with started(finished, "-c", SLOW, start_new_session=True) as (server, line):
        port = int(re.search(r":(\d+)/", line)[1])
        content = io.BytesIO()
        Image.new("RGB", (40, 32), "teal").save(content, "PNG")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/api/photos", content.getvalue())
        assert server.stdout.readline() == "computing\n"
        os.killpg(server.pid, signal.SIGTERM)
        response = connection.getresponse()
        assert (response.status, json.load(response)["error"]) == (503, "the server is being stopped")
        assert server.wait(30) == -signal.SIGTERM


def test_another_address_is_served_with_the_token_and_a_warning(finished):
    token = "0123456789abcdef"
    command = ["-m", "fne", "serve", "--host", "0.0.0.0", "--port", "0", "--in", "photos"]
    with started(finished, *command, environment=os.environ | {"FNE_TOKEN": token}) as (server, line):
        shown = r"24 images: open http://0\.0\.0\.0:(\d+)/\?token=TOKEN, with your token \(Ctrl-C stops\)\n"
        port = re.fullmatch(shown, line)[1]
        status = f"http://127.0.0.1:{port}/api/status"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(status, timeout=60)
        asked = urllib.request.Request(status, headers={"Authorization": f"Bearer {token}"})
        assert urllib.request.urlopen(asked, timeout=60).status == 200
    (warning,) = [line for line in server.errors.splitlines() if line.startswith("Warning: ")]
    said = f"whoever can reach 0.0.0.0:{port} and has the token can see every image and caption of the catalog and "
    assert said in warning
    assert warning.endswith("The connection is not encrypted.")
    assert token not in server.errors


def test_answers_are_sent_without_delay():
    """Accepted connections have the protocol of the listening socket, and asyncio looks at it."""
    with _listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
