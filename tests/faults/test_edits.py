"""A small version of the experiment in `tests/faults/edits.py`."""

from click.testing import CliRunner

from tests.faults.edits import main


def test_no_record_disagrees_with_what_was_computed(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # the experiment changes the folder; this puts it back
    result = CliRunner().invoke(main, ["--rounds", "6", "--seed", "1"], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stdout.endswith("; no undetected disagreement, file lost or traceback\n")
