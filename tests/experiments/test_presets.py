import pytest
from dvc.utils.hydra import apply_overrides
from fne.matching.applied_settings import applies
from ruamel.yaml import YAML

from fne.cli.check import SECTIONS as ALL_SCHEMAS
from fne.core.errors import InputError
from fne.core.settings import flattened, parse_section, put
from fne.datasets.demo.dataset import Render
from fne.datasets.read import Catalog
from fne.evaluation.protocols import Evaluate
from fne.experiments.presets import (
    FOLDER,
    SECTIONS,
    arguments,
    datasets,
    description_names,
    description_papers,
    every_preset,
    load,
    names,
    own_names,
    papers,
    pipeline_of,
    preset,
)
from fne.experiments.tables import TRAINED_BY
from fne.extraction.settings import Extract
from fne.features.embeddings import Embed
from fne.finetuning.settings import Finetune
from fne.matching.settings import Train
from fne.text.vocabulary import Tokenize
from tests.support.imports import ROOT

DATASETS = ("flickr8k", "flickr30k", "coco", "demo")
PARAMS = YAML(typ="safe", pure=True).load(ROOT / "params.yaml")
# Keys of `embed` that a kind does not have.
OF_FNE = ("layers", "thresholds", "low", "high")
UNUSED = {"fne": ("layer",), "layer": OF_FNE, "plain": OF_FNE, "zscore": ("layer", *OF_FNE[1:])}
SCHEMAS = {
    "render": Render,
    "catalog": Catalog,
    "extract": Extract,
    "embed": Embed,
    "tokenize": Tokenize,
    "train": Train,
    "finetune": Finetune,
    "evaluate": Evaluate,
}


def settings(name, dataset="flickr8k", following="paper"):
    return preset(name, dataset, following).overrides


def test_there_are_presets_for_tables_1_and_5_and_for_the_methods_the_paper_builds_on():
    assert len([name for name in names() if "/" not in name]) == 2 * 10 + 4 + 5
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
    assert len(every_preset()) == 2 * (4 * 25 + 2 * 4) + 2 * 4 * (15 + 24)


@pytest.mark.parametrize("name", names())
def test_every_preset_sets_existing_keys_to_valid_values(name):
    for chosen in every_preset():
        for section in SECTIONS if chosen.name == name else ():
            keys = [key for key in chosen.overrides if key.startswith(f"{section}.")]
            own = {key.split(".", 1)[1]: chosen.overrides[key] for key in keys}
            assert set(own) <= set(flattened(PARAMS[section]))
            changed = dict(PARAMS[section])
            for key, value in own.items():
                put(changed, key, value)
            SCHEMAS[section].model_validate(changed)


