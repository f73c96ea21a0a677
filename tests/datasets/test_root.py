import pytest

from fne.datasets.readers import PATTERNS
from fne.datasets.root import ENDINGS, SUBFOLDERS, image_root


def test_a_folder_is_its_own_root_whatever_its_name(tmp_path):
    (tmp_path / "v1.json").mkdir()
    assert image_root(tmp_path / "v1.json") == tmp_path / "v1.json"


def test_a_file_is_known_by_being_one_whatever_its_name(tmp_path):
    (tmp_path / "captions").touch()
    assert image_root(str(tmp_path / "captions")) == tmp_path


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("pattern", [each for patterns in PATTERNS.values() for each in patterns])
def test_all_files_that_readers_look_for_lead_to_the_folder_they_are_looked_for_in(tmp_path, pattern, there):
    """Also on the machine of a colleague who searches and does not have the images."""
    file = tmp_path / "set" / pattern.replace("*", "x")
    if there:
        file.parent.mkdir(parents=True)
        file.touch()
    assert image_root(file) == tmp_path / "set"


def test_nothing_is_named_here_that_no_reader_looks_for():
    patterns = [each.lower() for several in PATTERNS.values() for each in several]
    assert all(any(each.endswith(ending) for each in patterns) for ending in ENDINGS)
    assert all(any(each.startswith(f"{folder}/") for each in patterns) for folder in SUBFOLDERS)
