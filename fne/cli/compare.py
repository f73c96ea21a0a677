"""`fne compare`: two experiments side by side, as tables or as one page."""

from functools import partial
from pathlib import Path

import click

from fne.core.files import write_text
from fne.core.options import OUTPUT, format_option
from fne.core.outputs import check_output
from fne.core.terminal import say
from fne.experiments.grids import FORMATS
from fne.experiments.runs import WORKSPACE, open_runs
from fne.report.compare_page import compare_runs, grids, is_page, render
from fne.report.ranking_page import rank_runs, ranking_grids, render_ranking


@click.command()
@click.argument("a")
@click.argument("others", metavar="[B] [C]...", nargs=-1)
@click.option("--html", type=OUTPUT, help="Write one page that opens from disk, with curves and pictures.")
@click.option(
    "--queries",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="How many queries to show on the page for each direction and side.",
)
@format_option
def compare(a: str, others: tuple[str, ...], html: Path | None, queries: int, form: str) -> None:
    """Compare two experiments: settings, metrics, curves and queries. Rank three or more.

    A, B and so on are names of experiments, Git revisions, or 'workspace', the current state, which is
    the default for B. NAME:tuned is the fine-tuned model of NAME, with what its tuned taggers and
    captioners wrote.

    \b
      fne compare HEAD                                   the last commit and the workspace
      fne compare brown-axle hexed-orle                  two experiments
      fne compare brown-axle brown-axle:tuned            what the fine-tuning changed
      fne compare main hexed-orle --html compare.html    one page, with curves and pictures
      fne compare HEAD brown-axle hexed-orle             a ranking with ties

    The test images are resampled to estimate how much each metric and their difference vary, with
    the same samples for both. Experiments that differ only in train.seed count as seeds of one
    experiment. With fewer than five seeds on a side, it does not say which one is better.
    In a ranking, experiments that the test images cannot separate share a rank. Tags and captions that
    both runs recorded are compared on the images of the scored split.
    Nothing is fetched from a remote: run `dvc fetch -A` first if the cache lacks a run.
    """
    if html:
        check_output(html, "--html", is_page)
    with open_runs(Path()) as project:
        if len(others) > 1:
            ranking = rank_runs(project, [a, *others])
            tables, page = ranking_grids(ranking), partial(render_ranking, ranking)
        else:
            [b] = others or [WORKSPACE]
            both = compare_runs(project, a, b, queries, pictures=html is not None)
            tables, page = grids(both), partial(render, both)
    say(FORMATS[form](tables))
    if html:
        check_output(html, "--html", is_page)  # again: reading may have taken long
        write_text(html, page())
        say(f"{html}: open {html.resolve().as_uri()} in a browser", err=True)