@pytest.mark.parametrize("name", ["FNE-POE", "VSE++", "two-branch/ResNet50-K1", "dual-path/ResNet50-I"])
def test_dvc_parses_the_arguments_to_the_values_of_the_preset(name, tmp_path):
    """Split by a shell, parsed by DVC, written to a file and read again, the arguments give the preset."""
    file = tmp_path / "params.yaml"
    YAML().dump({section: PARAMS[section] for section in SECTIONS}, file)
    words = " ".join(arguments(settings(name))).split()
    assert words[::2] == ["-S"] * (len(words) // 2)
    apply_overrides(file, words[1::2])
    written = YAML(typ="safe", pure=True).load(file)
    found = {key: value for key, value in flattened(written).items() if key in settings(name)}
    assert found == settings(name)


def test_the_paper_is_followed_by_default():
    found = settings("FNE-POE")
    assert found["train.loss"] == ["sum_hinge", "max_hinge"]
    assert found["train.learning_rate"] == [0.001, 0.0001]
    assert (found["train.margin"], found["train.epochs"], found["train.patience"]) == (0.05, 200, 200)
    assert (found["train.similarity"], found["train.absolute"]) == ("order", True)
    assert (found["train.max_hinge.hardest"], found["train.image_head"], found["train.optimizer"]) == (
        "query",
        "linear",
        "adam",
    )
    assert (found["embed.kind"], found["embed.low"], found["embed.high"]) == ("fne", -0.25, 0.15)


def test_the_code_differs_from_the_paper_in_ten_ways():
    paper, code = settings("FNE-MOE"), settings("FNE-MOE", following="code")
    assert {key: (paper[key], code[key]) for key in paper if paper[key] != code[key]} == {
        "tokenize.end_of_sentence": (False, True),
        "train.image_head": ("linear", "linear_bias"),
        "train.max_hinge.hardest": ("query", "candidate"),
        "train.optimizer": ("adam", "adam_uncorrected"),
        "train.clip_by": ("global", "tensor"),
        "train.validate_every": (0, 100),
        "train.last_batch": ("keep", "drop"),
        "train.gru.initial": ("torch", "orthogonal"),
        "train.learning_rate": (0.001, 0.0001),
        "train.epochs": (200, 300),
        "train.patience": (200, 300),
    }


# Of the authors' launchers: those that differ from Table 1 and from the budgets of the paper's presets.
LAUNCHED = {
    ("flickr8k", "FC7-MH"): {"epochs": 200},
    ("flickr8k", "FNE-MH"): {"epochs": 800, "learning_rate": 0.00002},
    ("flickr8k", "FC7-SOE-bl"): {"word_dim": 1024},
    ("flickr8k", "FC7-MOE"): {"epochs": 400, "learning_rate": 0.0001},
    ("flickr8k", "FNE-MOE"): {"epochs": 300, "learning_rate": 0.0001},
    ("flickr30k", "FC7-MH"): {"epochs": 200},
    ("flickr30k", "FC7-SOE"): {"epochs": 100},
    ("flickr30k", "FNE-SOE"): {"epochs": 100},
    ("flickr30k", "FC7-MOE"): {"epochs": 300, "learning_rate": 0.0001},
    ("flickr30k", "FNE-MOE"): {"epochs": 300, "learning_rate": 0.0001},
    ("coco", "FNE-MH"): {"epochs": 300},
    ("coco", "FC7-SOE"): {"epochs": 100},
    ("coco", "FNE-SOE"): {"epochs": 100},
    ("coco", "FC7-MOE"): {"learning_rate": 0.0001},
    ("coco", "FNE-MOE"): {"learning_rate": 0.0001},
}
BUDGET = ("epochs", "learning_rate", "word_dim", "embed_dim", "margin", "batch")


@pytest.mark.parametrize("dataset", datasets()[:3])
def test_the_code_has_the_budgets_of_the_launchers(dataset):
    assert sum("epochs" in values for values in LAUNCHED.values()) == 12
    for method in load("table1")["methods"]:
        for name in (f"FC7-{method}", f"FNE-{method}"):
            paper, code = (settings(name, dataset, following) for following in ("paper", "code"))
            found = {
                key: code[f"train.{key}"] for key in BUDGET if code[f"train.{key}"] != paper[f"train.{key}"]
            }
            assert found == LAUNCHED.get((dataset, name), {}), name


# All published launchers: epochs, dimensions of the space and of words, the (last) learning rate, the margin, and
# whether absolute values are taken. There is none for SH-bl, and none for FC7-SOE on Flickr8k.
LAUNCHERS = {
    "flickr8k": {
        "FC7-SH FNE-SH": (200, 1536, 1024, 2e-4, 0.2, False),
        "FC7-MH-bl FNE-MH-bl": (400, 1024, 300, 2e-4, 0.2, False),
        "FC7-MH": (200, 1024, 1024, 2e-4, 0.2, False),
        "FNE-MH": (800, 1024, 1024, 2e-5, 0.2, False),
        "FNE-SOE-bl": (200, 1024, 300, 1e-3, 0.05, True),
        "FC7-SOE-bl FNE-SOE": (200, 1024, 1024, 1e-3, 0.05, True),
        "FC7-MOE-bl FNE-MOE-bl": (200, 1024, 300, 2e-4, 0.2, False),
        "FC7-MOE": (400, 1536, 1536, 1e-4, 0.05, True),
        "FNE-MOE": (300, 1536, 1536, 1e-4, 0.05, True),
        "FC7-PH FNE-PH": (200, 1536, 1024, 2e-4, 0.2, False),
        "FC7-POE FNE-POE": (200, 1024, 1024, 1e-4, 0.05, True),
    },
    "flickr30k": {
        "FC7-SH FNE-SH": (200, 1536, 1024, 2e-4, 0.2, False),
        "FC7-MH-bl FNE-MH-bl": (400, 1024, 300, 2e-4, 0.2, False),
        "FC7-MH": (200, 1536, 1024, 2e-4, 0.2, False),
        "FNE-MH": (400, 1536, 1024, 2e-4, 0.2, False),
        "FC7-SOE-bl FNE-SOE-bl": (200, 1024, 300, 1e-3, 0.05, True),
        "FC7-SOE FNE-SOE": (100, 1024, 1024, 1e-3, 0.05, True),
        "FC7-MOE-bl FNE-MOE-bl": (200, 1024, 300, 2e-4, 0.2, False),
        "FC7-MOE FNE-MOE": (300, 1536, 1536, 1e-4, 0.05, True),
        "FC7-PH FNE-PH": (200, 1536, 1024, 2e-4, 0.2, False),
        "FC7-POE FNE-POE": (200, 1024, 1024, 1e-4, 0.05, True),
    },
    "coco": {
        "FC7-SH FNE-SH": (200, 1536, 1024, 2e-4, 0.2, False),
        "FC7-MH-bl FNE-MH-bl": (200, 1024, 300, 2e-4, 0.2, False),
        "FC7-MH": (200, 2048, 1024, 2e-4, 0.2, False),
        "FNE-MH": (300, 2048, 1024, 2e-4, 0.2, False),
        "FC7-SOE-bl FNE-SOE-bl": (200, 1024, 300, 1e-3, 0.05, True),
        "FC7-SOE FNE-SOE": (100, 1536, 1024, 1e-3, 0.05, True),
        "FC7-MOE-bl FNE-MOE-bl": (200, 1024, 300, 2e-4, 0.2, False),
        "FC7-MOE FNE-MOE": (200, 2048, 1536, 1e-4, 0.05, True),
        "FC7-PH FNE-PH": (200, 1536, 1024, 2e-4, 0.2, False),
        "FC7-POE FNE-POE": (200, 2048, 1024, 1e-4, 0.05, True),
    },
}
EVERY_LAUNCHER = [
    (dataset, name, values)
    for dataset, rows in LAUNCHERS.items()
    for names_of_row, values in rows.items()
    for name in names_of_row.split()
]


@pytest.mark.parametrize(("dataset", "name", "values"), EVERY_LAUNCHER)
def test_a_preset_following_the_code_has_the_values_of_its_launcher(dataset, name, values):
    assert len(EVERY_LAUNCHER) == 53
    found = settings(name, dataset, "code")
    rate = found["train.learning_rate"]
    keys = ("epochs", "embed_dim", "word_dim", "margin", "absolute")
    epochs, embed_dim, word_dim, margin, absolute = (found[f"train.{key}"] for key in keys)
    last = rate[-1] if isinstance(rate, list) else rate
    assert (epochs, embed_dim, word_dim, last, margin, absolute) == values


def test_presets_for_coco_say_what_is_validated_and_scored():
    found = settings("FNE-SH", "coco")
    assert found["evaluate.protocol"] == "coco_1k_first"
    assert (found["catalog.val_images"], found["catalog.captions_per_image"]) == (1000, 5)


def test_a_preset_sets_or_leaves_every_key_on_purpose():
    """What it leaves is listed; keys of variants and kinds that it does not choose do not apply."""
    for each in every_preset():
        left = set(load("presets")["left"])
        if "/" in each.name:
            # The vectors of words are the user's; the demo of an encoder uses the network of params.yaml.
            left |= set() if each.dataset == "demo" else {"tokenize.vectors"}
            # The demo of Stage II has a network of its own.
            has_network = each.dataset == "demo" and each.is_tuned
            if not has_network and not each.name.split("/")[1].startswith(("VGG19-", "ResNet50-")):
                left |= {f"embed.{key}" for key in PARAMS["embed"]}
        left |= {"finetune.seed", "finetune.threads"} if each.is_tuned else set()
        unset = ("extract", "render") if each.is_tuned else ("extract", "render", "finetune")
        sections = {name: flattened(PARAMS[name]) for name in SECTIONS if name not in unset}
        for key, value in each.overrides.items():
            section, own = key.split(".", 1)
            sections.setdefault(section, {})[own] = value
        every = {
            f"{section}.{key}"
            for section, keys in sections.items()
            for key in keys
            if applies(key, keys) or key.count(".") < 2
        }
        unused = {kind: {f"embed.{key}" for key in keys} for kind, keys in UNUSED.items()}
        unused = unused.get(each.overrides.get("embed.kind"), set())
        every -= {key for key in every if key.startswith("render.")}
        assert every - set(each.overrides) - unused == left, each.name


def other_than(value):
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [*value, other_than(value[-1])]
    return f"{value}-other" if isinstance(value, str) else value + 1


def settings_that_apply(chosen, start):
    """Return what a preset makes of a parameter file, without what it leaves and what does not apply."""
    content = dict(start)
    for key, value in chosen.overrides.items():
        put(content, key, value)
    unset = ("render",) if chosen.is_tuned else ("render", "finetune")
    sections = {name: flattened(content[name]) for name in SECTIONS if name not in unset}
    unused = UNUSED.get(sections["embed"]["kind"], ())
    left = {*load("presets")["left"], "extract.weights", "extract.input", "extract.shards"}
    left |= {"finetune.seed", "finetune.threads"}
    if "/" in chosen.name:
        left |= {"tokenize.vectors"}  # the user's
    return {
        f"{section}.{key}": value
        for section, keys in sections.items()
        for key, value in keys.items()
        if applies(key, keys)
        and f"{section}.{key}" not in left
        and not (section == "embed" and key in unused)
    }


def names_an_encoder(chosen):
    own_name = chosen.name.split("/")[-1]
    return own_name.startswith(("FC7-", "FNE-", "VGG19-", "ResNet50-"))


def test_presets_that_name_an_encoder_give_the_same_settings_whatever_all_parameters_were():
    named = [each for each in every_preset() if names_an_encoder(each)]
    methods = load("table1")["methods"]
    table_1 = [each for each in named if each.name.split("-", 1)[1] in methods and each.dataset != "demo"]
    assert len({(each.name, each.dataset) for each in table_1}) == 60
    for each in named:
        shipped = {name: dict(flattened(PARAMS[name])) for name in SECTIONS}
        other = {
            name: {key: other_than(value) for key, value in keys.items()} for name, keys in shipped.items()
        }
        made = [settings_that_apply(each, unflattened(start)) for start in (shipped, other)]
        assert made[0] == made[1], (each.name, each.dataset, each.following)
        assert len(made[0]) > 40


def unflattened(sections):
    content = {name: {} for name in sections}
    for name, keys in sections.items():
        for key, value in keys.items():
            put_new(content[name], key.split("."), value)
    return content


def put_new(content, path, value):
    for part in path[:-1]:
        content = content.setdefault(part, {})
    content[path[-1]] = value


def test_presets_without_an_encoder_say_that_they_leave_the_section_extract():
    for each in every_preset():
        leaves_extract = any("section extract" in note or "sections extract" in note for note in each.notes)
        if "/" in each.name:
            assert leaves_extract
        else:
            assert names_an_encoder(each) == ("extract.backbone" in each.overrides), each.name
            assert leaves_extract == (not names_an_encoder(each)), each.name


def test_notes_explain_the_two_learning_rates_of_moe():
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
def test_dimensions_rates_and_epochs_are_those_of_table_1(name, dataset, embed_dim, word_dim, rate, epochs):
    found = settings(name, dataset)
    keys = ("embed_dim", "word_dim", "learning_rate", "epochs")
    assert [found[f"train.{key}"] for key in keys] == [embed_dim, word_dim, rate, epochs]


def test_both_embeddings_of_a_method_have_the_same_training_settings():
    for each in every_preset():
        if each.name.startswith("FNE-") and each.following == "paper":
            other = settings(each.name.replace("FNE-", "FC7-"), each.dataset, each.following)
            trained = {key: value for key, value in each.overrides.items() if not key.startswith("embed.")}
            assert trained == {key: value for key, value in other.items() if not key.startswith("embed.")}


@pytest.mark.parametrize("dataset", datasets()[:3])
def test_no_two_methods_have_the_same_settings(dataset):
    found = [str(sorted(arguments(each.overrides))) for each in every_preset() if each.dataset == dataset]
    # The five methods that the paper builds on do not depend on `following`.
    # The authors' launcher of FC7-SOE-bl on Flickr8k makes it the same as FC7-SOE.
    assert len(set(found)) == len(found) - 5 - (dataset == "flickr8k")


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
            "'FNE-MOE-abs' is a method of Table 5 only: it has presets for flickr8k and demo, not for coco",
        ),
    ],
)
def test_a_wrong_name_is_an_error_that_suggests_the_closest_preset(name, dataset, message):
    with pytest.raises(InputError) as caught:
        preset(name, dataset)
    assert caught.value.message == message


