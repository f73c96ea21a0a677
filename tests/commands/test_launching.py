import os
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from click.testing import CliRunner

from fne.cli import main
from fne.commands import launching, plan
from fne.commands.estimate import Estimate
from fne.core.errors import InputError
from fne.paper.plan import planned
from tests.paper.samples import project, run
from tests.projects import commit, dvc

WANTED = ("5", "--dataset", "demo", "--model", "FNE-MOE-abs", "--seeds", "3", "--run")


@pytest.fixture
def table(tmp_path, monkeypatch):
    """The command in a project with one finished run, whose stage only pretends to train."""
    folder = project(tmp_path / "project", "FNE-MOE-abs", "demo")
    run(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(
        plan, "estimates", lambda experiments, params: [Estimate(0.5, "a guess")] * len(experiments)
    )
    return lambda *arguments, **options: CliRunner().invoke(main, ["table", *arguments], **options)


def test_what_is_missing_is_run_and_then_the_table_is_shown(table):
    done = table(*WANTED, "--yes", "--format", "csv")
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines()[:2] == [
        "# FNE-MOE-abs, seed 1: about 30.0 minutes, from a guess",
        "# FNE-MOE-abs, seed 2: about 30.0 minutes, from a guess",
    ]
    told = [line for line in done.stderr.splitlines() if " of 2: " in line]
    assert told[0] == "1 of 2: FNE-MOE-abs, seed 1: running"
    assert told[1].startswith("1 of 2: FNE-MOE-abs, seed 1: done; about ")
    assert told[1].endswith(" minutes left")
    assert told[2:] == ["2 of 2: FNE-MOE-abs, seed 2: running", "2 of 2: FNE-MOE-abs, seed 2: done"]
    # The stage says that the seeds 0 and 2 started.
    assert done.stdout.startswith("model,source,")
    assert done.stdout.endswith(
        '"FNE-MOE-abs, random weights, demo, 6 test images","ours, paper",0.0001,0.05,yes,2,3,\n'
    )
    # In temporary copies: the work tree is as it was.
    assert "seed: 0" in Path("params.yaml").read_text()
    again = table(*WANTED, "--yes", "--format", "csv")
    assert (again.exit_code, again.stderr, again.stdout) == (0, "nothing is missing\n", done.stdout)


def test_nothing_is_run_without_consent(table):
    refused = table(*WANTED, input="n\n")
    assert refused.exit_code == 0
    assert "Run these 2? [y/N]: n" in refused.stderr
    assert "running" not in refused.stderr
    assert refused.stdout.startswith("Table 5: ")


def test_a_failure_ends_it_and_what_had_finished_is_kept(table, capfd):
    stage = Path("stage.py")
    stage.write_text(stage.read_text() + "\nif seed == 2:\n    raise SystemExit('no luck with seed 2')\n")
    commit(Path())
    dvc(Path(), "repro")
    commit(Path())
    failed = table(*WANTED, "--yes")
    assert failed.exit_code == 2
    assert failed.stderr.splitlines()[-1] == (
        "Error: FNE-MOE-abs, seed 2: `dvc exp run` ended with code 255, for the reason above; the same command goes "
        "on from here"
    )
    assert "no luck with seed 2" in capfd.readouterr().err
    assert "1 of 1: FNE-MOE-abs, seed 2: running" in table(*WANTED, "--yes").stderr


def test_what_dvc_refuses_is_told_in_its_words(monkeypatch):
    said = "\nERROR: unexpected error - Empty git repo\n\nHaving any troubles? Hit us up\n"
    monkeypatch.setattr(launching.subprocess, "run", lambda *_, **__: CompletedProcess([], 255, "", said))
    with pytest.raises(InputError) as caught:
        launching.enqueue(planned(5, "demo", "paper", 1, ["FC7-MOE-bl"]))
    assert caught.value.message == "FC7-MOE-bl, seed 0: unexpected error - Empty git repo"


def test_an_interrupted_command_is_waited_for(monkeypatch):
    waits = []

    class Process:
        def __init__(self, words, stdout):
            assert stdout == launching.ERROR_STREAM

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def wait(self):
            waits.append(1)
            if len(waits) == 1:
                raise KeyboardInterrupt
            return 0

    monkeypatch.setattr(launching.subprocess, "Popen", Process)
    with pytest.raises(KeyboardInterrupt):
        launching.run_all(planned(5, "demo", "paper", 1, ["FC7-MOE-bl"]), [Estimate(1.0, "a guess")])
    assert len(waits) == 2
