import pytest
from ruamel.yaml import YAML

from fne.cli.check import SECTIONS as SCHEMAS
from fne.core.effective_settings import flattened, put
from fne.core.errors import InputError
from fne.core.params import parse_section
from fne.experiments.description_tables import (
    SECTIONS,
    description_grids,
    description_names,
    description_preset,
    pipeline_of,
    printed_numbers,
)
from fne.experiments.presets import description_papers, load, names, papers, split_address
from fne.experiments.printed_tables import description_tables, load_table
from fne.experiments.runs import DescribedRun
from tests.support.imports import ROOT

PARAMS = YAML(typ="safe", pure=True).load(ROOT / "params.yaml")
DATASETS = ("flickr8k", "flickr30k", "coco", "demo")


def test_papers_about_retrieval_and_about_descriptions_are_separate():
    assert "semantic" in description_papers()
    assert not set(papers()) & set(description_papers())
    assert not set(names()) & set(description_names())
    assert {"semantic/tags-S-CNN-RNN", "semantic/RIA", "semantic/CNN-warp"} <= set(description_names())


@pytest.mark.parametrize("name", description_names())
@pytest.mark.parametrize("dataset", DATASETS)
def test_every_preset_sets_existing_keys_to_valid_values(name, dataset):
    chosen = description_preset(name, dataset)
    sections = {key.partition(".")[0] for key in chosen.overrides}
    assert SECTIONS[pipeline_of(name)] in sections
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
        assert parse_section({section: content}, section, SCHEMAS[section])[1] == []
    assert chosen.notes


@pytest.mark.parametrize("name", [each for each in description_names() if pipeline_of(each) == "tagging"])
def test_a_preset_of_tags_sets_everything_that_decides_what_is_trained(name):
    chosen = description_preset(name, "coco").overrides
    left = {
        key for key in PARAMS["train_tagger"] if not any(f"train_tagger.{key}" in each for each in chosen)
    }
    # Blocks of variants that are not chosen do not apply.
    assert left <= {"seed", "threads", "recognizers", "hint_readers"}


def test_the_ablations_differ_in_what_their_names_say():
    def chosen(name):
        found = description_preset(f"semantic/{name}", "coco").overrides
        return {key.removeprefix("train_tagger."): value for key, value in found.items()}

    ours, ria, fixed = chosen("tags-S-CNN-RNN"), chosen("RIA"), chosen("CNN-RNN")
    assert (ours["condition"], ours["inject"], ours["order"]) == ("concepts", "state", "rare_first")
    assert (ours["units"], ours["word_dim"], ours["learning_rate"]) == (512, 256, 0.0001)
    assert (ria["condition"], ria["concept_loss"], ria["learns"]) == ("embedding", "none", "joint")
    assert (fixed["inject"], fixed["order"]) == ("output", "frequent_first")
    assert chosen("tags-S-CNN-RNN-Tag1K")["hint_readers.user.count"] == 1000
    assert [chosen(f"CNN-{loss}")["concept_loss"] for loss in ("logistic", "softmax", "warp")] == [
        "logistic",
        "softmax",
        "warp",
    ]


def test_an_unknown_preset_is_refused_with_the_closest_one():
    with pytest.raises(InputError) as caught:
        description_preset("semantic/RIAA", "coco")
    assert caught.value.message == (
        "there is no preset 'semantic/RIAA' (did you mean 'semantic/RIA'?); see `fne preset --list`"
    )


@pytest.mark.parametrize("address", description_tables())
def test_every_table_has_complete_rows_and_existing_presets(address):
    table, (paper, _) = load_table(address), split_address(address)
    assert table["dataset"] in load("datasets", paper)
    for row in printed_numbers(address):
        assert len(row.numbers) == len(table["columns"])
        assert row.preset in ("", *description_names())
        assert all(number is None or number > 0 for number in row.numbers)
    assert len(table["metrics"]) in (0, len(table["columns"]))
    assert {row["group"] for row in table["rows"]} <= {"paper", "quoted"}


@pytest.mark.parametrize("address", ["semantic/1", "semantic/2"])
def test_every_printed_f1_is_the_harmonic_mean_of_the_means(address):
    wrong = []
    for row in printed_numbers(address):
        for recall, precision, f1 in (row.numbers[:3], row.numbers[3:]):
            if abs(2 * recall * precision / (recall + precision) - f1) > 0.06:
                wrong.append((address, row.model, f1))
    assert wrong == ([("semantic/2", "CNN+WARP", 60.70)] if address == "semantic/2" else [])


