from pathlib import Path

import click
import pytest

from benchmarks.idea_to_number import run, timed, write_coco
from fne.datasets.location import dataset_root
from fne.datasets.readers import read_dataset


def test_the_made_up_catalog_is_a_data_set_that_the_pipeline_reads(tmp_path):
    write_coco(tmp_path / "coco", 50)
    root, annotations = dataset_root(str(tmp_path / "coco"), "auto", "auto")
    reading = read_dataset(root, "auto", annotations)
    assert len(reading.records) == 50


def test_a_command_that_fails_is_reported_with_its_output(tmp_path):
    with pytest.raises(click.ClickException, match="git no-such-command: "):
        run(tmp_path, "git", "no-such-command")


def test_seconds_that_passed_and_that_were_computed_are_printed(tmp_path, capsys):
    timed("git starts", Path(tmp_path), "git", "--version")
    title, passed, computed = capsys.readouterr().out.rsplit(maxsplit=2)
    assert title == "git starts"
    assert 0 <= float(computed) <= float(passed) + 0.1
