"""`fne study`: run a study that its file describes, and show what it says."""

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from fne.core.files import write_text
from fne.core.locks import locked
from fne.core.options import OUTPUT, format_option, params_option
from fne.core.outputs import check_output
from fne.core.signals import explain_interrupt
from fne.core.terminal import say
from fne.experiments.grids import FORMATS
from fne.experiments.study_file import LOCK, check_record, default_folder, load_study, require_own_folder
from fne.experiments.study_results import CELLS, cell_table, collect, grids
from fne.report.study_page import is_figure, is_page, render, size_figure

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


def study_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what both commands take: the file, the folder of the results, and what a study is repeated with."""
    for option in (
        click.option(
            "--images",
            type=click.IntRange(0),
            default=0,
            help="A pilot with only so many images, drawn by the seed.",
        ),
        click.option(
            "--official",
            is_flag=True,
            help="Use the splits of the catalog instead of folds: its test images.",
        ),
        click.option("--seed", type=click.IntRange(0), help="Repeat the study with this seed."),
        click.option(
            "--to", "folder", type=FOLDER, help="The folder of the results; by default FILE without .yaml."
        ),
        click.argument("file", type=FILE),
    ):
        command = option(command)
    return command


@click.group()
def study() -> None:
    """Run a study of many training runs, and show what it says.

    A file under studies/ names factors, levels, folds, seeds and hypotheses. Its digest is
    recorded before the first run, and a file that was changed afterwards is refused.

    \b
      fne study run studies/flickr8k.yaml                 run what is missing
      fne study run studies/flickr8k.yaml --seed 1        the same with other folds, draws and seeds
      fne study run studies/flickr8k.yaml --official      the same on the test images of the catalog
      fne study run studies/flickr8k.yaml --images 1000   a pilot with 1,000 images
      fne study show studies/flickr8k.yaml                tables with corrected intervals
      fne study show studies/flickr8k.yaml --html study.html --figure study.svg --cells study.csv
    """


@study.command(short_help="Run the missing training runs of a study.")
@study_options
@click.option(
    "--only", multiple=True, help="Only cells whose names begin with this, such as vgg16/all; repeatable."
)
@params_option
def run(
    file: Path,
    folder: Path | None,
    seed: int | None,
    official: bool,
    images: int,
    only: tuple[str, ...],
    params: Path,
) -> None:
    """Run the missing training runs of a study, one after the other, in one process.

    The project is not changed: everything is written to the folder of the results. Finished
    training runs are kept, so the same command continues after an interruption.
    """
    from fne.experiments.study_run import run_study  # torch: slow to import

    found = load_study(file, seed, official, images)
    target = folder or default_folder(file, seed, official, images)
    require_own_folder(target)
    with locked(target / LOCK, "runs this study", partial(say, err=True)), explain_interrupt():
        ran = run_study(found, params, target, partial(say, err=True), only)
    chosen = (
        f" --to {shlex.quote(str(folder))}" if folder else "",
        f" --seed {seed}" if seed is not None else "",
        " --official" if official else "",
        f" --images {images}" if images else "",
    )
    say(f"{target}: {ran} training runs were run; show them with `fne study show {file}{''.join(chosen)}`")


@study.command(short_help="Show its hypotheses and a table of each grid.")
@study_options
@format_option
@click.option("--html", type=OUTPUT, help="Also write a page with the figure and the tables.")
@click.option("--figure", type=OUTPUT, help="Also write the figure, as SVG.")
@click.option("--cells", type=OUTPUT, help="Also write all cells as one table, as CSV.")
def show(
    file: Path,
    folder: Path | None,
    seed: int | None,
    official: bool,
    images: int,
    form: str,
    html: Path | None,
    figure: Path | None,
    cells: Path | None,
) -> None:
    """Show the results of a study: its hypotheses, and a table of each grid.

    Intervals are paired over the test images and, with five seeds or more, over seeds. They are
    corrected for the number of hypotheses in the file, whether they were run or not.
    """

    def is_table(head: bytes) -> bool:
        return head.startswith(",".join(CELLS).encode())

    outputs = (html, "--html", is_page), (figure, "--figure", is_figure), (cells, "--cells", is_table)
    for path, option, is_own in outputs:
        if path:
            check_output(path, option, is_own, file)
    found = load_study(file, seed, official, images)
    target = folder or default_folder(file, seed, official, images)
    check_record(found, target)
    results = collect(found, target)
    say(FORMATS[form](grids(results)))
    say(f"{results.training_runs} of {results.planned} training runs are finished", err=True)
    if html:
        write_text(html, render(results))
    if figure:
        write_text(figure, size_figure(results))
    if cells:
        write_text(cells, FORMATS["csv"]([cell_table(results)]) + "\n")