def test_every_file_of_the_papers_can_be_loaded():
    found = {paper: sorted(path.stem for path in (FOLDER / paper).iterdir()) for paper in papers()}
    assert found == {
        "dual-path": [
            "datasets",
            "presets",
            "table4",
            "table5",
            "tablecoco",
            "tableflickr30k",
            "weights",
        ],
        "fne": ["claims", "datasets", "presets", "table1", "table2", "table3", "table4", "table5", "weights"],
        "two-branch": ["datasets", "presets", "table1", "table2", "weights"],
    }
    assert all(load(name, paper) for paper, names_of_files in found.items() for name in names_of_files)


def test_systems_of_another_paper_are_an_encoder_and_a_method_or_a_method_alone():
    own = [name for name in names() if name.startswith("two-branch/")]
    assert len(own) == 5 * 2 + 5
    found = settings("two-branch/VGG19-K10", "flickr30k")
    assert {key: found[key] for key in found if key.split(".")[0] in ("extract", "embed")} == {
        "extract.backbone": "vgg19",
        "extract.activations": "post_relu",
        "extract.resize": "shorter_side",
        "extract.crops": "ten",
        "extract.views": "mean",
        "extract.layers": "all",
        "extract.precision": "float32",
        "embed.kind": "layer",
        "embed.layer": "fc7",
        "embed.rows": "none",
    }
    assert (found["train.loss"], found["train.top_k_hinge.k"], found["train.reduce"]) == (
        "top_k_hinge",
        10,
        "sum",
    )
    assert (found["train.image_anchors"], found["train.caption_anchors"], found["train.margin"]) == (
        1.0,
        0.1,
        0.1,
    )
    alone = settings("two-branch/semi", "flickr30k")
    assert alone["train.loss"] == "semi_hard_hinge"
    assert not any(key.startswith(("extract.", "embed.")) for key in alone)


