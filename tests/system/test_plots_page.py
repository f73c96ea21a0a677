"""`dvc plots` in a real browser without a network: the curves are there."""

import shutil
import subprocess
import sys

import pytest
from dvc_render import VegaRenderer, render_html

from tests.imports import ROOT
from tests.report.runs import write_history

TEMPLATE = ROOT / ".dvc" / "plots" / "page.html"


def run_dvc(folder, *arguments):
    subprocess.run([sys.executable, "-m", "dvc", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def plots(tmp_path_factory):
    """The page that `dvc plots show` writes with this project's own pipeline and settings."""
    folder = tmp_path_factory.mktemp("plots")
    run_dvc(folder, "init", "--no-scm", "--quiet")
    shutil.copytree(TEMPLATE.parent, folder / ".dvc" / "plots")
    for name in (".dvc/config", "dvc.yaml", "params.yaml"):
        shutil.copy(ROOT / name, folder / name)
    write_history(folder / "models", {"train/loss": [3, 2, 1, 0.5], "val/rsum": [10, 200, 150, 300]})
    run_dvc(folder, "plots", "show")
    return folder / "dvc_plots" / "index.html"


def drawn_from(folder, points, **properties):
    """Return a page of one plot that DVC's own renderer described."""
    renderer = VegaRenderer(points, "plot", x="step", y="loss", **properties)
    return render_html([renderer], folder / "index.html", html_template=TEMPLATE)


def heights(page):
    """Return the positions of the points of each line, from the top of the picture."""
    paths = page.locator("svg path").evaluate_all("all => all.map(one => one.getAttribute('d'))")
    return [[float(point.split()[1]) for point in path[1:].split("L")] for path in paths]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_curves_are_visible_without_a_request_or_a_complaint(open_page, plots, scheme):
    found = open_page(plots, color_scheme=scheme)
    assert found.foreign_requests == []
    assert found.complaints == []
    titles = found.page.locator("h2").all_inner_texts()
    assert titles == ["Training loss per pair", "Sum of the validation recalls"]
    boxes = found.page.locator("svg path").evaluate_all("all => all.map(one => one.getBBox().width)")
    assert len(boxes) == 2
    assert min(boxes) > 300


def test_curves_go_where_the_values_go(open_page, plots):
    loss, rsum = heights(open_page(plots).page)
    assert loss == sorted(loss)  # falls: further and further from the top
    assert rsum[3] < rsum[1] < rsum[2] < rsum[0]


def test_a_phone_needs_no_scrolling_sideways(open_page, plots):
    assert open_page(plots, width=375).page.evaluate("document.documentElement.scrollWidth") <= 375


def test_revisions_that_are_compared_get_a_line_and_a_name_each(open_page, tmp_path):
    values = {"main": ["3", "1"], "try-1": ["2", "4"]}
    points = [
        {"step": str(step), "loss": value, "rev": rev}
        for rev, each in values.items()
        for step, value in enumerate(each)
    ]
    page = open_page(drawn_from(tmp_path, points, revs_with_datapoints=["main", "try-1"])).page
    assert page.locator("li").all_inner_texts() == ["main", "try-1"]
    main, other = heights(page)
    assert main[0] < main[1]
    assert other[0] > other[1]
    assert (
        len(set(page.locator("svg path").evaluate_all("all => all.map(one => one.getAttribute('stroke'))")))
        == 2
    )


def test_values_that_are_no_numbers_are_left_out_and_a_plot_without_any_says_so(open_page, tmp_path):
    points = [{"step": "0", "loss": "nan", "rev": "main"}, {"step": "1", "loss": "", "rev": "main"}]
    page = open_page(drawn_from(tmp_path, points)).page
    assert page.locator("svg").count() == 0
    assert "draws lines of numbers only" in page.locator("body").inner_text()
