from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fne.core.settings import put
from fne.experiments import comparable
from fne.experiments.presets import description_names, load, names, preset, split_address
from fne.experiments.runs import RECALL_POSITIONS, DescribedRun, Result, split_digests, sum_of_recalls
from fne.experiments.tables import (
    OTHERS,
    SECTION_ARTIFACTS,
    TIED,
    addresses,
    check_address,
    description_table,
    find_paper_row,
    group_by_experiment,
    is_described,
    list_of_tables,
    load_table,
    printed_rows,
    results_table,
    starts_table,
    table_title,
)
from fne.store.arrays import Arrays
from fne.store.artifact import Artifact
from fne.store.catalog import Captioned
from fne.store.checksums import seal_metrics
from tests.support.paper_runs import CAFFE, NUMBERS, ranks, run
from tests.support.refusals import refused

# The row with the numbers of a run that did not start to learn.
COLLAPSED = "FNE-MOE-bl"
DESCRIBED = [address for address in addresses() if is_described(address)]
FIVE = ("a", "b", "c", "d", "e")
CATALOG = [
    Captioned(f"{split}-{number}", split, FIVE, ())
    for split, images in {"train": 6000, "val": 1000, "test": 1000}.items()
    for number in range(images)
]
METRICS = {"R@1": 20.0, "R@5": 45.0, "R@10": 60.0, "median_rank": 6.0, "mean_rank": 30.0}


@pytest.fixture(autouse=True)
def _caffe_weights_are_listed(monkeypatch):
    listed = {"weights": {"backbone": "vgg16", "sha256": [CAFFE]}}
    monkeypatch.setattr(comparable, "load", lambda name, paper="fne": listed.get(name) or load(name, paper))


@pytest.fixture
def _known_splits(monkeypatch):
    """The catalog of these tests has the splits of Flickr8k."""
    digests = split_digests(CATALOG)
    monkeypatch.setitem(
        load("datasets")["flickr8k"], "ids", {split: digests[split] for split in ("val", "test")}
    )


def row(number: str, model: str):
    [found] = [each for each in printed_rows(number) if each.model == model]
    return found


def test_the_tables_have_as_many_rows_as_printed():
    assert [len(printed_rows(number)) for number in "234"] == [26, 32, 30]
    assert [sum(each.is_paper_method for each in printed_rows(number)) for number in "234"] == [20, 20, 20]
    assert (len(load_table("5")["rows"]), len(load("table1")["methods"])) == (6, 10)


@pytest.mark.parametrize("number", ["2", "3", "4"])
def test_names_are_unique_and_each_method_of_table_1_has_both_embeddings(number):
    names = [each.model for each in printed_rows(number)]
    assert len(set(names)) == len(names)
    expected = [f"{kind}-{method}" for method in load("table1")["methods"] for kind in ("FC7", "FNE")]
    assert sorted(each.model for each in printed_rows(number) if each.is_paper_method) == sorted(expected)


@pytest.mark.parametrize("number", ["2", "3", "4"])
def test_recalls_are_percentages_that_do_not_fall_with_k_and_ranks_are_integers(number):
    for each in printed_rows(number):
        assert len(each.numbers) == 8
        for half in (each.numbers[:4], each.numbers[4:]):
            recalls = [recall for recall in half[:3] if recall is not None]
            assert recalls == sorted(recalls)
            assert all(0 <= recall <= 100 for recall in recalls)
            assert half[3] is None or (isinstance(half[3], int) and half[3] >= 1)


@pytest.mark.parametrize("number", ["2", "3", "4"])
def test_annotation_is_easier_than_retrieval_except_where_a_footnote_says_swapped(number):
    """Five true captions are found more easily than one true image; FV's halves are swapped in print."""
    swapped = load(f"table{number}")["errata"]["swapped"]
    complete = [
        each for each in printed_rows(number) if each.numbers[0] is not None and each.numbers[4] is not None
    ]
    wrong_way = [each for each in complete if each.numbers[0] < each.numbers[4]]
    assert [each.model for each in wrong_way] == ["FV"]
    assert swapped in wrong_way[0].notes


