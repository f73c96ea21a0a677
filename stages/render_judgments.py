"""Stage `render_judgments`: draw grades for pairs of the demo data set."""

from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import OUTPUT, params_option
from fne.core.settings import load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.datasets.demo.dataset import Render
from fne.datasets.demo.judgments import JUDGES, judgments


@stage("render")
@click.argument("judged", type=OUTPUT)
@params_option
def main(judged: Path, params: Path) -> None:
    """Draw grades of images for sentences, whose truth is known exactly, into the file JUDGED."""
    text = judgments(load_section(params, "render", Render))
    write_text(judged, text)
    say(f"{judged}: {len(text.splitlines())} pairs with the grades of {JUDGES} judges")


if __name__ == "__main__":
    main()
