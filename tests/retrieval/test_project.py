from pathlib import Path

import pytest

from fne.retrieval.project import Project
from tests.projects import change_params


@pytest.mark.parametrize("root", ["photos", "photos/dataset.json", "photos/annotations/captions_val.json"])
def test_images_are_below_the_root_also_where_it_is_a_file_that_is_not_here(project, root):
    change_params(project, {"catalog": {"root": root}})
    catalog = Project(Path("params.yaml")).catalog
    assert catalog.file("red-circle.png") == Path("photos/red-circle.png")
