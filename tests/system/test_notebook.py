"""The example notebook, executed by a real kernel on a small project."""

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.imports import ROOT


@pytest.fixture(scope="module")
def executed(finished):
    notebook = nbformat.read(ROOT / "examples/explore.ipynb", as_version=4)
    resources = {"metadata": {"path": str(finished)}}
    return NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()


def outputs(notebook, kind):
    return [
        output["data"][kind]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if kind in output.get("data", {})
    ]


def test_it_shows_an_image_and_two_plots(executed):
    assert len(outputs(executed, "image/png")) == 3


def test_it_ends_with_two_searches_as_tables_with_thumbnails(executed):
    tables = outputs(executed, "text/html")
    assert [table.count("<img ") for table in tables] == [5, 6]
    assert "images for “a red circle”, by model (cosine)" in tables[0]


def test_it_is_committed_without_outputs():
    notebook = nbformat.read(ROOT / "examples/explore.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)