def test_stage_one_of_the_dual_path_networks_is_that_of_the_published_code():
    own = [name for name in names() if name.startswith("dual-path/")]
    assert len(own) == 8 * 2 + 8
    found = settings("dual-path/ResNet50-I", "flickr30k", "code")
    rate = found["train.learning_rate"]
    rates = [rate * found[f"train.{key}_rate"] for key in ("words", "classifier", "gain")]
    assert [rate, *rates] == pytest.approx([0.01, 1e-4, 0.001, 0.02])
    assert rates[1] * found["train.instance.bias_rate"] == pytest.approx(0.002)
    assert {key: found[key] for key in found if key.startswith(("extract.", "embed."))} == {
        "extract.backbone": "resnet50",
        "extract.activations": "post_relu",
        "extract.resize": "shorter_side",
        "extract.crops": "ten",
        "extract.views": "each",
        "extract.layers": ["pool5"],
        "extract.precision": "float32",
        "embed.kind": "plain",
        "embed.layer": "pool5",
        "embed.rows": "none",
        "embed.layers": "all",
    }
    assert (found["train.epochs"], found["train.keep"], found["train.margin"]) == (240, "last", 1.0)
    assert (found["train.instance.dropout"], found["train.instance.bias"]) == (0.75, True)
    on_coco = settings("dual-path/VGG19-I", "coco")
    assert (on_coco["train.epochs"], on_coco["train.instance.dropout"]) == (75, 0.5)
    assert on_coco["train.dual_path.hidden"] == [4096]
    assert (on_coco["extract.activations"], on_coco["train.instance.bias"]) == ("pre_relu", False)


