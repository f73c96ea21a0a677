import shlex

import pytest

from fne.core.errors import InputError
from fne.paper.plan import missing, models, names_other_data, planned
from tests.paper.samples import sections

PARAMS = {"catalog": {"root": "data/demo"}, "extract": {"weights": "weights/random.yaml", "shards": 4}}


def recorded(name, seed, extract=PARAMS["extract"]):
    found = sections(name, "demo")
    found["train"]["seed"] = seed
    return found | {"catalog": PARAMS["catalog"], "extract": extract}


def test_every_method_of_a_table_is_planned_once_for_each_seed():
    assert len(planned(2, "flickr8k", "paper", 1)) == len(models(2)) == 20
    assert len(planned(5, "demo", "paper", 5)) == 30
    assert [(each.preset.name, each.seed) for each in planned(4, "coco", "code", 2, ["FNE-SH"])] == [
        ("FNE-SH", 0),
        ("FNE-SH", 1),
    ]


def test_what_has_been_run_with_the_same_data_and_weights_is_not_missing():
    wanted = planned(5, "demo", "paper", 2, ["FC7-MOE-bl"])
    lacking = missing(wanted, [recorded("FC7-MOE-bl", 1), recorded("FNE-MOE-bl", 0)], PARAMS)
    assert [each.seed for each in lacking] == [0]
    other_weights = recorded("FC7-MOE-bl", 1, {"weights": "weights/imagenet.yaml", "shards": 4})
    assert len(missing(wanted, [other_weights], PARAMS)) == 2
    other_shards = recorded("FC7-MOE-bl", 1, {"weights": "weights/random.yaml", "shards": 9})
    assert len(missing(wanted, [other_shards], PARAMS)) == 1


def test_a_command_survives_the_shell():
    [each] = planned(2, "flickr8k", "paper", 1, ["FNE-POE"])
    assert shlex.split(each.typed()) == each.command()
    assert each.command()[:4] == ["dvc", "exp", "run", "--queue"]
    assert each.command()[-2:] == ["-S", "train.seed=0"]


def test_a_method_of_another_table_is_refused():
    with pytest.raises(InputError) as caught:
        planned(5, "flickr8k", "paper", 1, ["FNE-SH"])
    assert caught.value.message == (
        "Table 5: 'FNE-SH' is not one of 'FC7-MOE-bl', 'FC7-MOE-bl-abs', 'FC7-MOE-abs', 'FNE-MOE-bl', "
        "'FNE-MOE-bl-abs', 'FNE-MOE-abs'"
    )


def test_parameters_that_name_another_data_set_are_told():
    assert names_other_data("demo", PARAMS) is None
    assert names_other_data("flickr8k", PARAMS) == (
        "params.yaml: catalog.root is 'data/demo', which is not Flickr8k; name its folder there first"
    )
    assert "not the embedded data set" in names_other_data("demo", {"catalog": {"root": "elsewhere"}})
