"""Take a screenshot of the report page for the README: `python -m tests.support.screenshot PAGE PICTURE`."""

import shutil
from pathlib import Path

import click

from tests.support.browsers import CHROMIUM, browsing, visit


@click.command()
@click.argument("page", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("picture", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--width", default=1280, show_default=True, help="Width of the window in pixels.")
@click.option(
    "--height", default=1140, show_default=True, help="Height of the window in pixels; 0 for the full page."
)
@click.option("--dark", is_flag=True, help="Use the dark color scheme.")
@click.option("--at", default="", help="Scroll to the element with this id first, for example images.")
def main(page: Path, picture: Path, width: int, height: int, dark: bool, at: str) -> None:
    """Write a screenshot of PAGE in Chromium to PICTURE, a PNG file."""
    executable = shutil.which(CHROMIUM)
    if executable is None:
        raise click.ClickException(
            f"{CHROMIUM} is not installed; run `make test-system` as root to install it"
        )
    with browsing(executable) as browser:
        scheme = "dark" if dark else "light"
        found = visit(browser, page, width=width, height=height or 900, color_scheme=scheme)
        if at:
            found.page.locator(f"#{at}").evaluate(
                "heading => heading.scrollIntoView({ behavior: 'instant' })"
            )
        found.page.screenshot(path=picture, full_page=not height)


if __name__ == "__main__":
    main()
