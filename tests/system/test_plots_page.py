"""The page of `dvc plots` in a real browser without a network."""

import shutil
import subprocess
import sys

import pytest
from dvc_render import VegaRenderer, render_html

from tests.support.imports import ROOT
from tests.support.report import write_history

TEMPLATE = ROOT / ".dvc" / "plots" / "page.html"


def run_dvc(folder, *arguments):
    subprocess.run([sys.executable, "-m", "dvc", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def plots(tmp_path_factory):
    """Return the page that `dvc plots show` writes with the pipeline and settings of this project."""
    folder = tmp_path_factory.mktemp("plots")
    run_dvc(folder, "init", "--no-scm", "--quiet")
    shutil.copytree(TEMPLATE.parent, folder / ".dvc" / "plots")
    for name in (".dvc/config", "dvc.yaml", "params.yaml"):
        shutil.copy(ROOT / name, folder / name)
    write_history(folder / "models", {"train/loss": [3, 2, 1, 0.5], "val/rsum": [10, 200, 150, 300]})
    (folder / "metrics" / "curves").mkdir(parents=True)
    for name, header in (("recall", "k"), ("ranks", "percent")):
        lines = [f"{header}\timage_to_text\ttext_to_image", "1\t10\t20", "5\t40\t60", "10\t70\t80"]
        (folder / "metrics" / "curves" / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    run_dvc(folder, "plots", "show")
    return folder / "dvc_plots" / "index.html"


def drawn_from(folder, points, **properties):
    """Return a page with one plot, made by the renderer of DVC."""
    renderer = VegaRenderer(points, "plot", x="step", y="loss", **properties)
    return render_html([renderer], folder / "index.html", html_template=TEMPLATE)


def heights(page):
    """Return the distances of the points of each line from the top of the picture."""
    paths = page.locator("svg path").evaluate_all("all => all.map(one => one.getAttribute('d'))")
    return [[float(point.split()[1]) for point in path[1:].split("L")] for path in paths]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_curves_are_visible_without_requests_or_errors(open_page, plots, scheme):
    found = open_page(plots, color_scheme=scheme)
    assert found.foreign_requests == []
    assert found.errors == []
    titles = found.page.locator("h2").all_inner_texts()
    assert titles == [
        "Training loss per pair",
        "Sum of the validation recalls",
        "Recall within the first K, sentences for an image",
        "Recall within the first K, images for a sentence",
        "Rank of the first true sentence (lower is better)",
        "Rank of the true image (lower is better)",
    ]
    boxes = found.page.locator("svg path").evaluate_all("all => all.map(one => one.getBBox().width)")
    assert len(boxes) == 6
    assert min(boxes) > 300


def test_curves_rise_and_fall_with_the_values(open_page, plots):
    loss, rsum, *curves = heights(open_page(plots).page)
    assert loss == sorted(loss)  # it falls: the distance from the top grows
    assert rsum[3] < rsum[1] < rsum[2] < rsum[0]
    assert all(each == sorted(each, reverse=True) for each in curves)  # they rise


def test_the_page_fits_the_width_of_a_phone(open_page, plots):
    assert open_page(plots, width=375).page.evaluate("document.documentElement.scrollWidth") <= 375


def test_each_compared_revision_gets_a_line_and_a_name(open_page, tmp_path):
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


def test_values_that_are_not_numbers_are_ignored_and_a_plot_without_numbers_shows_a_message(
    open_page, tmp_path
):
    points = [{"step": "0", "loss": "nan", "rev": "main"}, {"step": "1", "loss": "", "rev": "main"}]
    page = open_page(drawn_from(tmp_path, points)).page
    assert page.locator("svg").count() == 0
    assert "draws lines of numbers only" in page.locator("body").inner_text()