def test_stage_two_of_the_dual_path_networks_is_that_of_the_published_code():
    found = settings("dual-path/ResNet50-II", "flickr30k", "code")
    first = settings("dual-path/ResNet50-I", "flickr30k", "code")
    assert {key: value for key, value in found.items() if not key.startswith("finetune.")} == {
        key: value for key, value in first.items() if not key.startswith("finetune.")
    }
    assert not any(key.startswith("finetune.") for key in first)
    assert (found["finetune.epochs"], found["finetune.learning_rate"]) == ([40, 20], [0.01, 0.001])
    weights = [found[f"finetune.{key}_weight"] for key in ("rank", "image_class", "text_class")]
    assert weights == [2.0, 1.0, 0.1]
    assert (found["finetune.batch"], found["finetune.candidates"], found["finetune.margin"]) == (32, 256, 1.0)
    # The effective rates of the published code for a ResNet, and for VGG19.
    for name, wanted in (("ResNet50-II", [2e-3, 2e-3, 1e-4, 1e-5]), ("VGG19-II", [1e-4, 2e-3, 1e-4, 1e-5])):
        own = settings(f"dual-path/{name}", "flickr30k", "code")
        factors = [own[f"finetune.cnn_{key}rate"] for key in ("", "bias_", "gain_", "first_")]
        assert [0.01 * each for each in factors] == pytest.approx(wanted)
    on_coco = settings("dual-path/VGG19-II", "coco")
    assert on_coco["finetune.epochs"] == [15, 5, 1]
    assert on_coco["finetune.learning_rate"] == [0.01, 0.001, 0.0001]
    ranking = settings("dual-path/ResNet50-II-rank", "flickr30k")
    assert (ranking["finetune.image_class_weight"], ranking["finetune.text_class_weight"]) == (0.0, 0.0)


