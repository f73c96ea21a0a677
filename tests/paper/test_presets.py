import pytest
from dvc.utils.hydra import apply_overrides
from ruamel.yaml import YAML

from fne.captions.settings import Tokenize
from fne.core.errors import InputError
from fne.features.settings import Embed
from fne.matching.settings import Train
from fne.paper.presets import SECTIONS, arguments, datasets, every_preset, names, preset
from tests.imports import ROOT

PARAMS = YAML(typ="safe", pure=True).load(ROOT / "params.yaml")
SCHEMAS = {"embed": Embed, "tokenize": Tokenize, "train": Train}


def settings(name, dataset="flickr8k", following="paper"):
    return preset(name, dataset, following).overrides


def test_there_is_a_preset_for_every_column_for_table_5_and_for_the_methods_the_paper_builds_on():
    assert len(names()) == 2 * 10 + 4 + 5
    assert {
        "FC7-SH",
        "FNE-SH-bl",
        "FNE-PH",
        "FNE-POE",
        "FNE-MOE-bl-abs",
        "UVS",
        "Order",
        "VSE0",
        "VSE++",
    } <= set(names())
    assert len(every_preset()) == 2 * (4 * 25 + 2 * 4)


@pytest.mark.parametrize("name", names())
def test_every_preset_is_valid_where_the_parameters_stand(name):
    for chosen in every_preset():
        for section in SECTIONS if chosen.name == name else ():
            keys = [key for key in chosen.overrides if key.startswith(f"{section}.")]
            own = {key.split(".")[1]: chosen.overrides[key] for key in keys}
            assert set(own) <= set(PARAMS[section])
            SCHEMAS[section].model_validate(PARAMS[section] | own)


@pytest.mark.parametrize("name", ["FNE-POE", "VSE++"])
def test_dvc_reads_the_arguments_as_they_are_meant(name, tmp_path):
    """Words split by a shell, read by DVC, written to a file and read again are the preset."""
    file = tmp_path / "params.yaml"
    YAML().dump({section: dict(PARAMS[section]) for section in SECTIONS}, file)
    words = " ".join(arguments(settings(name))).split()
    assert words[::2] == ["-S"] * (len(words) // 2)
    apply_overrides(file, words[1::2])
    written = YAML(typ="safe", pure=True).load(file)
    found = {key: written[key.split(".")[0]][key.split(".")[1]] for key in settings(name)}
    assert found == settings(name)


def test_the_paper_is_followed_by_default():
    found = settings("FNE-POE")
    assert found["train.loss"] == ["sum_hinge", "max_hinge"]
    assert found["train.learning_rate"] == [0.001, 0.0001]
    assert (found["train.margin"], found["train.epochs"], found["train.patience"]) == (0.05, 200, 200)
    assert (found["train.similarity"], found["train.absolute"]) == ("order", True)
    assert (found["train.hardest"], found["train.image_head"], found["train.optimizer"]) == (
        "query",
        "linear",
        "adam",
    )
    assert (found["embed.kind"], found["embed.low"], found["embed.high"]) == ("fne", -0.25, 0.15)


def test_the_code_differs_from_the_paper_in_seven_ways():
    paper, code = settings("FNE-MOE"), settings("FNE-MOE", following="code")
    assert {key: (paper[key], code[key]) for key in paper if paper[key] != code[key]} == {
        "tokenize.end_of_sentence": (False, True),
        "train.image_head": ("linear", "linear_bias"),
        "train.hardest": ("query", "candidate"),
        "train.optimizer": ("adam", "adam_uncorrected"),
        "train.clip_by": ("global", "tensor"),
        "train.validate_every": (0, 100),
        "train.learning_rate": (0.001, 0.0001),
    }


def test_footnotes_tell_the_two_learning_rates_of_moe():
    assert any("0.001 for MOE" in note for note in preset("FNE-MOE", "flickr8k").notes)
    assert any("as in the authors' launchers" in note for note in preset("FNE-MOE", "flickr8k", "code").notes)


@pytest.mark.parametrize(
    ("name", "dataset", "embed_dim", "word_dim", "rate", "epochs"),
    [
        ("FNE-SH-bl", "flickr8k", 2048, 1000, 0.0002, 200),
        ("FNE-SH-bl", "coco", 2048, 2000, 0.00025, 200),
        ("FC7-MH", "flickr30k", 1536, 1024, 0.0002, 400),
        ("FC7-MH", "coco", 2048, 1024, 0.0002, 200),
        ("FNE-MOE", "coco", 2048, 1536, 0.001, 200),
        ("FNE-MOE-abs", "flickr8k", 1024, 300, 0.0001, 200),
        ("FNE-SH", "demo", 256, 128, 0.0002, 40),
        ("FNE-PH", "demo", 256, 128, 0.0002, 20),
    ],
)
def test_dimensions_rates_and_epochs(name, dataset, embed_dim, word_dim, rate, epochs):
    found = settings(name, dataset)
    keys = ("embed_dim", "word_dim", "learning_rate", "epochs")
    assert [found[f"train.{key}"] for key in keys] == [embed_dim, word_dim, rate, epochs]


def test_both_embeddings_of_a_method_are_trained_alike():
    for each in every_preset():
        if each.name.startswith("FNE-"):
            twin = settings(each.name.replace("FNE-", "FC7-"), each.dataset, each.following)
            trained = {key: value for key, value in each.overrides.items() if not key.startswith("embed.")}
            assert trained == {key: value for key, value in twin.items() if not key.startswith("embed.")}


@pytest.mark.parametrize("dataset", datasets()[:3])
def test_no_two_methods_have_the_same_settings(dataset):
    found = [str(sorted(arguments(each.overrides))) for each in every_preset() if each.dataset == dataset]
    # The five methods that the paper builds on are the same, whatever is followed.
    assert len(set(found)) == len(found) - 5


@pytest.mark.parametrize(
    ("name", "dataset", "message"),
    [
        (
            "fne-poe",
            "flickr8k",
            "there is no preset 'fne-poe' (did you mean 'FNE-POE'?); see `fne preset --list`",
        ),
        (
            "FNE-SOE-b",
            "coco",
            "there is no preset 'FNE-SOE-b' (did you mean 'FNE-SOE-bl'?); see `fne preset --list`",
        ),
        (
            "FNE-MOE-abs",
            "coco",
            "'FNE-MOE-abs' is a row of Table 5 alone, and a preset only for flickr8k and demo, not coco",
        ),
    ],
)
def test_wrong_names_are_refused_with_what_is_close(name, dataset, message):
    with pytest.raises(InputError) as caught:
        preset(name, dataset)
    assert caught.value.message == message
