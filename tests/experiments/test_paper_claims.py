from dataclasses import replace

import numpy as np
import pytest

from fne.experiments.paper_claims import claims_tables, groups_by_origin, own_difference, printed_difference
from fne.experiments.presets import load
from fne.experiments.tables import printed_rows
from tests.support.paper_runs import CAFFE, NUMBERS, ranks, run


@pytest.fixture
def caffe(monkeypatch):
    """Count the weights of the support's runs as Caffe's."""
    monkeypatch.setitem(load("weights", "fne"), "sha256", [CAFFE])


def mean_row(grid, dataset):
    return next(row for row in grid.rows if row[0] == dataset and row[1] == "mean")


def test_the_averages_of_the_full_network_over_fc7_are_those_of_the_printed_tables():
    grid = claims_tables([])[0]
    found = {name: mean_row(grid, name)[3:5] for name in ("Flickr8k", "Flickr30k", "MSCOCO")}
    assert found == {
        "Flickr8k": ["+3.46", "9 of 9"],
        "Flickr30k": ["+3.96", "9 of 9"],
        "MSCOCO": ["+3.69", "9 of 9"],
    }


@pytest.mark.parametrize("table", ["2", "3", "4"])
def test_a_printed_difference_is_the_mean_over_six_recalls(table):
    numbers = {row.model: row.numbers for row in printed_rows(table)}
    for model in ("SH", "POE"):
        total, better = 0.0, 0
        for position in (0, 1, 2, 4, 5, 6):
            difference = numbers[f"FNE-{model}"][position] - numbers[f"FC7-{model}"][position]
            total += difference
            better += difference > 0
        found = printed_difference(table, f"FC7-{model}", f"FNE-{model}")
        assert found == (pytest.approx(total / 6), better)


def test_the_curriculum_adds_less_on_coco_than_the_paper_says():
    gains = [printed_difference("4", f"{kind}-MOE", f"{kind}-POE")[0] for kind in ("FC7", "FNE")]
    assert [round(gain, 2) for gain in gains] == [1.42, 1.68]
    assert np.mean(gains) == pytest.approx(1.55)


def test_every_pair_of_a_claim_is_in_all_tables():
    for claim in load("claims")["claims"]:
        for table in ("2", "3", "4"):
            models = {row.model for row in printed_rows(table)}
            assert {model for pair in claim["pairs"] for model in pair} <= models


def test_without_runs_there_is_no_line_of_ours():
    assert {row[-1] for row in claims_tables([])[0].rows} == {"no runs", "0 of 9 pairs run"}
    assert [row[2] for row in claims_tables([])[-1].rows] == ["no runs"] * 6


def test_few_seeds_show_nothing(caffe):
    runs = [run(name, stored=ranks(seed=number)) for number, name in enumerate(("FC7-SH", "FNE-SH"))]
    row = next(row for row in claims_tables(runs)[0].rows if row[2] == "FNE-SH")
    assert row[7:] == ["1 and 1", "not shown"]
    assert row[5] != ""


def far_better(stored):
    """Ranks of a model that is always right."""
    stored.values["image_ranks"][:] = 1
    stored.values["caption_ranks"][:] = 1
    return stored


def test_a_clear_difference_with_enough_seeds_is_shown():
    side_a = [run("FC7-SH", seed=seed, stored=ranks(seed=seed, images=40)) for seed in range(5)]
    side_b = [run("FNE-SH", seed=seed, stored=far_better(ranks(seed=seed, images=40))) for seed in range(5)]
    found = own_difference(side_a, side_b)
    assert (found.verdict, found.seeds) == ("B is better", (5, 5))
    assert found.low > 0
    assert own_difference(side_b, side_a).verdict == "A is better"
    assert own_difference(side_a[:4], side_b).verdict == "not shown"