def test_the_demo_of_stage_two_is_small():
    found = settings("dual-path/II", "demo")
    assert (found["render.images"], found["extract.backbone"], found["embed.kind"]) == (
        64,
        "resnet18",
        "plain",
    )


@pytest.mark.parametrize(
    ("name", "weights"),
    [("I", (0.0, 1.0, 1.0)), ("ResNet50-I-rank", (1.0, 0.0, 0.0)), ("VGG19-I-both", (1.0, 1.0, 1.0))],
)
def test_a_dual_path_method_is_the_weights_of_its_terms(name, weights):
    found = settings(f"dual-path/{name}", "flickr30k")
    keys = ("rank_weight", "image_class_weight", "text_class_weight")
    assert tuple(found[f"train.{key}"] for key in keys) == weights


def test_k_means_classes_are_the_same_fraction_of_the_images_on_every_data_set():
    images = {"coco": 113_287, "flickr30k": 29_783, "flickr8k": 6_000}
    for name, fraction in (("I-K3000", 3_000 / 113_287), ("ResNet50-I-K10000", 10_000 / 113_287)):
        for dataset, count in images.items():
            classes = settings(f"dual-path/{name}", dataset)["train.instance.classes"]
            assert classes == round(fraction * count)


def test_a_key_in_a_block_of_a_variant_is_set_only_for_the_chosen_one():
    for name in ("two-branch/K1", "two-branch/ResNet50-all"):
        for following, head in (("paper", "mlp"), ("code", "mlp_bn_first")):
            found = settings(name, "coco", following)
            assert found["train.image_head"] == head
            assert {key.split(".")[2] for key in found if key.startswith("train.image_heads.")} == {head}


