"""Small versions of the experiments in `tests/faults/extraction.py`."""

from click.testing import CliRunner

from tests.faults import extraction


def run(*arguments: str) -> str:
    result = CliRunner().invoke(extraction.main, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_killed_extractions_lose_nothing(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    output = run("kills", "--rounds", "8", "--publishing", "3", "--images", "24")
    done = "8 kills, 3 of them while publishing"
    assert output == f"{done}: nothing lost, store identical, no temporary files\n"


def test_a_full_disk_gives_a_clear_error_and_loses_nothing(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert run("disk", "--sizes", "2", "--images", "12").startswith("2 full disks: a clear error each")


def test_damaged_images_cause_no_crash():
    assert run("images", "--files", "240").startswith("240 damaged files in ")


def test_damaged_artifacts_are_refused_by_name():
    output = run("artifacts", "--flips", "60", "--truncations", "40")
    assert output.startswith("60 flipped bits and 40 cuts in ")
