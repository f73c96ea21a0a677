"""A published folder over HTTP: a plain web server is a DVC remote that others only read."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pytest

from fne.store.layout import Layer
from fne.store.rows import Rows, write_rows
from tests.support.commands import fne
from tests.support.projects import dvc, fails, new_repository
from tests.support.servers import free_port

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def server(tmp_path) -> Iterator[str]:
    """A web server of Python for the folder `www`."""
    (tmp_path / "www").mkdir()
    port = str(free_port())
    command = [sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1"]
    process = subprocess.Popen(command, cwd=tmp_path / "www", stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    for _ in range(100):
        try:
            urlopen(address).close()
            break
        except URLError:
            time.sleep(0.1)
    yield address
    process.terminate()
    process.wait()


def project(folder: Path) -> Path:
    folder.mkdir()
    new_repository(folder)
    dvc(folder, "init", "--quiet")
    return folder


def test_a_reader_pulls_a_published_folder_and_imports_it(server, tmp_path, monkeypatch):
    lender = project(tmp_path / "lender")
    monkeypatch.chdir(lender)
    write_rows(Path("rows"), "activations", [Layer("conv", 3)], "float32", [(0, ["a", "b"], ROWS)], {}, {})
    assert fne("publish", "rows", "--to", "photos", "--license", "cc0-1.0").exit_code == 0
    dvc(lender, "add", "--quiet", "photos")
    dvc(lender, "remote", "add", "--quiet", "public", str(tmp_path / "www/fne"))
    dvc(lender, "push", "--quiet", "--remote", "public", "photos.dvc")
    for name in ("photos.dvc", "photos/README.md"):
        shutil.copy(name, tmp_path / "www")

    reader = project(tmp_path / "reader")
    monkeypatch.chdir(reader)
    dvc(reader, "import-url", "--quiet", f"{server}/README.md")  # a single file
    assert "cc0-1.0" in Path("README.md").read_text()
    Path("photos.dvc").write_bytes(urlopen(f"{server}/photos.dvc").read())
    dvc(reader, "remote", "add", "--quiet", "public", f"{server}/fne")
    dvc(reader, "pull", "--quiet", "--remote", "public", "photos.dvc")
    result = fne("import", "photos")
    assert result.exit_code == 0, result.output
    assert Rows.open(Path("features/photos/rows")).read(["a", "b"]).tolist() == ROWS.tolist()
    Path("more").write_text("more")
    dvc(reader, "add", "--quiet", "more")
    assert "failed to push" in fails(reader, "push", "--remote", "public", "more.dvc")