@pytest.mark.parametrize("number", ["2", "3", "4"])
def test_fne_is_above_fc7_in_every_recall_but_for_the_footnoted_rows(number):
    for each in printed_rows(number):
        if not each.model.startswith("FNE-"):
            continue
        base = row(number, each.model.replace("FNE-", "FC7-"))
        worse = [place for place in RECALL_POSITIONS if each.numbers[place] <= base.numbers[place]]
        if each.model == COLLAPSED:
            assert len(worse) == 6
            assert load(f"table{number}")["errata"]["collapsed"] in each.notes
        elif worse:
            assert (number, each.model, worse) == ("3", "FNE-SH-bl", [0])
            assert load("table3")["errata"]["tie"] in each.notes


def test_fne_ph_equals_fne_sh_on_coco_and_a_footnote_says_so():
    assert row("4", "FNE-PH").numbers == row("4", "FNE-SH").numbers
    assert row("4", "FNE-PH").notes == row("4", "FNE-SH").notes == [load("table4")["errata"]["same"]]


@pytest.mark.parametrize(
    ("number", "model", "numbers"),
    [
        ("2", "FNE-MH", (27.3, 56.8, 69.3, 4, 21.2, 47.1, 59.7, 6)),
        ("2", "FNE-MOE-bl", (0.1, 0.3, 0.3, 2476, 0.1, 0.6, 1.0, 499)),
        ("2", "2WayNet", (43.4, 63.2, None, None, 29.3, 49.7, None, None)),
        ("3", "DAN (ResNet)", (55.0, 81.8, 89.0, 1, 39.4, 69.2, 79.1, 2)),
        ("3", "VSE++(1C)", (31.9, None, 68.0, 4, 23.1, None, 60.7, 6)),
        ("3", "FNE-POE", (37.2, 67.1, 77.9, 2, 28.1, 57.8, 69.1, 4)),
        ("4", "Order++", (53.0, None, 91.9, 1, 42.3, None, 88.1, 2)),
        ("4", "FC7-POE", (45.6, 75.9, 86.6, 2, 35.2, 69.7, 83.1, 2)),
        ("dual-path/flickr30k", "Ours (ResNet-50) Stage I", (41.2, 69.7, 78.9, 2, 28.6, 56.2, 67.8, 4)),
        ("dual-path/4", "Only instance loss, Stage I", (39.9, None, 79.1, None, 28.2, None, 67.9, None)),
        ("dual-path/coco", "Ours (VGG-19) Stage I, 5K", (24.5, 50.1, 62.1, 5, 16.5, 39.1, 51.8, 10)),
        ("two-branch/1", "VGG19 K=1", (19.6, 43.0, 56.2, None, 15.3, 36.7, 48.7, None)),
        ("two-branch/2", "ResNet50 K=10", (5.6, 19.4, 30.1, None, 6.1, 19.3, 30.9, None)),
    ],
)
def test_some_cells_are_as_printed(number, model, numbers):
    assert row(number, model).numbers == numbers
    assert row("dual-path/5", "3,000 categories (Stage I)").numbers[::4] == (38.0, 26.1)


def test_the_sum_of_recalls_is_that_of_all_six_or_none():
    assert sum_of_recalls(row("2", "FNE-MH").numbers) == pytest.approx(281.4)
    assert sum_of_recalls(row("2", "FV").numbers) == pytest.approx(300.0)
    assert sum_of_recalls(row("2", "2WayNet").numbers) is None


def test_table_5_is_as_printed():
    assert [(each["model"], each["started"], each["runs"]) for each in load_table("5")["rows"]] == [
        ("FC7-MOE-bl", 5, 5),
        ("FC7-MOE-bl-abs", 0, 5),
        ("FC7-MOE-abs", 0, 5),
        ("FNE-MOE-bl", 0, 5),
        ("FNE-MOE-bl-abs", 0, 5),
        ("FNE-MOE-abs", 4, 5),
    ]


