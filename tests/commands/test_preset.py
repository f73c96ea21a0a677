import pytest
from click.testing import CliRunner

from fne.cli import main
from fne.paper.presets import arguments, names, preset


def invoke(*arguments_of_preset):
    return CliRunner().invoke(main, ["preset", *arguments_of_preset])


def test_only_the_overrides_go_to_standard_output_in_one_line():
    result = invoke("FNE-POE", "--dataset", "flickr8k")
    assert result.exit_code == 0
    assert result.stdout == " ".join(arguments(preset("FNE-POE", "flickr8k").overrides)) + "\n"
    assert "'" not in result.stdout
    assert result.stderr.startswith("FNE-POE: The paper prints epochs")


def test_following_the_code_is_another_line():
    assert "train.hardest=candidate" in invoke("FC7-MH", "--following", "code").stdout


def test_the_list_has_every_name_and_the_footnotes():
    result = invoke("--list")
    shown = [line.split()[0] for line in result.stdout.split("\n\n")[0].splitlines()]
    assert shown == names()
    assert "\n[1] The paper prints epochs" in result.stdout
    assert "FNE-MOE-abs" not in invoke("--list", "--dataset", "coco").stdout


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["FNE-PEO"],
            "Error: there is no preset 'FNE-PEO' (did you mean 'FNE-POE'?); see `fne preset --list`\n",
        ),
        ([], "Error: give the NAME of a preset, or --list\n"),
        (["FNE-POE", "--list"], "Error: give the NAME of a preset, or --list\n"),
    ],
)
def test_what_is_wrong_is_told(given, message):
    result = invoke(*given)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.endswith(message)
