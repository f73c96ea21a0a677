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


# Returns the contrast of every visible text to what is behind it, and the text.
CONTRAST = """
() => {
  // Red, green and blue up to 255, and the opacity; mixed colors are written as color(srgb …).
  const parts = (color) => {
    const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number);
    return [...[r, g, b].map((part) => part * (color.startsWith("color(") ? 255 : 1)), a];
  };
  const light = (color) => {
    const [r, g, b] = color.slice(0, 3).map((part) => {
      const value = part / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const solid = (element) => {
    const color = parts(getComputedStyle(element).backgroundColor);
    const below = color[3] < 1 ? solid(element.parentElement) : color;
    return color.slice(0, 3).map((part, place) => color[3] * part + (1 - color[3]) * below[place]);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("script")) continue;
    const style = getComputedStyle(element);
    const [one, other] = [light(parts(element.closest("svg") ? style.fill : style.color)), light(solid(element))];
    found.push([(Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05), walker.currentNode.data.trim()]);
  }
  return found;
}
"""


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

    def require_contrast(self, texts: int) -> None:
        """Require more than a number of texts, all with a contrast of at least 4.5."""
        found = self.page.evaluate(CONTRAST)
        assert len(found) > texts
        assert [(round(contrast, 2), text) for contrast, text in found if contrast < 4.5] == []

    def require_width(self, width: int) -> None:
        """Require that nothing is wider than a window of this width, except tables that scroll in their frame."""
        self.page.set_viewport_size({"width": width, "height": 900})
        assert self.page.evaluate("document.documentElement.scrollWidth") <= width


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
