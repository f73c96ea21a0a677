"""A server of the small finished project, asked in this process."""

import shutil
from collections.abc import Callable, Iterator

import pytest
from starlette.testclient import TestClient

from fne.serve.app import build_app
from fne.serve.session import Live

LOCAL = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def live(finished, tmp_path_factory) -> Iterator[Live]:
    """The finished project, loaded once for the tests of a module that change nothing."""
    folder = tmp_path_factory.mktemp("served") / "project"
    shutil.copytree(finished, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found = Live(folder / "params.yaml", folder / "photos")
        found.session.prepare()
        yield found
        found.stop()


@pytest.fixture(scope="module")
def client(live) -> Iterator[TestClient]:
    """A client on a loopback address; errors of the server are raised in the test."""
    with TestClient(build_app(live, None), base_url=LOCAL) as opened:
        yield opened


@pytest.fixture(scope="module")
def ask(client) -> Callable[..., dict]:
    """Return `ask(path, **parameters)`, which returns the JSON of a successful answer."""

    def asking(path: str, **parameters: object) -> dict:
        response = client.get(path, params={key.rstrip("_"): value for key, value in parameters.items()})
        assert response.status_code == 200, response.text
        return response.json()

    return asking
