"""A small version of the experiment in `tests/faults/studies.py`."""

from click.testing import CliRunner

from tests.faults.studies import main


def test_a_killed_study_ends_with_the_same_bytes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # the experiment changes the folder; this puts it back
    result = CliRunner().invoke(main, ["--kills", "4"], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stdout == "4 kills: 14 results, the bytes of an uninterrupted run\n"
