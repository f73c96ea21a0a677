import subprocess
import sys

import pytest

from fne.core.params import parse_section
from fne.datasets.settings import Catalog

SECTION = {
    "root": "data/demo",
    "format": "auto",
    "annotations": "auto",
    "images": "auto",
    "restval": "drop",
    "val_share": 0.1,
    "test_share": 0.1,
    "seed": 0,
    "max_rejects": 0,
}


def faults(**changes):
    return parse_section({"catalog": SECTION | changes}, "catalog", Catalog)[1]


def test_the_section_as_shipped_is_valid():
    assert faults() == []


@pytest.mark.parametrize("root", ["data/demo/", "./data/demo", "data//demo"])
def test_a_folder_is_the_same_however_it_is_spelled(root):
    section, _ = parse_section({"catalog": SECTION | {"root": root}}, "catalog", Catalog)
    assert section is not None
    assert section.root == "data/demo"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"format": "voc"},
            "format: 'voc' is not one of 'auto', 'coco', 'flickr', 'folder', 'karpathy', 'table'",
        ),
        ({"restval": "keep"}, "restval: 'keep' is not one of 'drop', 'train'"),
        ({"val_share": 1.0}, "val_share: input should be less than 1, got 1.0"),
        ({"test_share": -0.1}, "test_share: input should be greater than or equal to 0, got -0.1"),
        (
            {"val_share": 0.5, "test_share": 0.5},
            "val_share 0.5 and test_share 0.5 leave nothing for train; their sum must be below 1",
        ),
        ({"max_rejects": -1}, "max_rejects: input should be greater than or equal to 0, got -1"),
        ({"root": None}, "root: input should be a valid string, got None"),
    ],
)
def test_a_value_out_of_bounds_is_named(changes, message):
    assert faults(**changes) == [message]


def test_the_schema_is_loaded_without_torch():
    code = "import sys, fne.datasets.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