def test_the_demo_of_another_paper_is_small_and_needs_no_word_vectors():
    found = settings("two-branch/K10", "demo")
    assert (found["tokenize.vectors"], found["train.words"]) == ("weights/no_words.yaml", "learned")
    assert found["train.mlp.hidden"] == found["train.bow_mlp.hidden"] == [128]


@pytest.mark.parametrize(
    ("name", "close"),
    [("two-branch/VGG19-K11", "two-branch/VGG19-K1"), ("two-branches/semi", "two-branch/semi")],
)
def test_a_wrong_address_suggests_the_closest_preset(name, close):
    with pytest.raises(InputError, match=f"did you mean '{close}'"):
        preset(name, "flickr30k")


@pytest.mark.parametrize("name", own_names())
def test_presets_for_own_data_set_every_key_of_the_training(name):
    overrides = preset(name, "own").overrides
    content = {section: dict(PARAMS[section]) for section in SECTIONS}
    for key, value in overrides.items():
        put(content, key, value)
    train = Train.model_validate(content["train"])
    assert set(flattened(content["embed"])) == set(flattened(PARAMS["embed"]))
    Embed.model_validate(content["embed"])
    Tokenize.model_validate(content["tokenize"])
    applied = {f"train.{key}" for key in flattened(train.applied())}
    # Parts that a closed form implies, seed and threads, and how clipping by zero would be done.
    keys = ("image_head", "text_encoder", "similarity", "seed", "threads", "clip_by")
    implied = {f"train.{key}" for key in keys}
    assert applied - set(overrides) <= implied | {"train.cca.dim"}


def test_the_defaults_train_as_the_preset_for_own_data_does():
    """But for the batch and the patience, which are those of the preset for small data sets."""
    defaults = {f"train.{key}": value for key, value in flattened(PARAMS["train"]).items()}
    for name, expected in {
        "own/fine-tuned": {"train.batch", "train.patience", "train.start"},
        "own/fine-tuned-small": {"train.start"},
    }.items():
        overrides = preset(name, "own").overrides
        other = {
            key for key, value in overrides.items() if key.startswith("train.") and defaults[key] != value
        }
        assert other == expected


def test_a_preset_for_own_data_that_does_not_exist_names_those_that_do():
    with pytest.raises(InputError) as caught:
        preset("FNE-POE", "own")
    assert caught.value.message == (
        "there is no preset 'FNE-POE' for your own data; there are own/closed-form, own/fine-tuned, "
        "own/fine-tuned-small"
    )


def test_papers_about_retrieval_and_about_descriptions_are_separate():
    assert "semantic" in description_papers()
    assert not set(papers()) & set(description_papers())
    assert not set(names()) & set(description_names())
    assert {"semantic/tags-S-CNN-RNN", "semantic/RIA", "semantic/CNN-warp"} <= set(description_names())


@pytest.mark.parametrize("name", description_names())
@pytest.mark.parametrize("dataset", DATASETS)
def test_every_preset_of_descriptions_sets_existing_keys_to_valid_values(name, dataset):
    chosen = preset(name, dataset)
    sections = {key.partition(".")[0] for key in chosen.overrides}
    assert TRAINED_BY[pipeline_of(name)] in sections
    for section in sections:
        own = {
            key.partition(".")[2]: value
            for key, value in chosen.overrides.items()
            if key.startswith(f"{section}.")
        }
        assert set(own) <= set(flattened(PARAMS[section]))
        content = dict(PARAMS[section])
        for key, value in own.items():
            put(content, key, value)
        assert parse_section({section: content}, section, ALL_SCHEMAS[section])[1] == []
    assert chosen.notes


