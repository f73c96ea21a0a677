"""A small version of the experiment in `tests/training_faults.py`."""

from click.testing import CliRunner

from tests.training_faults import main


def test_killed_training_ends_with_the_same_bytes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # the experiment changes the folder; this puts it back
    arguments = ["--kills", "6", "--terminations", "2", "--epochs", "8"]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stdout.endswith("weights and history identical, no checkpoint left\n")