def test_every_footnote_is_used():
    for number in "234":
        table = load(f"table{number}")
        used = {note for each in printed_rows(number) for note in each.notes}
        assert used == {*table["notes"].values(), *table["errata"].values()}


def test_tables_of_other_papers_are_addressed_with_the_paper():
    of_semantic = [f"semantic/{number}" for number in "1234"]
    assert addresses() == ["2", "3", "4", "5", *OF_DUAL_PATH, *OF_TWO_BRANCH, *of_semantic]
    assert table_title("dual-path/coco") == (
        "dual-path, Table coco: Results on MSCOCO, 1,000 and 5,000 test images"
    )
    assert table_title("two-branch/1") == "two-branch, Table 1: Results on Flickr30K"
    with refused("there is no table 'two-branch/6' (did you mean 'two-branch/2'?); see `fne table --list`"):
        check_address("two-branch/6")


OF_TWO_BRANCH = ["two-branch/1", "two-branch/2"]
OF_DUAL_PATH = ["dual-path/4", "dual-path/5", "dual-path/coco", "dual-path/flickr30k"]


@pytest.mark.parametrize("address", [*OF_TWO_BRANCH, *OF_DUAL_PATH])
def test_recalls_of_other_papers_do_not_fall_and_their_rows_have_presets(address):
    for each in printed_rows(address):
        for half in (each.numbers[:3], each.numbers[4:7]):
            recalls = [number for number in half if number is not None]
            assert recalls == sorted(recalls), each.model
        assert (each.method in names()) == each.is_paper_method or address in OF_TWO_BRANCH


@pytest.mark.parametrize("address", OF_TWO_BRANCH)
def test_rows_of_the_two_branch_tables_have_all_recalls_and_no_median(address):
    found = printed_rows(address)
    assert [each.method for each in found if each.is_paper_method] == [
        "two-branch/VGG19-K1", "two-branch/ResNet50-K1", "two-branch/VGG19-K10", "two-branch/ResNet50-K10",
    ]  # fmt: skip
    assert {each.numbers[3] for each in found} == {each.numbers[7] for each in found} == {None}
    assert all(sum_of_recalls(each.numbers) is not None for each in found)


def scored(value: float) -> Result:
    return Result("test", "full", (value, *NUMBERS[1:]), 1000, 5000, 3.2)


def of_model(grid, model):
    return [row for row in grid.rows if row[0] == model]


def test_without_runs_the_table_is_as_printed():
    [grid] = results_table("2", [])
    assert len(grid.rows) == 26
    printed = "25.0 50.8 64.3 5 18.6 44.9 58.0 7 261.6 3.2"
    assert of_model(grid, "FNE-SH") == [["FNE-SH", "paper", *printed.split(), "", "", ""]]
    assert of_model(grid, "FV")[0][-1] == "[1]"
    assert grid.notes[0].startswith("The two halves of this row are swapped")


def test_the_better_one_of_a_pair_is_underlined_and_the_best_method_is_bold():
    grid = results_table("2", [])[0]
    place = {row[0]: number for number, row in enumerate(grid.rows)}
    first = 2  # the column of recall at 1
    assert (place["FNE-MH"], first) in grid.bold & grid.underlined
    assert (place["2WayNet"], first) in grid.bold
    assert (place["FC7-MOE-bl"], first) in grid.underlined - grid.bold
    assert (place["FC7-MH"], first) not in grid.bold | grid.underlined
    assert {(place[name], first + 3) for name in ("FNE-MH", "FNE-MOE", "FNE-PH")} <= grid.bold
    assert not results_table("two-branch/1", [])[0].bold


