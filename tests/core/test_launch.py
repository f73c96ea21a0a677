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
    if how == "user error":
        raise InputError("no such file; make it")
    if how == "terminated":
        raise SystemExit(143)
    if how == "disconnected":
        raise RuntimeError("[gloo/transport/tcp/pair.cc:545] Read error: Connection reset by peer")
    if how == "broken":
        raise RuntimeError("mat1 and mat2 cannot be multiplied")
    click.echo("done")


@pytest.fixture
def run_worker(monkeypatch, tmp_path):
    """Return `run_worker(how)`, which runs the stage as torchrun's process 1 and returns its outcome."""
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


def test_a_user_error_is_recorded_so_that_torchrun_does_not_restart(run_worker, tmp_path, capsys):
    assert run_worker("user error") == {"code": 2, "message": "no such file; make it"}
    assert [path.name for path in tmp_path.iterdir()] == ["outcomes"]
    run_worker("fine")  # an attempt after it exits at once
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [("terminated", 143, ""), ("disconnected", 1, "process 1 has lost the connection to the others\n")],
)
def test_a_terminated_process_keeps_its_exit_code_and_one_that_lost_the_connection_fails_with_one_line(
    run_worker, capsys, how, code, said
):
    with pytest.raises(SystemExit) as ended:
        run_worker(how)
    assert (ended.value.code, capsys.readouterr().err) == (code, said)


def test_any_other_failure_keeps_its_traceback(run_worker):
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        run_worker("broken")


def test_a_process_that_lost_one_with_a_user_error_exits_cleanly(run_worker, monkeypatch, tmp_path, capsys):
    def leave_outcome(condition, seconds):
        (tmp_path / "outcomes" / "0.json").write_text("{}")
        return condition()

    monkeypatch.setattr(launch, "_wait_for", leave_outcome)
    assert run_worker("disconnected") is None
    assert capsys.readouterr().err == ""


def test_waiting_ends_with_the_condition_or_the_timeout():
    asked = iter([False, True])
    assert launch._wait_for(lambda: next(asked), 60)
    assert not launch._wait_for(lambda: False, 0.2)


def test_a_process_whose_launcher_has_ended_does_not_start(run_worker, monkeypatch, capsys):
    monkeypatch.setenv(LAUNCHER, "1" if os.getppid() != 1 else "2")
    with pytest.raises(SystemExit):
        run_worker("fine")
    assert capsys.readouterr().out == ""


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
    monkeypatch.setattr(sys, "argv", ["stage", "fine"])
    with pytest.raises(SystemExit) as ended:
        start(stage)
    assert launched == ([["fine"]] if asked else [])
    assert (ended.value.code, capsys.readouterr().out) == ((5, "") if asked else (0, "done\n"))


def test_the_outcome_of_the_lowest_rank_is_printed(tmp_path, capsys):
    (tmp_path / "10.json").write_text(json.dumps({"code": 1, "message": "ten"}))
    (tmp_path / "2.json").write_text(json.dumps({"code": 2, "message": "two"}))
    assert launch._print_outcome(tmp_path) == 2
    assert capsys.readouterr().err == "Error: two\n"


def test_torchrun_needs_a_module(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    with pytest.raises(InputError, match="several processes need a module: run `python -m stages.NAME`"):
        launch._module()
