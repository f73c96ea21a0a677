"""What the tests of the whole system ask of the machine: programs that `pip` does not install.

A missing program skips the tests that need it and says how to get it. Where `CI` is set in
the environment it fails them: continuous integration must not pass by testing nothing.
"""

import os
import shutil
from collections.abc import Callable

import pytest

from tests.support.browsers import CHROMIUM, Visit, browsing, visit

Require = Callable[[str, str], str]


@pytest.fixture(scope="session")
def require() -> Require:
    """Return `require(program, how_to_install)`, which returns the path of the program."""

    def find(program: str, how_to_install: str) -> str:
        path = shutil.which(program)
        if path is None:
            reason = f"{program} is not installed: {how_to_install}"
            pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
        return path

    return find


@pytest.fixture(scope="session")
def browser(require):
    executable = require(CHROMIUM, "apt-get install chromium, or run `make test-system` as root on Debian")
    with browsing(executable) as opened:
        yield opened


@pytest.fixture
def open_page(browser):
    """Return `open_page(path, **options)`, see `visit`; all pages are closed after the test."""

    def open_(path, **options) -> Visit:
        return visit(browser, path, **options)

    yield open_
    for context in list(browser.contexts):
        context.close()