def test_our_seeds_are_below_the_printed_row_with_spread_and_difference():
    runs = [run(seed=0, result=scored(26.0)), run(seed=1, result=scored(28.0))]
    [grid] = results_table("2", runs)
    assert of_model(grid, "FNE-SH")[1:] == [
        ["FNE-SH", "ours, paper", "27.0", "50.8", "64.3", "5.0", "18.6", "44.9", "58.0", "7.0", "263.6", "3.2", "-", "2", "[3][4]"],
        ["FNE-SH", "spread", "1.4", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "1.4", "", "", "", ""],
        ["FNE-SH", "difference", "+2.0", "+0.0", "+0.0", "+0.0", "+0.0", "+0.0", "+0.0", "+0.0", "+2.0", "", "", "", ""],
    ]  # fmt: skip


def test_runs_following_the_paper_and_the_code_have_separate_rows():
    [grid] = results_table("2", [run(), run(following="code")])
    assert [row[1] for row in of_model(grid, "FNE-SH")] == [
        "paper", "ours, paper", "difference", "ours, code", "difference",
    ]  # fmt: skip


def test_a_run_belongs_to_the_rows_of_all_methods_that_have_its_settings():
    """On Flickr8k, the authors' launcher of FC7-SOE-bl makes it the same as FC7-SOE."""
    [grid] = results_table("2", [run("FC7-SOE", following="code")])
    for model in ("FC7-SOE", "FC7-SOE-bl"):
        assert [row[1] for row in of_model(grid, model)] == ["paper", "ours, code", "difference"]


def test_a_run_with_other_weights_is_listed_in_the_second_table():
    grids = results_table("2", [run(stored=ranks("d", "torchvision"))])
    assert len(of_model(grids[0], "FNE-SH")) == 1
    assert grids[1].title == OTHERS
    assert [row[0] for row in grids[1].rows] == [
        "FNE-SH, torchvision's IMAGENET1K_V1, Flickr8k, 1,000 test images"
    ]


def test_a_method_without_a_printed_row_is_listed_in_the_second_table():
    for name in ("VSE++", "FNE-MOE-abs"):
        assert results_table("2", [run(name)])[1].rows[0][0].startswith(name)


def test_a_run_on_another_data_set_of_the_paper_is_only_in_the_table_of_that_data_set():
    flickr30k = {"train": (29000, 145000), "val": (1014, 5070), "test": (1000, 5000, 3.2)}
    runs = [run(dataset="flickr30k", counts=flickr30k)]
    assert len(results_table("2", runs)) == 1
    # FNE-SH has the same settings for Flickr8k and Flickr30k.
    assert len(of_model(results_table("3", runs)[0], "FNE-SH")) == 3


def test_the_same_seed_counts_once():
    assert [
        len(group)
        for group in group_by_experiment([run(seed=0), run(seed=0), run(seed=1), run(seed=0, batch=64)])
    ] == [2, 1]


def test_a_run_whose_ranks_are_missing_does_not_represent_its_group():
    missing, present = replace(run(seed=0), ranks=None, counts=None), run(seed=1)
    assert group_by_experiment([missing, present]) == [[present, missing]]
    assert [row[1] for row in of_model(results_table("2", [missing, present])[0], "FNE-SH")] == [
        "paper", "ours, paper", "difference",
    ]  # fmt: skip


def test_table_5_shows_how_many_runs_started_below_the_printed_numbers():
    runs = [run("FNE-MOE-abs", seed=seed, started=seed > 1) for seed in range(5)]
    [grid] = starts_table(runs, "flickr8k")
    assert of_model(grid, "FNE-MOE-abs") == [
        ["FNE-MOE-abs", "paper", "0.0001", "0.05", "yes", "4", "5", "[1]"],
        ["FNE-MOE-abs", "ours, paper", "0.0001", "0.05", "yes", "3", "5", ""],
    ]


