import json
from pathlib import Path

import pytest

from fne.core.effective_settings import put
from fne.evaluation.baseline import Floor
from fne.experiments.presets import load, preset
from fne.experiments.printed_tables import rows
from fne.experiments.runs import split_digests
from fne.report.result_rows import SECTION_ARTIFACTS, PaperRow, find_paper_row, results_table
from fne.store.artifact import Artifact
from fne.store.catalog import Captioned
from fne.store.checksums import seal_metrics
from tests.support.report import read_run, write_run

FIVE = ("a", "b", "c", "d", "e")
CATALOG = [
    Captioned(f"{split}-{number}", split, FIVE, ())
    for split, images in {"train": 6000, "val": 1000, "test": 1000}.items()
    for number in range(images)
]
CAFFE = "ca" * 32
NUMBERS = {"R@1": 20.0, "R@5": 45.0, "R@10": 60.0, "median_rank": 6.0, "mean_rank": 30.0}


@pytest.fixture(autouse=True)
def _caffe_weights_are_listed(monkeypatch):
    monkeypatch.setitem(load("weights"), "sha256", [CAFFE])
    digests = split_digests(CATALOG)
    monkeypatch.setitem(
        load("datasets")["flickr8k"], "ids", {split: digests[split] for split in ("val", "test")}
    )


def rows_of(folder, paper_row=None, **choices):
    write_run(folder, **choices)
    return {row.name: row for row in results_table(read_run(folder), paper_row)}


def metrics(name="test_full", images=1000):
    found = {"image_to_text": NUMBERS, "text_to_image": NUMBERS, "images": images, "captions": 5 * images}
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


def test_every_metric_has_its_interval(tmp_path):
    rows = rows_of(tmp_path)
    intervals = json.loads((tmp_path / "intervals.json").read_text())["test_full"]
    low, high = intervals["text_to_image"]["R@5"].values()
    assert rows["R@5"].cells[1].interval == f"{low:.1f} to {high:.1f} %"
    assert rows["R@5"].cells[1].meter.interval == (low, high)
    low, high = intervals["rsum"].values()
    assert [cell.interval for cell in rows["rsum"].cells] == [f"{low:.1f} to {high:.1f}"]


@pytest.mark.parametrize("recalls", [(1,), (2, 3, 4, 50)])
def test_there_is_a_row_for_each_k(tmp_path, recalls):
    rows = rows_of(tmp_path, recalls=recalls)
    assert list(rows) == [*(f"R@{k}" for k in recalls), "Median rank", "Mean rank", "rsum"]


def test_guessing_reaches_100_percent_where_k_covers_the_pool(tmp_path):
    assert [cell.chance for cell in rows_of(tmp_path)["R@10"].cells] == ["100.0 %", "100.0 %"]


def test_rsum_by_guessing_is_the_sum_of_the_recalls_by_guessing(tmp_path):
    rows = rows_of(tmp_path)
    guessed = [float(cell.chance.removesuffix(" %")) for k in (1, 5, 10) for cell in rows[f"R@{k}"].cells]
    assert float(rows["rsum"].cells[0].chance) == pytest.approx(sum(guessed), abs=0.3)


def test_printed_values_are_shown_and_missing_ones_are_left_empty(tmp_path):
    paper_row = PaperRow(
        "Table 2", [], {"image_to_text": {"R@1": 25.0, "median_rank": 5}, "text_to_image": {}}
    )
    rows = rows_of(tmp_path, paper_row)
    assert [cell.published for cell in rows["R@1"].cells] == ["25.0 %", ""]
    assert [cell.published for cell in rows["Median rank"].cells] == ["5", ""]


def test_in_a_protocol_with_folds_guessing_searches_a_single_fold(tmp_path):
    sentences = [(f"sentence {number}",) for number in range(20)]
    rows = rows_of(tmp_path, sentences=sentences, folds=4)
    assert [cell.chance for cell in rows["R@1"].cells] == ["20.0 %", "20.0 %"]
    assert [cell.chance for cell in rows["Mean rank"].cells] == ["3.0", "3.0"]


def test_a_run_of_an_experiment_of_the_paper_gets_the_printed_row():
    found = find_paper_row(metrics(), ranks_of("FNE-SH"), CATALOG)
    assert found.source == "FNE-SH in Table 2 (Results on Flickr8k), settings following the paper"
    assert found.figures == {
        "image_to_text": {"R@1": 25.0, "R@5": 50.8, "R@10": 64.3, "median_rank": 5},
        "text_to_image": {"R@1": 18.6, "R@5": 44.9, "R@10": 58.0, "median_rank": 7},
    }


def test_the_printed_row_has_its_notes():
    [row] = [row for row in rows("2") if row.model == "FC7-MH-bl"]
    assert find_paper_row(metrics(), ranks_of("FC7-MH-bl"), CATALOG).notes == row.notes != []


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


def test_a_run_with_other_weights_gets_no_row():
    ranks = ranks_of("FNE-SH")
    ranks.lineage["weights"]["digest"] = "0" * 64
    assert find_paper_row(metrics(), ranks, CATALOG) is None


def test_a_run_on_another_split_or_data_set_gets_no_row():
    assert find_paper_row(metrics("val_full"), ranks_of("FNE-SH"), CATALOG) is None
    assert find_paper_row(metrics(images=500), ranks_of("FNE-SH"), CATALOG) is None
    assert find_paper_row(metrics(), ranks_of("FNE-SH"), CATALOG[1:]) is None


def test_the_floor_is_shown_beside_rsum_and_a_model_below_it_is_marked(tmp_path):
    write_run(tmp_path)
    evaluation = read_run(tmp_path)
    high, low = (
        results_table(evaluation, None, Floor(rsum, rsum - 5, rsum + 5))[-1].cells[0].floor
        for rsum in (evaluation.rsum + 1, evaluation.rsum - 1)
    )
    assert high.endswith("; this model is below its floor")
    assert low.startswith(f"closed form with the same features {evaluation.rsum - 1:.1f} (")
    assert "below" not in low
    reason = results_table(evaluation, None, Floor(None, None, None, "too few images"))[-1].cells[0].floor
    assert reason == "no closed-form floor: too few images"
