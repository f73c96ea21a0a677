import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.store.remembered import recall, remember, state
from tests.imports import ROOT


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file that was written a while ago, in a project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    path = tmp_path / "shard"
    path.write_bytes(b"rows")
    os.utime(path, ns=(1, 10**9))
    return path


def test_a_state_is_remembered(file):
    assert recall() == frozenset()
    remember(file, state(file, "abc"))
    assert recall() == {state(file, "abc")}


def test_another_time_size_file_or_digest_is_another_state(file):
    before = state(file, "abc")
    others = [state(file, "abd")]
    os.utime(file, ns=(1, 10**9 + 1))
    others.append(state(file, "abc"))
    file.write_bytes(b"row")
    os.utime(file, ns=(1, 10**9))
    others.append(state(file, "abc"))
    copy = shutil.copy2(file, file.with_name("copy"))
    Path(copy).replace(file)
    others.append(state(file, "abc"))
    assert before not in others
    assert len(set(others)) == 4


def test_a_file_just_written_is_not_remembered_since_it_may_change_within_the_same_tick(file):
    os.utime(file)
    remember(file, state(file, "abc"))
    assert recall() == frozenset()


def test_processes_that_remember_at_once_lose_nothing(file):
    code = (
        "from pathlib import Path; from fne.store.remembered import remember\n"
        "import sys\n"
        "for number in range(200): remember(Path('shard'), f'{sys.argv[1]}-{number}')"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(subprocess.run, [sys.executable, "-c", code, name], env=environment, check=True)
            for name in "ab"
        ]
        for run in runs:
            run.result()
    assert recall() == {f"{name}-{number}" for name in "ab" for number in range(200)}


def test_a_line_that_was_cut_off_spoils_no_other(file):
    remember(file, "first")
    memory = file.parent / ".fne/verified"
    memory.write_bytes(memory.read_bytes() + b"\ncut of")
    remember(file, "second")
    assert {"first", "second"} <= recall()


def test_without_a_project_nothing_is_remembered_and_nothing_fails(file):
    (file.parent / "params.yaml").unlink()
    remember(file, "known")
    assert recall() == frozenset()
    assert not (file.parent / ".fne").exists()


def test_a_scratch_folder_that_cannot_be_written_to_costs_only_time(file):
    (file.parent / ".fne").write_text("a file where the folder should be")
    remember(file, "known")
    assert recall() == frozenset()


def test_a_missing_file_is_named(file):
    with pytest.raises(InputError, match=r"gone: no such file; run `dvc repro`, or `dvc pull` to fetch it"):
        state(file.with_name("gone"), "abc")
