import copy
from functools import cache

import pytest
from dvc.utils.hydra import apply_overrides
from ruamel.yaml import YAML

from fne.cli.check import SECTIONS, faults_between
from fne.core.errors import InputError
from fne.core.settings import flattened, load_params, parse_section, put
from fne.experiments.presets import (
    FOLDER,
    LEFT,
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
from fne.matching.settings import Train
from tests.support.imports import ROOT
from tests.support.parameters import names_allowed

DATASETS = ("flickr8k", "flickr30k", "coco", "demo")

# What a kind of embedding that keeps one layer ignores.
UNUSED = {"embed.layers": "all", "embed.thresholds": "fixed", "embed.low": -0.25, "embed.high": 0.15}
# How the images of other papers are computed, unless a preset says otherwise.
ENCODED = {
    f"extract.{key}": value
    for key, value in {
        "activations": "post_relu", "resize": "shorter_side", "crops": "ten", "views": "mean", "layers": "all",
        "precision": "float32",
    }.items()
}  # fmt: skip


def settings(name, dataset="flickr8k", following="paper"):
    return preset(name, dataset, following).overrides


def assert_trains_with(found, **expected):
    """Compare keys of `train`, nested ones as `a__b`."""
    assert {key: found[f"train.{key.replace('__', '.')}"] for key in expected} == expected


def of_images(found):
    return {key: found[key] for key in found if key.startswith(("extract.", "embed."))}


def test_there_are_presets_for_tables_1_and_5_and_for_the_methods_the_paper_builds_on():
    assert len([name for name in names() if "/" not in name]) == 2 * 10 + 4 + 5
    assert {"FC7-SH", "FNE-SH-bl", "FNE-PH", "FNE-MOE-bl-abs", "UVS", "Order", "VSE0", "VSE++"} <= set(
        names()
    )
    assert len(every_preset()) == 2 * (4 * 25 + 2 * 4) + 2 * 4 * (15 + 32)


@pytest.mark.parametrize("name", ["FNE-POE", "VSE++", "two-branch/ResNet50-K1", "dual-path/ResNet50-I"])
def test_dvc_parses_the_arguments_to_the_values_of_the_preset(name, tmp_path):
    """Split by a shell, parsed by DVC, written to a file and read again, the arguments give the preset."""
    file = tmp_path / "params.yaml"
    file.write_bytes((ROOT / "params.yaml").read_bytes())
    words = " ".join(arguments(settings(name))).split()
    assert words[::2] == ["-S"] * (len(words) // 2)
    apply_overrides(file, words[1::2])
    written = YAML(typ="safe", pure=True).load(file)
    found = {key: value for key, value in flattened(written).items() if key in settings(name)}
    assert found == settings(name)


def test_the_paper_is_followed_by_default():
    found = settings("FNE-POE")
    assert_trains_with(found, loss=["sum_hinge", "max_hinge"], learning_rate=[0.001, 0.0001], margin=0.05)
    assert_trains_with(found, epochs=200, patience=200, similarity="order", absolute=True)
    assert_trains_with(found, max_hinge__hardest="query", image_head="linear", optimizer="adam")
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


# All published launchers: epochs, dimensions of the space and of words, the (last) learning rate, the margin, and
# whether absolute values are taken. There is none for SH-bl, and none for FC7-SOE on Flickr8k.
LAUNCHERS = {
    "flickr8k flickr30k coco": {
        "FC7-SH FNE-SH": (200, 1536, 1024, 2e-4, 0.2, False),
        "FC7-MOE-bl FNE-MOE-bl": (200, 1024, 300, 2e-4, 0.2, False),
        "FC7-PH FNE-PH": (200, 1536, 1024, 2e-4, 0.2, False),
        "FNE-SOE-bl": (200, 1024, 300, 1e-3, 0.05, True),
    },
    "flickr8k flickr30k": {
        "FC7-MH-bl FNE-MH-bl": (400, 1024, 300, 2e-4, 0.2, False),
        "FC7-POE FNE-POE": (200, 1024, 1024, 1e-4, 0.05, True),
    },
    "flickr30k coco": {"FC7-SOE-bl": (200, 1024, 300, 1e-3, 0.05, True)},
    "flickr8k": {
        "FC7-MH": (200, 1024, 1024, 2e-4, 0.2, False),
        "FNE-MH": (800, 1024, 1024, 2e-5, 0.2, False),
        "FC7-SOE-bl FNE-SOE": (200, 1024, 1024, 1e-3, 0.05, True),
        "FC7-MOE": (400, 1536, 1536, 1e-4, 0.05, True),
        "FNE-MOE": (300, 1536, 1536, 1e-4, 0.05, True),
    },
    "flickr30k": {
        "FC7-MH": (200, 1536, 1024, 2e-4, 0.2, False),
        "FNE-MH": (400, 1536, 1024, 2e-4, 0.2, False),
        "FC7-SOE FNE-SOE": (100, 1024, 1024, 1e-3, 0.05, True),
        "FC7-MOE FNE-MOE": (300, 1536, 1536, 1e-4, 0.05, True),
    },
    "coco": {
        "FC7-MH-bl FNE-MH-bl": (200, 1024, 300, 2e-4, 0.2, False),
        "FC7-MH": (200, 2048, 1024, 2e-4, 0.2, False),
        "FNE-MH": (300, 2048, 1024, 2e-4, 0.2, False),
        "FC7-SOE FNE-SOE": (100, 1536, 1024, 1e-3, 0.05, True),
        "FC7-MOE FNE-MOE": (200, 2048, 1536, 1e-4, 0.05, True),
        "FC7-POE FNE-POE": (200, 2048, 1024, 1e-4, 0.05, True),
    },
}
EVERY_LAUNCHER = [
    (dataset, name, values)
    for datasets_of_rows, rows in LAUNCHERS.items()
    for dataset in datasets_of_rows.split()
    for names_of_row, values in rows.items()
    for name in names_of_row.split()
]


@pytest.mark.parametrize(("dataset", "name", "values"), EVERY_LAUNCHER)
def test_a_preset_following_the_code_has_the_values_of_its_launcher(dataset, name, values):
    assert len(EVERY_LAUNCHER) == 53
    epochs, embed_dim, word_dim, last_rate, margin, absolute = values
    found = settings(name, dataset, "code")
    rate = found["train.learning_rate"]
    assert (rate[-1] if isinstance(rate, list) else rate) == last_rate
    assert_trains_with(
        found, epochs=epochs, embed_dim=embed_dim, word_dim=word_dim, margin=margin, absolute=absolute
    )


def test_presets_for_coco_say_what_is_validated_and_scored():
    found = settings("FNE-SH", "coco")
    assert found["evaluate.protocol"] == "coco_1k_first"
    assert (found["catalog.val_images"], found["catalog.captions_per_image"]) == (1000, 5)


def candidates(schema, key, value):
    """Yield other values of a key, of which the first valid one is taken."""
    if isinstance(value, list):
        for each in candidates(schema, key, value[0]):
            yield from ([each], [each, *value[1:]])
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, str):
        names = names_allowed(schema, key)
        yield from names or [f"{value}-other", [value, f"{value}-other"]]
    elif isinstance(value, float):
        yield from (value * 0.5, value + 0.25, value + 0.5)
    else:
        yield from (value + 1, value + 2, value - 1, value // 2)


@cache
def other_parameters():
    """Return parameters in which every key that can differ is another valid one than the default."""
    content = {}
    for name, schema in SECTIONS.items():
        content[name] = schema().model_dump()
        for place, value in flattened(content[name]).items():
            block, _, key = place.rpartition(".")
            owner = schema.nested()[block] if block else schema
            for other in candidates(owner, key, value):
                before = copy.deepcopy(content[name])
                put(content[name], place, other)
                if other not in (value, [value]) and not parse_section(content, name, schema)[1]:
                    break
                content[name] = before
    return content


def test_nearly_every_key_can_have_another_valid_value():
    other = other_parameters()
    same = {
        f"{name}.{key}"
        for name, schema in SECTIONS.items()
        for key, value in flattened(schema().model_dump()).items()
        if flattened(other[name])[key] == value
    }
    # Other values of these do not fit the others of their sections.
    assert same == {
        "embed.thresholds", "embed_text.thresholds",
        "train.rectified", "train_captioner.condition", "train_tagger.condition",
        "train_captioner.input_activation", "train_tagger.input_activation",
    }  # fmt: skip


read_value = cache(lambda text: YAML(typ="safe", pure=True).load(text))


def parsed(chosen, start):
    """Return the sections of parameters with the arguments of a preset, which must all be valid."""
    content = {name: dict(keys) for name, keys in start.items()}
    for argument in arguments(chosen.overrides)[1::2]:
        key, value = argument.split("=", 1)
        section, own = key.rpartition(":")[2].removeprefix("++").split(".", 1)
        put(content[section], own, copy.deepcopy(read_value(value)))
    found = {name: parse_section(content, name, schema) for name, schema in SECTIONS.items()}
    assert {name: faults for name, (_, faults) in found.items() if faults} == {}, chosen.name
    return {name: section for name, (section, _) in found.items()}


def every_preset_of_all_papers():
    described = [
        preset(name, dataset, following)
        for name in description_names()
        for dataset in DATASETS
        for following in ("paper", "code")
    ]
    return [*every_preset(), *described, *(preset(name, "own") for name in own_names())]


def test_every_preset_decides_all_that_applies_to_its_sections_whatever_the_files_say():
    start, other = load_params(ROOT / "params.yaml"), other_parameters()
    start = {name: start.get(name) or {} for name in SECTIONS}
    assert len(every_preset_of_all_papers()) > 600
    for chosen in every_preset_of_all_papers():
        one, two = parsed(chosen, start), parsed(chosen, other)
        for section in dict.fromkeys(key.partition(".")[0] for key in chosen.overrides):
            effective = [flattened(each[section].effective()) for each in (one, two)]
            if section in ("catalog", "render"):  # the data set is the user's
                effective = [
                    {key: keys[key] for key in keys if f"{section}.{key}" in chosen.overrides}
                    for keys in effective
                ]
            first, second = (
                {key: value for key, value in keys.items() if f"{section}.{key}" not in LEFT}
                for keys in effective
            )
            assert first == second, (chosen.name, chosen.dataset, chosen.following, section)
            assert first.keys() <= {key.partition(".")[2] for key in chosen.overrides}, chosen.name


@pytest.mark.parametrize("embed", [{}, {"kind": "raw", "layers": "conv"}])
def test_the_sections_of_every_preset_fit_together(embed):
    start = load_params(ROOT / "params.yaml")
    start = {name: dict(start.get(name) or {}) for name in SECTIONS}
    start["embed"] |= embed
    start["tokenize"]["vectors"] = "glove.txt"  # the user's, where words are fixed
    for chosen in every_preset_of_all_papers():
        faults = [*faults_between(parsed(chosen, start), ["finetune"] * chosen.is_tuned)]
        assert faults == [], (chosen.name, chosen.dataset, chosen.following)


def test_presets_without_an_encoder_say_that_they_leave_the_section_extract():
    for each in every_preset():
        leaves_extract = any("section extract" in note or "sections extract" in note for note in each.notes)
        if "/" in each.name:
            assert leaves_extract
        else:
            with_encoder = each.name.startswith(("FC7-", "FNE-"))
            assert with_encoder == ("extract.backbone" in each.overrides) != leaves_extract, each.name


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
    # The five methods that the paper builds on do not depend on `following`, nor do dual-path networks but on
    # Flickr with ResNet-50. The launcher of FC7-SOE-bl on Flickr8k makes it the same as FC7-SOE.
    same = {"flickr8k": 5 + 8 + 1, "flickr30k": 5 + 8, "coco": 5 + 32}
    assert len(set(found)) == len(found) - same[dataset]


@pytest.mark.parametrize(
    ("name", "dataset", "message"),
    [
        ("fne-poe", "flickr8k", r"no preset 'fne-poe' \(did you mean 'FNE-POE'\?\); see `fne preset --list`"),
        ("FNE-SOE-b", "coco", r"no preset 'FNE-SOE-b' \(did you mean 'FNE-SOE-bl'\?\)"),
        ("two-branch/VGG19-K11", "flickr30k", "did you mean 'two-branch/VGG19-K1'"),
        ("two-branches/semi", "flickr30k", "did you mean 'two-branch/semi'"),
        ("semantic/RIAA", "coco", r"\(did you mean 'semantic/RIA'\?\); see `fne preset --list`"),
        ("FNE-MOE-abs", "coco", "Table 5 only: it has presets for flickr8k and demo, not for coco"),
        (
            "FNE-POE",
            "own",
            "for your own data; there are own/closed-form, own/fine-tuned, own/fine-tuned-small, "
            "own/both-sides, own/contrastive",
        ),
    ],
)
def test_a_wrong_name_is_an_error_that_suggests_what_there_is(name, dataset, message):
    with pytest.raises(InputError, match=message):
        preset(name, dataset)


def test_every_file_of_the_papers_can_be_loaded():
    found = {paper: sorted(path.stem for path in (FOLDER / paper).iterdir()) for paper in papers()}
    assert set(found) == {"dual-path", "fne", "two-branch"}
    assert all(load(name, paper) for paper, files in found.items() for name in files)


def test_systems_of_another_paper_are_an_encoder_and_a_method_or_a_method_alone():
    own = [name for name in names() if name.startswith("two-branch/")]
    assert len(own) == 5 * 2 + 5
    found = settings("two-branch/VGG19-K10", "flickr30k")
    kept = {"embed.kind": "layer", "embed.layer": "fc7", "embed.rows": "none"}
    assert of_images(found) == UNUSED | kept | ENCODED | {"extract.backbone": "vgg19"}
    assert_trains_with(found, loss="top_k_hinge", top_k_hinge__k=10, reduce="sum", margin=0.1)
    assert_trains_with(found, image_anchors=1.0, caption_anchors=0.1)
    alone = settings("two-branch/semi", "flickr30k")
    assert alone["train.loss"] == "semi_hard_hinge"
    assert of_images(alone) == {}


def test_stage_one_of_the_dual_path_networks_is_that_of_the_published_code():
    own = [name for name in names() if name.startswith("dual-path/")]
    assert len(own) == 8 * 3 + 8
    found = settings("dual-path/ResNet50-I", "flickr30k", "code")
    rate = found["train.learning_rate"]
    rates = [rate * found[f"train.{key}_rate"] for key in ("words", "classifier", "gain")]
    assert [rate, *rates] == pytest.approx([0.01, 1e-4, 0.001, 0.02])
    assert rates[1] * found["train.instance.bias_rate"] == pytest.approx(0.002)
    network = {"extract.backbone": "resnet50", "extract.views": "each", "extract.layers": ["pool5"]}
    kept = {"embed.kind": "plain", "embed.layer": "pool5", "embed.rows": "none"}
    assert of_images(found) == UNUSED | kept | ENCODED | network
    assert_trains_with(
        found, epochs=240, keep="last", margin=1.0, instance__dropout=0.75, instance__bias=True
    )
    on_coco = settings("dual-path/VGG19-I", "coco")
    assert_trains_with(
        on_coco, epochs=70, instance__dropout=0.5, instance__bias=False, dual_path__hidden=[4096]
    )
    assert on_coco["extract.activations"] == "pre_relu"


@pytest.mark.parametrize(
    ("encoder", "dataset", "epochs", "margin", "bias", "dropout", "words", "second"),
    [
        ("ResNet50", "flickr30k", 240, 0.5, True, 0.75, ["train", "val"], [40, 20]),
        ("VGG19", "flickr30k", 240, 1.0, False, 0.75, ["train", "val"], [40, 20]),
        ("ResNet50", "coco", 75, 1.0, False, 0.5, ["train"], [15, 5, 1]),
        ("VGG19", "coco", 70, 1.0, False, 0.5, ["train"], [15, 5]),
    ],
)
def test_dual_path_presets_have_the_values_of_the_script_for_their_network_and_data_set(
    encoder, dataset, epochs, margin, bias, dropout, words, second
):
    """`margin` is that in the name of the published folder, which presets take that follow the paper."""
    name = f"dual-path/{encoder}-II"
    paper, code = settings(name, dataset), settings(name, dataset, "code")
    differing = {key for key in paper if paper[key] != code[key]}
    assert differing <= {"train.margin", "finetune.margin", "train.instance.bias"}
    assert (paper["train.margin"], paper["finetune.margin"], paper["train.instance.bias"]) == (
        margin,
        margin,
        False,
    )
    assert (code["train.margin"], code["finetune.margin"], code["train.instance.bias"]) == (1.0, 1.0, bias)
    assert_trains_with(code, epochs=epochs, instance__dropout=dropout)
    assert (code["tokenize.vocabulary"], code["finetune.epochs"]) == (words, second)
    assert code["finetune.learning_rate"] == pytest.approx([0.01, 0.001, 0.0001][: len(second)])


def test_stage_two_of_the_dual_path_networks_is_that_of_the_published_code():
    def tuned(found):
        return {key.removeprefix("finetune."): found[key] for key in found if key.startswith("finetune.")}

    found = settings("dual-path/ResNet50-II", "flickr30k", "code")
    first = settings("dual-path/ResNet50-I", "flickr30k", "code")
    assert tuned(first) == {}
    own = tuned(found)
    assert found == first | {f"finetune.{key}": value for key, value in own.items()}
    assert (own["epochs"], own["learning_rate"]) == ([40, 20], [0.01, 0.001])
    assert [own[f"{key}_weight"] for key in ("rank", "image_class", "text_class")] == [2.0, 1.0, 0.1]
    assert (own["batch"], own["candidates"], own["margin"]) == (32, 256, 1.0)
    # The effective rates of the published code for a ResNet, and for VGG19.
    for name, wanted in (("ResNet50-II", [2e-3, 2e-3, 1e-4, 1e-5]), ("VGG19-II", [1e-4, 2e-3, 1e-4, 1e-5])):
        own = tuned(settings(f"dual-path/{name}", "flickr30k", "code"))
        factors = [own[f"cnn_{key}rate"] for key in ("", "bias_", "gain_", "first_")]
        assert [0.01 * each for each in factors] == pytest.approx(wanted)
    on_coco = tuned(settings("dual-path/VGG19-II", "coco"))
    assert (on_coco["epochs"], on_coco["learning_rate"]) == ([15, 5], [0.01, 0.001])
    ranking = tuned(settings("dual-path/ResNet50-II-rank", "flickr30k"))
    assert (ranking["image_class_weight"], ranking["text_class_weight"]) == (0.0, 0.0)


def test_demos_of_other_papers_are_small_and_need_no_word_vectors():
    found = settings("dual-path/II", "demo")
    assert (found["render.images"], found["extract.backbone"], found["embed.kind"]) == (
        64,
        "resnet18",
        "plain",
    )
    found = settings("two-branch/K10", "demo")
    assert (found["tokenize.vectors"], found["train.words"]) == ("weights/random_words.yaml", "learned")
    assert found["train.mlp.hidden"] == found["train.bow_mlp.hidden"] == [128]


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
            blocks = {key.split(".")[1] for key in found if key.startswith("train.") and key.count(".") > 1}
            assert blocks & {"dual_path", "mlp", "mlp_bn_first"} == {head}


def test_the_defaults_train_as_the_preset_for_own_data_does():
    """But for the batch and the patience, which are those of the preset for small data sets."""
    defaults = flattened(Train().model_dump())
    for name, expected in {
        "own/fine-tuned": {"batch", "patience", "start"},
        "own/fine-tuned-small": {"start"},
    }.items():
        content = {}
        for key, value in preset(name, "own").overrides.items():
            if key.startswith("train."):
                put(content, key.removeprefix("train."), value)
        found = flattened(Train.model_validate(content).model_dump())
        assert {key for key, value in found.items() if defaults[key] != value} == expected


def test_papers_about_retrieval_and_about_descriptions_are_separate():
    assert "semantic" in description_papers()
    assert not set(papers()) & set(description_papers())
    assert not set(names()) & set(description_names())
    assert {"semantic/tags-S-CNN-RNN", "semantic/RIA", "semantic/CNN-warp"} <= set(description_names())


@pytest.mark.parametrize("name", description_names())
@pytest.mark.parametrize("dataset", DATASETS)
def test_every_preset_of_descriptions_has_notes_and_sets_the_training(name, dataset):
    chosen = preset(name, dataset)
    assert TRAINED_BY[pipeline_of(name)] in {key.partition(".")[0] for key in chosen.overrides}
    assert chosen.notes


def test_the_ablations_differ_in_what_their_names_say():
    def chosen(name, *keys):
        return [settings(f"semantic/{name}", "coco")[f"train_tagger.{key}"] for key in keys]

    ours = "tags-S-CNN-RNN"
    assert chosen(ours, "condition", "inject", "order") == ["concepts", "state", "rare_first"]
    assert chosen(ours, "units", "word_dim", "learning_rate") == [512, 256, 0.0001]
    assert chosen("RIA", "condition", "concept_loss", "learns") == ["embedding", "none", "jointly"]
    assert chosen("CNN-RNN", "inject", "order") == ["output", "frequent_first"]
    assert chosen(f"{ours}-Tag1K", "user.count") == [1000]
    for loss in ("logistic", "softmax", "warp"):
        assert chosen(f"CNN-{loss}", "concept_loss") == [loss]


def test_captioners_differ_in_what_their_names_say():
    def chosen(name, dataset="coco", following="paper"):
        found = settings(name, dataset, following)
        return {key.removeprefix("train_captioner."): value for key, value in found.items()}

    def difference(one, other):
        ours, theirs = chosen(f"semantic/{one}"), chosen(f"semantic/{other}")
        return {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}

    ours = "captions-S-CNN-RNN"
    assert difference(ours, "NIC-F-state") == {"condition", "concept_loss", "learns"}
    assert difference("NIC-F", "NIC-F-state") == {"inject"}
    assert difference(ours, "captions-S-CNN-RNN-joint") == {"learns", "concept_head_rate"}
    printed = chosen(f"semantic/{ours}")
    assert (printed["batch"], printed["learning_rate"]) == (32, 0.0001)
    assert printed["iterations"] == [30_000, 1_000_000, 500_000]
    assert printed["learns"] == ["concept_head", "separately", "jointly"]
    assert 32 * max(printed["iterations"]) < 82_783 * 5 * printed["epochs"]
    assert chosen("semantic/V2L")["inject"] == "input"
    assert chosen("semantic/NIC-deeply")["condition"] == "hidden"
    assert [chosen(f"semantic/{ours}", each)["units"] for each in ("coco", "flickr8k")] == [512, 256]
    slides, code = chosen("slides/M-RNN"), chosen("slides/M-RNN", following="code")
    assert (slides["condition"], slides["inject"], slides["cell"]) == ("embedding", "bias", "rnn_relu")
    assert (slides["units"], slides["clip_by"], slides["write_captions.beam"]) == (512, "element", 7)
    assert (code["inject"], code["units"], code["optimizer"]) == ("every", 256, "rmsprop_inside")