def test_runs_of_table_5_on_the_demo_are_listed_in_the_second_table():
    demo = {"train": (12, 60), "val": (4, 20), "test": (6, 30)}
    small = Result("test", "full", NUMBERS, 6, 30, 368.5)
    runs = [
        run("FC7-MOE-bl", "demo", seed=seed, root="data/demo", counts=demo, result=small, started=started)
        for seed, started in enumerate([True, False, None])
    ]
    grids = starts_table(runs, "demo")
    assert len(grids[0].rows) == 6
    assert grids[1].rows == [
        ["FC7-MOE-bl, weights vgg.pth cccccccc…, demo, 6 test images", "ours, paper", "0.0002", "0.2", "no", "1", "2", ""]
    ]  # fmt: skip


def test_the_legend_says_so_where_a_data_set_is_recognized_by_counts():
    said = "Flickr30k is recognized by its numbers of images: the lists of its splits are not known"
    assert results_table("3", [])[0].legend.endswith(said)
    assert not any("recognized" in results_table(each, [])[0].legend for each in ("2", "two-branch/1"))


def test_the_table_of_another_paper_has_its_printed_rows():
    [grid] = results_table("two-branch/1", [])
    assert grid.title == "two-branch, Table 1: Results on Flickr30K"
    assert [row[1] for row in grid.rows] == ["paper"] * 6
    assert of_model(grid, "VGG19 K=1")[0][2:11] == [
        "19.6", "43.0", "56.2", "-", "15.3", "36.7", "48.7", "-", "219.5",
    ]  # fmt: skip


@pytest.mark.parametrize("address", ["dual-path/coco", "dual-path/5"])
def test_a_table_that_nobody_can_fill_says_why(address):
    [grid] = results_table(address, [])
    assert grid.legend.endswith(
        "no run can stand in a row of this table: the paper's split is a random permutation that cannot be drawn "
        "outside MATLAB"
    )
    assert all(row[-1] for row in grid.rows if row[0].startswith(("Ours", "Instances", "3,000", "10,000")))
    assert any("cannot be drawn outside MATLAB" in note for note in grid.notes)


def test_rows_of_the_unpublished_text_network_say_so():
    [grid] = results_table("dual-path/flickr30k", [])
    notes = {row[0]: row[-1] for row in grid.rows}
    [unpublished] = [number for number, note in enumerate(grid.notes, 1) if "was never published" in note]
    assert notes["Ours (ResNet-152) Stage I"] == f"[{unpublished}]"
    assert notes["Ours (ResNet-152) Stage II"] == f"[{unpublished}]"
    assert notes["Ours (ResNet-50) Stage II"] == ""


def test_the_list_of_tables_has_every_address_and_how_many_rows_can_be_run():
    [grid] = list_of_tables()
    assert [(row[0], *row[3:]) for row in grid.rows] == [
        ("2", "26", "20"),
        ("3", "32", "20"),
        ("4", "30", "20"),
        ("5", "6", "6"),
        ("dual-path/4", "6", "6"),
        ("dual-path/5", "3", "0"),
        ("dual-path/coco", "22", "0"),
        ("dual-path/flickr30k", "23", "4"),
        ("two-branch/1", "6", "4"),
        ("two-branch/2", "6", "4"),
        ("semantic/1", "10", "8"),
        ("semantic/2", "7", "7"),
        ("semantic/3", "6", "2"),
        ("semantic/4", "3", "3"),
    ]


@pytest.mark.parametrize("address", DESCRIBED)
def test_every_table_has_complete_rows_and_existing_presets(address):
    table, (paper, _) = load_table(address), split_address(address)
    assert table["dataset"] in load("datasets", paper)
    for row in printed_rows(address):
        assert len(row.numbers) == len(table["columns"])
        assert not row.is_paper_method or row.method in description_names()
        assert all(number is None or number > 0 for number in row.numbers)
    assert len(table["metrics"]) in (0, len(table["columns"]))
    assert {row["group"] for row in table["rows"]} <= {"paper", "quoted"}