def test_an_interval_is_corrected_for_the_number_of_pairs_of_its_claim():
    side_a, side_b = (
        [run(name, seed=seed, stored=ranks(seed=start + seed, images=40)) for seed in range(5)]
        for name, start in (("FC7-SH", 0), ("FNE-SH", 5))
    )
    alone, among = own_difference(side_a, side_b), own_difference(side_a, side_b, pairs=20)
    assert among.difference == alone.difference
    assert among.low <= alone.low <= alone.high <= among.high
    assert among.high - among.low > alone.high - alone.low


def test_runs_on_other_test_images_are_not_compared():
    other = run("FNE-SH", stored=ranks(catalog="9" * 64))
    assert own_difference([run("FC7-SH")], [other]) is None


OTHER = "torchvision's IMAGENET1K_V1, Flickr8k, 1,000 test images"


def test_pairs_with_other_weights_have_lines_of_their_own():
    runs = [
        run(name, seed=seed, stored=ranks("d" * 64, "torchvision", seed=seed, images=40))
        for name in ("FC7-SH", "FNE-SH", "FC7-MH")
        for seed in range(5)
    ]
    grid = claims_tables(runs)[0]
    assert {row[-1] for row in grid.rows[:10]} == {"no runs", "0 of 9 pairs run"}
    pair, mean = [row for row in grid.rows if row[0] == OTHER]
    assert pair[1:5] == ["FC7-SH", "FNE-SH", "", ""]
    assert pair[5:6] + pair[7:] == ["+0.00", "5 and 5", "not shown"]
    assert mean[1:] == ["mean", "of pairs", "", "", "+0.00", "", "", "1 of 9 pairs run"]


def test_pairs_of_different_features_or_of_settings_for_different_data_sets_are_not_made():
    first, second = ranks("d" * 64, "torchvision"), ranks("d" * 64, "torchvision")
    second.artifact.lineage["activations"]["digest"] = "b" * 64
    for other in (run("FNE-SH", stored=second), run("FNE-SH", dataset="coco", stored=first)):
        grid = claims_tables([run("FC7-SH", stored=first), other])[0]
        assert [row for row in grid.rows if row[0] == OTHER] == []


def test_starts_of_runs_with_other_weights_are_counted_below():
    runs = [
        run("FNE-MOE-abs", seed=seed, started=seed == 0, stored=ranks("d" * 64, "random")) for seed in (0, 1)
    ]
    rows_of_starts = claims_tables(runs)[-1].rows
    assert ["FNE-MOE-abs, random weights, Flickr8k, 1,000 test images", "", "1 of 2, paper"] in rows_of_starts


def test_starts_of_our_runs_are_shown_beside_table_5(caffe):
    runs = [run("FNE-MOE-abs", seed=seed, started=seed > 0) for seed in range(3)]
    assert list(groups_by_origin(runs)[None]) == [("flickr8k", "paper", "FNE-MOE-abs")]
    rows_of_starts = {row[0]: row[1:] for row in claims_tables(runs)[-1].rows}
    assert rows_of_starts["FNE-MOE-abs"] == ["4 of 5", "2 of 3, paper"]


def test_the_gap_between_the_best_and_the_worst_method_is_recomputed_for_each_task():
    rows = [row for row in claims_tables([])[-2].rows if row[0] == "MSCOCO"]
    assert [row[1:5] for row in rows] == [
        ["annotation", "FNE-MH", "FNE-MOE", "2.07"],
        ["retrieval", "FNE-POE", "FNE-SH", "2.20"],
        ["mean", "", "", "2.13"],
    ]
    assert {row[-1] for row in rows} == {"no runs", ""}


def test_the_gap_of_our_runs_is_shown_once_all_methods_were_run(caffe):
    names = load("claims")["gap"]["models"]
    results = [replace(run().results[0], numbers=(20.0 + number, *NUMBERS[1:])) for number in range(6)]
    runs = [run(name, result=result) for name, result in zip(names, results, strict=True)]
    ours = [row[-3:] for row in claims_tables(runs)[-2].rows if row[0] == "Flickr8k"]
    assert ours[0] == ["FNE-POE", "FNE-SH", "1.67"]
    assert next(row[-1] for row in claims_tables(runs[:-1])[-2].rows if row[0] == "Flickr8k") == "no runs"
