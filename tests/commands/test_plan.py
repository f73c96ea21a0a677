import pytest
from click.testing import CliRunner

from fne.cli import main
from fne.commands import plan
from fne.commands.estimate import Estimate
from fne.core.errors import InputError
from fne.paper.plan import planned
from tests.imports import ROOT
from tests.paper.samples import project, run

HALF_AN_HOUR = Estimate(0.5, "one epoch timed here")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = project(tmp_path_factory.mktemp("plan") / "project", "FC7-MOE-bl", "demo")
    run(folder)
    return folder


@pytest.fixture
def table(original, monkeypatch):
    monkeypatch.chdir(original)
    # Steps are timed elsewhere.
    monkeypatch.setattr(plan, "estimates", lambda experiments, params: [HALF_AN_HOUR] * len(experiments))
    return lambda *arguments, **options: CliRunner().invoke(main, ["table", *arguments], **options)


def test_what_is_missing_is_printed_queued_after_asking_and_then_missing_no_more(table):
    wanted = ("5", "--dataset", "demo", "--model", "FC7-MOE-bl", "--seeds", "2")
    dry = table(*wanted, "--dry")
    assert dry.exit_code == 0, dry.output
    lines = dry.stdout.splitlines()
    assert lines[0] == "# FC7-MOE-bl, seed 1: about 30.0 minutes, from one epoch timed here"
    assert lines[1].startswith("dvc exp run --queue -S embed.kind=layer ")
    assert lines[2] == (
        "# 1 experiments, about 30.0 minutes of training here, one after the other; timed on random data of the "
        "same size"
    )
    refused = table(*wanted, "--queue", input="n\n")
    assert "queued" not in refused.stdout
    queued = table(*wanted, "--queue", "--yes")
    assert queued.stdout.endswith("1 experiments queued; run them with `dvc queue start`\n")
    again = table(*wanted, "--dry")
    assert again.stdout == "nothing is missing\n"
    assert again.stderr == "in DVC's queue: 1 more; `dvc queue start` runs them\n"


def test_parameters_of_another_data_set_are_a_warning_and_cannot_be_queued_or_run(table):
    fault = "params.yaml: catalog.root is 'data/demo', which is not Flickr8k; name its folder there first\n"
    dry = table("2", "--dry", "--model", "FNE-SH")
    assert dry.exit_code == 0
    assert dry.stderr == f"Warning: {fault}"
    for strict in ("--queue", "--run"):
        refused = table("2", strict, "--yes")
        assert (refused.exit_code, refused.stderr) == (2, f"Error: {fault}")


def test_a_parameter_file_without_training_cannot_be_timed(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text((ROOT / "params.yaml").read_text().replace("\ntrain:", "\nother:"))
    with pytest.raises(InputError) as caught:
        plan.estimates(planned(5, "demo", "paper", 1, ["FC7-MOE-bl"]), file)
    assert caught.value.message == f"{file}: section 'train': the section is missing"