def run(name, seed, f1, **settings):
    keys = {"seed": seed, "condition": "concepts", "inject": "state", "learns": ["apart", "joint"]} | settings
    metrics = dict.fromkeys(load_table("semantic/1")["metrics"], f1)
    results = {"images": 5, "path": metrics, "top_3": metrics | {"class_f1": 1.0}}
    return DescribedRun(name, "train_tagger", {"train_tagger": keys}, results, "catalog")


def test_own_runs_have_rows_of_their_own_with_means_over_seeds():
    printed, own = description_grids(
        "semantic/1", [run("workspace", 0, 50.0), run("a", 1, 60.0), run("b", 0, 10.0, condition="embedding")]
    )
    assert [row[1] for row in printed.rows] == ["paper"] * 10
    assert own.rows == [
        ["workspace path", "concepts, state, apart+joint", *["55.00"] * 6, "2", ""],
        [
            "workspace top_3",
            "concepts, state, apart+joint",
            "55.00",
            "55.00",
            "1.00",
            *["55.00"] * 3,
            "2",
            "",
        ],
        ["b path", "embedding, state, apart+joint", *["10.00"] * 6, "1", ""],
        ["b top_3", "embedding, state, apart+joint", "10.00", "10.00", "1.00", *["10.00"] * 3, "1", ""],
    ]


def test_without_own_runs_there_is_only_the_printed_table():
    assert len(description_grids("semantic/2", [])) == 1


CAPTIONERS = [each for each in description_names() if pipeline_of(each) == "captioning"]


@pytest.mark.parametrize("name", CAPTIONERS)
@pytest.mark.parametrize("following", ["paper", "code"])
def test_a_preset_of_captions_sets_everything_that_decides_what_is_trained(name, following):
    chosen = description_preset(name, "coco", following).overrides
    left = {
        key
        for key in PARAMS["train_captioner"]
        if not any(f"train_captioner.{key}" in each for each in chosen)
    }
    # Blocks of variants that are not chosen do not apply.
    assert left <= {"seed", "threads", "recognizers", "cells", "optimizers"}


def test_captioners_differ_in_what_their_names_say():
    def chosen(name, dataset="coco", following="paper"):
        found = description_preset(name, dataset, following).overrides
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
    assert (slides["units"], slides["clip_by"], slides["words"], slides["caption.beam"]) == (
        512, "element", "alphanumeric", 7,
    )  # fmt: skip
    assert (code["inject"], code["units"], code["optimizer"]) == ("every", 256, "rmsprop_inside")


def test_the_errata_of_the_tables_of_captions_follow_from_their_rows():
    server = {row.model: row.numbers for row in printed_numbers("semantic/3")}
    ours = server.pop("Ours")
    columns = load_table("semantic/3")["columns"]
    ahead = [
        (model, column)
        for model, numbers in server.items()
        for column, one, other in zip(columns, ours, numbers, strict=True)
        if other >= one
    ]
    assert ahead == [("NICv2", "M c40")]
    cider = {row.model: row.numbers[0] for row in printed_numbers("semantic/4")}
    assert cider["Ours"] - cider["NIC-F"] == pytest.approx(0.122)
    assert cider["NIC-deeply"] - cider["NIC-F"] == pytest.approx(0.074)


def test_own_captioners_are_shown_beside_their_floors_with_gaps_where_nothing_was_computed():
    scores = {"BLEU-1": 0.6, "BLEU-2": 0.4, "BLEU-3": 0.3, "BLEU-4": 0.2, "ROUGE-L": 0.4, "CIDEr-D": 0.5}
    results = {"captioner": scores, "consensus": scores | {"METEOR": 0.17}, "images": 5, "collapsed": False}
    keys = {"seed": 0, "condition": "concepts", "learns": ["joint"]}
    own = DescribedRun("workspace", "train_captioner", {"train_captioner": keys}, results, "catalog")
    rows = description_grids("semantic/4", [own])[1].rows
    assert [row[0] for row in rows] == ["workspace captioner", "workspace consensus"]
    assert [row[2:6] for row in rows] == [
        ["0.500", "-", "0.400", "0.200"],
        ["0.500", "0.170", "0.400", "0.200"],
    ]
    server = description_grids("semantic/3", [own])[1].rows[0]
    assert server[2:6] == ["0.600", "-", "0.400", "-"]