@pytest.mark.parametrize("address", ["semantic/1", "semantic/2"])
def test_every_printed_f1_is_the_harmonic_mean_of_the_means(address):
    wrong = []
    for row in printed_rows(address):
        for recall, precision, f1 in (row.numbers[:3], row.numbers[3:]):
            if abs(2 * recall * precision / (recall + precision) - f1) > 0.06:
                wrong.append((address, row.model, f1))
    assert wrong == ([("semantic/2", "CNN+WARP", 60.70)] if address == "semantic/2" else [])


def described(name, seed, f1, **settings):
    keys = {
        "seed": seed,
        "condition": "concepts",
        "inject": "state",
        "learns": ["separately", "jointly"],
    } | settings
    metrics = dict.fromkeys(load_table("semantic/1")["metrics"], f1)
    results = {"images": 5, "path": metrics, "top_3": metrics | {"class_f1": 1.0}}
    return DescribedRun(name, "train_tagger", {"train_tagger": keys}, results, "catalog")


def test_own_runs_have_rows_of_their_own_with_means_over_seeds():
    runs = [described("workspace", 0, 50.0), described("a", 1, 60.0)]
    printed, own = description_table("semantic/1", [*runs, described("b", 0, 10.0, condition="embedding")])
    assert [row[1] for row in printed.rows] == ["paper"] * 10
    expected = []
    for name, condition, f1, seeds in (
        ("workspace", "concepts", "55.00", "2"),
        ("b", "embedding", "10.00", "1"),
    ):
        system, rest = f"{condition}, state, separately+jointly", [f1] * 3
        expected.append([f"{name} path", system, *[f1] * 6, seeds, ""])
        expected.append([f"{name} top_3", system, f1, f1, "1.00", *rest, seeds, ""])
    assert own.rows == expected


def test_a_run_with_a_tuned_network_is_no_seed_of_the_run_before_and_says_so():
    runs = [described("a", 0, 50.0), described("a:tuned", 0, 60.0)]
    runs[1].settings["tune_tagger"] = {"epochs": 5}
    rows = description_table("semantic/1", runs)[1].rows
    assert [(row[0], row[1].rpartition(", ")[2]) for row in rows] == [
        ("a path", "separately+jointly"),
        ("a top_3", "separately+jointly"),
        ("a:tuned path", "network fine-tuned"),
        ("a:tuned top_3", "network fine-tuned"),
    ]


def test_without_own_runs_there_is_only_the_printed_table():
    assert len(description_table("semantic/2", [])) == 1


def test_the_errata_of_the_tables_of_captions_follow_from_their_rows():
    server = {row.model: row.numbers for row in printed_rows("semantic/3")}
    ours = server.pop("Ours")
    columns = load_table("semantic/3")["columns"]
    ahead = [
        (model, column)
        for model, numbers in server.items()
        for column, one, other in zip(columns, ours, numbers, strict=True)
        if other >= one
    ]
    assert ahead == [("NICv2", "M c40")]
    cider = {row.model: row.numbers[0] for row in printed_rows("semantic/4")}
    assert cider["Ours"] - cider["NIC-F"] == pytest.approx(0.122)
    assert cider["NIC-deeply"] - cider["NIC-F"] == pytest.approx(0.074)


def test_own_captioners_are_shown_beside_their_baselines_with_gaps_where_nothing_was_computed():
    scores = {"BLEU-1": 0.6, "BLEU-2": 0.4, "BLEU-3": 0.3, "BLEU-4": 0.2, "ROUGE-L": 0.4, "CIDEr-D": 0.5}
    results = {"captioner": scores, "consensus": scores | {"METEOR": 0.17}, "images": 5, "collapsed": False}
    keys = {"seed": 0, "condition": "concepts", "learns": ["jointly"]}
    own = DescribedRun("workspace", "train_captioner", {"train_captioner": keys}, results, "catalog")
    rows = description_table("semantic/4", [own])[1].rows
    assert [row[0] for row in rows] == ["workspace captioner", "workspace consensus"]
    assert [row[2:6] for row in rows] == [
        ["0.500", "-", "0.400", "0.200"],
        ["0.500", "0.170", "0.400", "0.200"],
    ]
    server = description_table("semantic/3", [own])[1].rows[0]
    assert server[2:6] == ["0.600", "-", "0.400", "-"]


