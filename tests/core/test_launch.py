import json
import os
import sys

import click
import pytest

from fne.core import launch
from fne.core.errors import InputError
from fne.core.launch import LAUNCHER, OUTCOMES, start


@click.command()
@click.argument("how")
def stage(how):
    if how == "mistaken":
        raise InputError("no such file; make it")
    if how == "stopped":
        raise SystemExit(143)
    if how == "bereft":
        raise RuntimeError("[gloo/transport/tcp/pair.cc:545] Read error: Connection reset by peer")
    if how == "broken":
        raise RuntimeError("mat1 and mat2 cannot be multiplied")
    click.echo("done")


@pytest.fixture
def take_part(monkeypatch, tmp_path):
    """Return `take_part(how)`, which runs the stage as torchrun's process 1, and what it wrote down."""
    outcomes = tmp_path / "outcomes"
    outcomes.mkdir()
    monkeypatch.setattr("torch.multiprocessing._prctl_pr_set_pdeathsig", lambda number: None)
    monkeypatch.setattr(launch, "GRACE_SECONDS", 0)
    monkeypatch.setenv(OUTCOMES, str(outcomes))
    monkeypatch.setenv(LAUNCHER, str(os.getppid()))
    monkeypatch.setenv("RANK", "1")

    def run(how):
        monkeypatch.setattr(sys, "argv", ["stage", how])
        start(stage)
        path = outcomes / "1.json"
        return json.loads(path.read_text()) if path.exists() else None

    return run


def test_what_a_user_must_mend_is_written_down_so_that_nothing_starts_over(take_part, tmp_path):
    assert take_part("mistaken") == {"code": 2, "message": "no such file; make it"}
    assert [path.name for path in tmp_path.iterdir()] == ["outcomes"]


def test_an_attempt_after_one_that_met_a_mistake_ends_at_once(take_part, capsys):
    take_part("mistaken")
    take_part("well")
    assert capsys.readouterr().out == ""


def test_a_process_that_was_terminated_ends_so(take_part):
    with pytest.raises(SystemExit) as ended:
        take_part("stopped")
    assert ended.value.code == 143


def test_a_process_that_lost_the_others_fails_in_one_line(take_part, capsys):
    with pytest.raises(SystemExit) as ended:
        take_part("bereft")
    assert (ended.value.code, capsys.readouterr().err) == (1, "process 1 has lost the others\n")


def test_a_process_that_lost_one_that_met_a_mistake_ends_in_peace(take_part, monkeypatch, tmp_path, capsys):
    def leave_outcome(seconds, happens):
        (tmp_path / "outcomes" / "0.json").write_text("{}")
        return happens()

    monkeypatch.setattr(launch, "_within", leave_outcome)
    assert take_part("bereft") is None
    assert capsys.readouterr().err == ""


def test_waiting_ends_when_it_happens_or_the_time_is_over():
    asked = iter([False, True])
    assert launch._within(60, lambda: next(asked))
    assert not launch._within(0.2, lambda: False)


def test_a_process_whose_launcher_has_ended_does_not_start(take_part, monkeypatch, capsys):
    monkeypatch.setenv(LAUNCHER, "1" if os.getppid() != 1 else "2")
    with pytest.raises(SystemExit):
        take_part("well")
    assert capsys.readouterr().out == ""


def test_any_other_failure_shows_where_it_happened(take_part):
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        take_part("broken")


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({}, False),
        ({"PET_NPROC_PER_NODE": "1"}, False),
        ({"PET_NPROC_PER_NODE": "1", "PET_NNODES": "1:1"}, False),
        ({"PET_NPROC_PER_NODE": "2"}, True),
        ({"PET_NPROC_PER_NODE": "gpu"}, True),
        ({"PET_NNODES": "2"}, True),
        ({"PET_NNODES": "1:4"}, True),
        ({"PET_NPROC_PER_NODE": "2", "TORCHELASTIC_RUN_ID": "started by torchrun itself"}, False),
    ],
)
def test_torchrun_starts_only_where_its_variables_ask_for_several(monkeypatch, capsys, variables, asked):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    launched = []
    monkeypatch.setattr(launch, "_launch", lambda module, arguments: launched.append(arguments) or 5)
    monkeypatch.setattr(launch, "_module", lambda: "stages.stage")
    monkeypatch.setattr(sys, "argv", ["stage", "well"])
    with pytest.raises(SystemExit) as ended:
        start(stage)
    assert launched == ([["well"]] if asked else [])
    assert (ended.value.code, capsys.readouterr().out) == ((5, "") if asked else (0, "done\n"))


def test_the_outcome_of_the_lowest_rank_is_told(tmp_path, capsys):
    (tmp_path / "10.json").write_text(json.dumps({"code": 1, "message": "ten"}))
    (tmp_path / "2.json").write_text(json.dumps({"code": 2, "message": "two"}))
    assert launch._told(tmp_path) == 2
    assert capsys.readouterr().err == "Error: two\n"


def test_a_program_that_is_no_module_cannot_be_started_by_torchrun(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    with pytest.raises(InputError, match="several processes need a module: run `python -m stages.NAME`"):
        launch._module()
