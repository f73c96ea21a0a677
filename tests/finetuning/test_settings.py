import subprocess
import sys

import pytest

from fne.core.settings import parse_section
from fne.finetuning.settings import Finetune
from tests.support.imports import ROOT


def parse(**changes):
    return parse_section({"finetune": changes}, "finetune", Finetune)


def test_phases_have_epochs_and_rates_of_their_own_and_never_end_early():
    settings, _ = parse(epochs=[40, 20], learning_rate=[0.01, 0.001])
    phases = [(each.epochs, each.learning_rate, each.patience) for each in settings.phases()]
    assert phases == [(40, 0.01, 40), (20, 0.001, 20)]
    assert settings.phases()[0].title == "ranking + instance"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"epochs": 0}, "epochs: input should be greater than or equal to 1, got 0"),
        (
            {"epochs": [1, 2, 3], "learning_rate": [0.1, 0.2]},
            "lists of phases must have one value or equal lengths, but learning_rate has 2, epochs has 3",
        ),
        (
            {"rank_weight": 0.0, "image_class_weight": 0.0, "text_class_weight": 0.0},
            "rank_weight, image_class_weight and text_class_weight are all 0, so nothing would be learned",
        ),
        ({"batch": 5}, "batch: input should be a multiple of 2, got 5"),
        ({"keep": "first"}, "keep: 'first' is not one of 'best', 'last'"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, fault):
    assert parse(**changes) == (None, [fault])


def test_reading_the_settings_does_not_import_torch():
    code = "import sys, fne.finetuning.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
