"""A small version of the experiment in `tests/faults/training.py`."""

import pytest
from click.testing import CliRunner

from tests.faults.training import main


@pytest.mark.parametrize(
    "arguments",
    [
        ["--kills", "6", "--terminations", "2", "--epochs", "8"],
        ["--kills", "3", "--terminations", "1", "--epochs", "8", "--kind", "branches"],
        ["--kills", "4", "--terminations", "1", "--epochs", "4", "--kind", "tagger"],
        ["--kills", "3", "--terminations", "1", "--epochs", "3", "--kind", "captioner"],
        ["--kills", "3", "--terminations", "1", "--epochs", "5", "--kind", "instance"],
        ["--kills", "4", "--terminations", "1", "--epochs", "2", "--kind", "network"],
    ],
)
def test_killed_training_ends_with_the_same_bytes(monkeypatch, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)  # the experiment changes the folder; this puts it back
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stdout.endswith("weights and history identical, no checkpoint left\n")
