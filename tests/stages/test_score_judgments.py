import csv
from pathlib import Path

import pytest
from click.testing import CliRunner

from fne.cli import main as cli
from fne.store.catalog import write_images
from fne.store.checksums import parse_metrics, write_metrics
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.stages import IDS, refusal

METRICS, PAIRS = Path("metrics/judgments.json"), Path("metrics/judged_pairs.csv")
PAGE = Path("report/judgments.html")
SCORED = ("standardize", "embed", "tokenize", "train", "encode", "evaluate", "baseline")
TEST = IDS[16:]


@pytest.fixture
def judged(run):
    """Run the stages before, with grades for pairs of the four test images, and one of a training image."""
    Path("pipelines/judgments").mkdir(parents=True)
    (Path("pipelines/judgments") / "params.yaml").write_bytes(
        (ROOT / "pipelines/judgments/params.yaml").read_bytes()
    )
    rows = [f"{a}\t{b}#0\t{1 + 3 * (a == b)}\t{2 + (a > b)}\t1" for a in TEST for b in TEST]
    write_images(Path("data/images.jsonl"), [])  # without image files, pairs are shown by their names
    Path("data/demo_judgments.txt").write_text("\n".join([*rows, f"{IDS[0]}\t{TEST[0]}#0\t1\t1\t1"]) + "\n")
    assert run(*SCORED).exit_code == 0
    return run


def test_figures_intervals_pairs_and_a_page_are_written_with_the_same_bytes_each_time(judged):
    result = judged("score_judgments", "judgments_page")
    assert result.exit_code == 0, result.output
    found = parse_metrics(METRICS.read_bytes())["test_full"]
    assert (found["pairs"], found["images"], found["left_out"], found["own_captions"]) == (16, 4, 1, 4)
    for side in ("model", "baseline", "difference"):
        spearman = found[side]["all"]["spearman"]
        assert spearman["low"] <= spearman["value"] <= spearman["high"]
    rows = list(csv.DictReader(PAIRS.read_text().splitlines()))
    assert len(rows) == 17
    assert rows[-1]["left_out"] == "image is in train"
    assert all(row["model"] and row["baseline"] for row in rows[:-1])
    listed = CliRunner().invoke(cli, ["inspect", str(METRICS)])
    assert listed.exit_code == 0, listed.output
    first, titles, *figures = listed.output.splitlines()
    assert first.startswith(f"{METRICS}: test_full, 16 pairs judged by experts, 1 left out")
    assert titles.split() == ["model", "closed-form", "baseline", "difference", "judges"]
    assert figures[0].startswith("  all pairs, Spearman")
    assert figures[0].endswith(f"{found['judges']['spearman']:.3f}")
    text = PAGE.read_text()
    assert "Does the model agree with people?" in text
    assert "1 judgments are not about the scored images" in text
    first = [path.read_bytes() for path in (METRICS, PAIRS, PAGE)]
    judged("score_judgments", "judgments_page")
    assert [path.read_bytes() for path in (METRICS, PAIRS, PAGE)] == first


def test_judgments_of_another_split_name_the_key(judged):
    change_params(Path(), {"evaluate": {"split": "val"}})
    assert "is in split 'val', which is scored; 16 are in 'test'; set evaluate.split to test" in refusal(
        "score_judgments"
    )


def test_figures_of_another_model_are_refused_with_both_digests(judged):
    judged("score_judgments")
    content = parse_metrics(METRICS.read_bytes())
    content["made_from"]["model"] = "f" * 64
    write_metrics(METRICS, content)
    found = refusal("judgments_page")
    assert found.startswith(f"{METRICS} was made from model ffffffffffff…, but the evaluation from ")
    assert found.endswith("; run `dvc repro pipelines/judgments/dvc.yaml`")


def test_figures_with_other_keys_are_refused_with_the_stage_that_makes_them(judged):
    judged("score_judgments")
    write_metrics(METRICS, {"test_full": {"pairs": 16}})
    result = CliRunner().invoke(cli, ["inspect", str(METRICS)])
    assert result.exit_code == 2
    assert f"{METRICS}: damaged" in result.output
    assert "dvc repro pipelines/judgments/dvc.yaml" in result.output


@pytest.mark.parametrize(
    "damage", [lambda text: text.replace("image,", "photo,"), lambda text: text.replace("0.", "x", 1)]
)
def test_a_damaged_table_of_pairs_is_refused(judged, damage):
    judged("score_judgments")
    PAIRS.write_text(damage(PAIRS.read_text()))
    assert f"{PAIRS}: damaged" in refusal("judgments_page")


def test_too_few_training_images_leave_a_page_without_a_baseline(judged, monkeypatch):
    from fne.matching.second_moments import AlignmentError

    def refuse(*arguments):
        raise AlignmentError("the training split has few images")

    monkeypatch.setattr("fne.matching.closed_form_vectors.align_pairs", refuse)
    result = judged("score_judgments", "judgments_page")
    assert result.exit_code == 0, result.output
    assert "baseline" not in parse_metrics(METRICS.read_bytes())["test_full"]
    assert "closed-form baseline (few images)" not in PAGE.read_text()