def metrics(name="test_full", images=1000):
    found = {"image_to_text": METRICS, "text_to_image": METRICS, "images": images, "captions": 5 * images}
    found["chance"] = 3.2
    return seal_metrics({name: found}).encode()


def ranks_of(method, **changes):
    """Return the ranks of a run of a method on Flickr8k; `changes` are settings per artifact."""
    lineage = {name: {"digest": "x", "settings": {}} for name in SECTION_ARTIFACTS.values()}
    for key, value in preset(method, "flickr8k").overrides.items():
        section, name = key.split(".", 1)
        if section not in SECTION_ARTIFACTS:
            continue
        put(lineage[SECTION_ARTIFACTS[section]]["settings"], name, value)
    images = {"backbone": "vgg16", "activations": "post_relu", "resize": "squash", "crops": "ten"}
    images |= {"views": "mean", "layers": "all"}
    lineage["activations"] = {"digest": "x", "settings": images | {"precision": "float32", "extractor": 1}}
    lineage["weights"] = {"digest": CAFFE, "settings": {"kind": "file"}}
    for name, settings in changes.items():
        lineage[name]["settings"] |= settings
    return Artifact(Path("ranks.h5"), "ranks", "x", {}, lineage)


@pytest.mark.usefixtures("_known_splits")
def test_a_run_of_an_experiment_of_the_paper_gets_the_printed_row():
    found = find_paper_row(metrics(), ranks_of("FNE-SH"), CATALOG)
    assert found.source == "FNE-SH in Table 2 (Results on Flickr8k), settings following the paper"
    assert found.figures == {
        "image_to_text": {"R@1": 25.0, "R@5": 50.8, "R@10": 64.3, "median_rank": 5},
        "text_to_image": {"R@1": 18.6, "R@5": 44.9, "R@10": 58.0, "median_rank": 7},
    }


@pytest.mark.usefixtures("_known_splits")
def test_the_printed_row_has_its_notes():
    [row] = [row for row in printed_rows("2") if row.model == "FC7-MH-bl"]
    assert find_paper_row(metrics(), ranks_of("FC7-MH-bl"), CATALOG).notes == row.notes != []


@pytest.mark.usefixtures("_known_splits")
@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"margin": 0.17}},
        {"embeddings": {"low": -0.3}},
        {"tokens": {"min_count": 2}},
        {"activations": {"crops": "center"}},
    ],
)
def test_a_run_with_other_settings_gets_no_row(changes):
    assert find_paper_row(metrics(), ranks_of("FNE-SH", **changes), CATALOG) is None


@pytest.mark.usefixtures("_known_splits")
def test_a_run_with_other_weights_or_on_another_split_or_data_set_gets_no_row():
    other = ranks_of("FNE-SH")
    other.lineage["weights"]["digest"] = "0" * 64
    assert find_paper_row(metrics(), other, CATALOG) is None
    assert find_paper_row(metrics("val_full"), ranks_of("FNE-SH"), CATALOG) is None
    assert find_paper_row(metrics(images=500), ranks_of("FNE-SH"), CATALOG) is None
    assert find_paper_row(metrics(), ranks_of("FNE-SH"), CATALOG[1:]) is None


def test_own_runs_that_the_test_images_do_not_separate_have_a_common_letter():
    same = ranks("d", "torchvision", images=40)
    values = {name: np.full_like(same[name], 500) for name in ("image_ranks", "caption_ranks")}
    worse = Arrays(same.artifact, same.values | values)
    runs = [run(name, stored=each) for name, each in (("FNE-SH", same), ("FNE-MH", same), ("FNE-SOE", worse))]
    grids = results_table("2", runs)
    assert grids[1].legend == TIED
    marks = [row[-1] for row in grids[1].rows]
    assert sorted("tie a" in each for each in marks) == [False, True, True]
