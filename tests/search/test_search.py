import inspect
import pydoc

import pytest

import fne
from fne import InputError
from fne.search.engine import search
from fne.search.open_project import Project


def test_a_search_finds_what_the_command_finds_from_any_folder(finished, tmp_path, monkeypatch):
    expected = search(Project(finished / "params.yaml"), "a red circle", None, None, 3)
    monkeypatch.chdir(tmp_path)
    assert fne.search("a red circle", root=finished, k=3) == expected


def test_the_package_stays_a_package(finished):
    from fne.search import answer

    assert fne.search.answer is answer
    assert isinstance(fne.search("red-circle.png", root=finished), fne.Answer)


def test_help_shows_the_function():
    page = pydoc.render_doc(fne.search)
    assert "function fne.search" in page
    assert "Find images for a sentence" in page
    assert list(inspect.signature(fne.search).parameters) == [
        *["query", "root", "by", "model", "folder", "split", "tag", "k", "explain"]
    ]


def test_similar_images_and_folders_are_searched(finished):
    similar = fne.search(finished / "photos/red-circle.png", root=finished, by="fne", k=2)
    assert (similar.by, similar.measure, len(similar.matches)) == ("fne", "ternary dot product", 2)
    folder = fne.search("a red circle", root=finished, folder=finished / "photos", k=1)
    assert folder.pool == str(finished / "photos")
    assert set(fne.search("a red circle", root=finished, split="val").splits) == {"val"}


def test_a_wrong_number_of_matches_is_refused(finished):
    with pytest.raises(InputError) as error:
        fne.search("a red circle", root=finished, k=0)
    assert error.value.message == "k: expected at least 1, got 0"
