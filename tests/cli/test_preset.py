import pytest
from click.testing import CliRunner

from fne.cli import main
from fne.experiments.presets import arguments, description_names, names, own_names, preset


def invoke(*words):
    return CliRunner().invoke(main, ["preset", *words])


def test_standard_output_has_only_the_overrides_in_one_line():
    result = invoke("FNE-POE", "--dataset", "flickr8k")
    assert result.exit_code == 0
    assert result.stdout == " ".join(arguments(preset("FNE-POE", "flickr8k").overrides)) + "\n"
    assert "'" not in result.stdout
    assert result.stderr.startswith("FNE-POE: The paper prints epochs")


def test_following_the_code_gives_other_overrides():
    assert "train.max_hinge.hardest=candidate" in invoke("FC7-MH", "--following", "code").stdout


def test_the_list_has_every_name_and_the_footnotes():
    result = invoke("--list")
    shown = [line.split()[0] for line in result.stdout.split("\n\n")[0].splitlines()]
    assert shown == [*names(), *description_names()]
    assert "\n[1] The paper prints epochs" in result.stdout
    by_name = {line.split()[0]: line for line in result.stdout.splitlines() if line}
    assert " margin 0.2   epochs 200 " in by_name["FNE-SH"]  # those of training, not of fine-tuning
    assert " epochs 200+200 " in by_name["FNE-POE"]
    assert "FNE-MOE-abs" not in invoke("--list", "--dataset", "coco").stdout


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["FNE-PEO"], "there is no preset 'FNE-PEO' (did you mean 'FNE-POE'?); see `fne preset --list`"),
        ([], "give the NAME of a preset, or --list"),
        (["FNE-POE", "--list"], "give the NAME of a preset, or --list"),
    ],
)
def test_wrong_arguments_are_refused(given, message):
    result = invoke(*given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith(f"Error: {message}\n")


def test_a_system_that_describes_images_has_overrides_of_its_pipeline():
    result = invoke("semantic/RIA", "--dataset", "demo")
    assert result.exit_code == 0
    assert result.stdout.split() == arguments(preset("semantic/RIA", "demo").overrides)
    assert "pipelines/tagging/dvc.yaml" in result.stderr


def test_presets_for_own_data_are_listed_and_printed():
    listed = invoke("--list", "--dataset", "own").stdout
    assert [line.split()[0] for line in listed.split("\n\n")[0].splitlines()] == own_names()
    printed = invoke("own/fine-tuned")
    assert printed.stdout == " ".join(arguments(preset("own/fine-tuned", "own").overrides)) + "\n"
    assert "train.learning_rate=[0.01,0.003]" in printed.stdout
    assert invoke("own/fine-tuned", "--dataset", "own").stdout == printed.stdout
