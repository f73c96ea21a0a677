"""A small version of the experiment in `tests/faults/training.py`."""

import pytest
from click.testing import CliRunner

from tests.faults.training import main


@pytest.mark.parametrize(
    ("kind", "kills", "terminations", "epochs"),
    [
        ("matching", 6, 2, 8),
        ("branches", 3, 1, 8),
        ("tagger", 4, 1, 4),
        ("captioner", 3, 1, 3),
        ("instance", 3, 1, 5),
        ("network", 4, 1, 2),
        ("network-tagger", 2, 1, 2),
        ("network-captioner", 3, 1, 2),
    ],
)
def test_killed_training_ends_with_the_same_bytes(monkeypatch, tmp_path, kind, kills, terminations, epochs):
    monkeypatch.chdir(tmp_path)  # the experiment changes the folder; this puts it back
    arguments = ["--kind", kind, "--kills", kills, "--terminations", terminations, "--epochs", epochs]
    result = CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stdout.endswith("weights and history identical, no checkpoint left\n")
