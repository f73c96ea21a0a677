from importlib import import_module

import numpy as np

from benchmarks.finetuning import AFTER, BEFORE, MADE_ONCE, described, module_and_arguments
from benchmarks.scale import STAGES
from fne.evaluation.intervals import Ranked


def ranked(image_ranks):
    ranks = np.array(image_ranks)
    return Ranked(ranks, ranks, np.arange(len(ranks)), np.zeros(len(ranks), dtype=np.int64))


def test_a_difference_is_measured_over_the_same_images():
    before, after = ranked([1, 2, 7, 30]), ranked([1, 1, 4, 30])
    said = "; the difference is {}; seed variance unknown".format
    assert described(before, after).startswith("rsum 300.0 (")
    assert "400.0 (" in described(before, after)
    assert described(before, after).endswith(said("+100.0 (+0.0 to +200.0)"))
    assert described(before, before).endswith(said("+0.0 (+0.0 to +0.0)"))


def test_benchmarks_give_every_stage_all_of_its_arguments():
    stages = map(module_and_arguments, (*MADE_ONCE, *BEFORE, *AFTER))
    commands = [(import_module(module).main, given) for module, given in stages]
    commands += [(command, given.split()) for command, given in STAGES.values()]
    for command, given in commands:
        accepted = [each for each in command.params if each.param_type_name == "argument"]
        least = sum(each.required for each in accepted)
        assert least <= len(given) <= len(accepted), command.name
