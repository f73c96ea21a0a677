"""A real browser without a network, and a record of what a page does in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = "chromium"
ARGUMENTS = [
    "--no-sandbox",  # Chromium refuses to run as root with the sandbox, and these pages are trusted
    "--disable-dev-shm-usage",  # /dev/shm is small in containers
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no host name resolves
]


@dataclass
class Visit:
    """An open page with its requests, errors and dialogs."""

    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # console messages and uncaught errors
    dialogs: list[str] = field(default_factory=list)

    @property
    def foreign_requests(self) -> list[str]:
        """Requests other than for local files and data URIs."""
        return [url for url in self.requests if not url.startswith(("file:", "data:"))]


@contextmanager
def browsing(executable: str) -> Iterator[Browser]:
    """Run a headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def visit(browser: Browser, place: Path | str, width: int = 1280, height: int = 900, **context: Any) -> Visit:
    """Open a file, or the address of a server on this machine, in a new window.

    Args:
        browser: the browser.
        place: the file or the address.
        width: the width of the window.
        height: its height.
        context: options of Playwright's `new_context`.
    """
    size = {"width": width, "height": height}
    opened = browser.new_context(viewport=size, offline=isinstance(place, Path), **context)
    found = Visit(opened.new_page())
    opened.on("request", lambda request: found.requests.append(request.url))
    found.page.on("console", lambda message: found.errors.append(message.text))
    found.page.on("pageerror", lambda error: found.errors.append(str(error)))
    found.page.on("dialog", lambda dialog: (found.dialogs.append(dialog.message), dialog.dismiss()))
    found.page.goto(place.resolve().as_uri() if isinstance(place, Path) else place)
    return found