@pytest.mark.parametrize("name", [each for each in description_names() if pipeline_of(each) == "tagging"])
def test_a_preset_of_tags_sets_everything_that_decides_what_is_trained(name):
    chosen = preset(name, "coco").overrides
    left = {
        key for key in PARAMS["train_tagger"] if not any(f"train_tagger.{key}" in each for each in chosen)
    }
    # Blocks of variants that are not chosen do not apply.
    assert left <= {"seed", "threads", "concept_heads", "user_tag_readers"}


def test_the_ablations_differ_in_what_their_names_say():
    def chosen(name):
        found = preset(f"semantic/{name}", "coco").overrides
        return {key.removeprefix("train_tagger."): value for key, value in found.items()}

    ours, ria, fixed = chosen("tags-S-CNN-RNN"), chosen("RIA"), chosen("CNN-RNN")
    assert (ours["condition"], ours["inject"], ours["order"]) == ("concepts", "state", "rare_first")
    assert (ours["units"], ours["word_dim"], ours["learning_rate"]) == (512, 256, 0.0001)
    assert (ria["condition"], ria["concept_loss"], ria["learns"]) == ("embedding", "none", "jointly")
    assert (fixed["inject"], fixed["order"]) == ("output", "frequent_first")
    assert chosen("tags-S-CNN-RNN-Tag1K")["user.count"] == 1000
    assert [chosen(f"CNN-{loss}")["concept_loss"] for loss in ("logistic", "softmax", "warp")] == [
        "logistic",
        "softmax",
        "warp",
    ]


def test_an_unknown_preset_is_refused_with_the_closest_one():
    with pytest.raises(InputError) as caught:
        preset("semantic/RIAA", "coco")
    assert caught.value.message == (
        "there is no preset 'semantic/RIAA' (did you mean 'semantic/RIA'?); see `fne preset --list`"
    )


CAPTIONERS = [each for each in description_names() if pipeline_of(each) == "captioning"]


@pytest.mark.parametrize("name", CAPTIONERS)
@pytest.mark.parametrize("following", ["paper", "code"])
def test_a_preset_of_captions_sets_everything_that_decides_what_is_trained(name, following):
    chosen = preset(name, "coco", following).overrides
    left = {
        key
        for key in PARAMS["train_captioner"]
        if not any(f"train_captioner.{key}" in each for each in chosen)
    }
    # Blocks of variants that are not chosen do not apply.
    assert left <= {"seed", "threads", "concept_heads", "cells", "optimizers"}


def test_captioners_differ_in_what_their_names_say():
    def chosen(name, dataset="coco", following="paper"):
        found = preset(name, dataset, following).overrides
        return {key.removeprefix("train_captioner."): value for key, value in found.items()}

    def difference(one, other):
        ours, theirs = chosen(f"semantic/{one}"), chosen(f"semantic/{other}")
        return {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}

    ours = "captions-S-CNN-RNN"
    assert difference(ours, "NIC-F-state") == {"condition", "concept_loss", "learns"}
    assert difference("NIC-F", "NIC-F-state") == {"inject"}
    assert difference(ours, "captions-S-CNN-RNN-joint") == {"learns"}
    assert chosen("semantic/NIC-deeply")["condition"] == "hidden"
    assert (chosen(f"semantic/{ours}")["units"], chosen(f"semantic/{ours}", "flickr8k")["units"]) == (
        512,
        256,
    )
    slides, code = chosen("slides/M-RNN"), chosen("slides/M-RNN", following="code")
    assert (slides["condition"], slides["inject"], slides["cell"]) == ("embedding", "bias", "rnn_relu")
    assert (slides["units"], slides["clip_by"], slides["words"], slides["write_captions.beam"]) == (
        512, "element", "alphanumeric", 7,
    )  # fmt: skip
    assert (code["inject"], code["units"], code["optimizer"]) == ("every", 256, "rmsprop_inside")
