import math
import os
from pathlib import Path

import pytest
from dvclive.live import Live

from fne.core.errors import InputError
from fne.report.sources import mean_recall, read_history, read_tables
from fne.store.checksums import parse_metrics, write_metrics
from tests.support.refusals import refused
from tests.support.report import FULL, read_run, write_history, write_run


@pytest.mark.parametrize("folds", [1, 4])
def test_recalls_at_any_k_agree_with_the_metrics(tmp_path, folds):
    write_run(tmp_path, sentences=[(f"a {number}", f"b {number}") for number in range(20)], folds=folds)
    evaluation = read_run(tmp_path)
    for direction in (evaluation.image_to_text, evaluation.text_to_image):
        expected = direction.recalls | {direction.pool: 100}
        found = {k: mean_recall([direction.ranks], direction.folds, k) for k in expected}
        assert found == pytest.approx(expected)


def test_a_query_searches_only_its_own_fold(tmp_path):
    write_run(tmp_path, sentences=[(f"a {number}", f"b {number}") for number in range(20)], folds=4, top=5)
    evaluation = read_run(tmp_path)
    assert (evaluation.image_to_text.pool, evaluation.text_to_image.pool) == (10, 5)
    for direction in (evaluation.image_to_text, evaluation.text_to_image):
        assert (direction.pool_folds[direction.best] == direction.folds[:, None]).all()
    write_run(tmp_path, sentences=[("one",), ("two", "three", "four"), ("five", "six")])
    evaluation = read_run(tmp_path)
    assert evaluation.image_to_text.true_counts.tolist() == [1, 3, 2]
    assert evaluation.text_to_image.answers.tolist() == [0, 1, 1, 1, 2, 2]


def test_a_history_that_dvclive_wrote_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # outside of a Git repository, which dvclive would examine
    with Live(dir=str(tmp_path), save_dvc_exp=False, dvcyaml=None, report=None) as live:
        for loss, rsum in [(3.0, 100.0), (2.0, 300.0), (1.0, 200.0)]:
            live.log_metric("train/loss", loss)
            live.log_metric("val/rsum", rsum)
            live.next_step()
    history = read_tables(tmp_path)
    assert history.series["train/loss"] == {1: 3.0, 2: 2.0, 3: 1.0}
    assert history.best == 2


def test_a_phase_spans_the_epochs_logged_with_its_number(tmp_path):
    write_history(tmp_path, {"train/phase": [1, 1, 2, 2, 3]})
    assert read_tables(tmp_path / "history").phase_spans == {1: (1, 2), 2: (3, 4), 3: (5, 5)}


def test_loss_and_rsum_are_drawn_first_and_the_phase_is_not_a_curve(tmp_path):
    names = ["val/rsum", "train/phase", "train/loss", "val/a"]
    write_history(tmp_path, {name: [1, 2] for name in names})
    assert list(read_tables(tmp_path / "history").curves) == ["train/loss", "val/rsum", "val/a"]
    assert read_tables(tmp_path / "nothing").curves == {}
    write_history(tmp_path, {"train/loss": [1.0, float("nan"), float("inf"), 2.0], "val/rsum": [10, 30, 30]})
    history = read_tables(tmp_path / "history")
    assert history.series["train/loss"] == {1: 1.0, 4: 2.0}  # only finite values
    assert history.best == 2  # the first of equal ones, as in training


def test_a_damaged_table_is_an_error_that_names_it(tmp_path):
    write_history(tmp_path, {"train/loss": [1.0]})
    (tmp_path / "history/plots/metrics/train/loss.tsv").write_text("step\tloss\n0\tmany\n")
    with pytest.raises(InputError, match=r"loss\.tsv: expected numbers in columns 'step' and 'loss'"):
        read_tables(tmp_path / "history")


def test_the_history_of_another_model_is_refused_with_both_digests(tmp_path):
    write_run(tmp_path, more=FULL)
    evaluation = read_run(tmp_path).artifact
    write_history(tmp_path, {"train/loss": [1.0]})
    assert read_history(tmp_path / "history", evaluation, {}).series == {"train/loss": {1: 1.0}}
    write_history(tmp_path, {"train/loss": [1.0]}, model="ab" * 32)
    made = FULL["model"]["digest"][:12]
    with refused(
        f"ranks.h5 was made from model {made}…, but ", "history was made from model abab", "run `dvc repro`"
    ):
        read_history(tmp_path / "history", evaluation, {})


def test_a_history_without_a_seal_is_refused(tmp_path):
    write_run(tmp_path, more=FULL)
    write_history(tmp_path, {"train/loss": [1.0]})
    (tmp_path / "history/history.json").unlink()
    with pytest.raises(InputError, match=r"history\.json: no such file; run `dvc repro`"):
        read_history(tmp_path / "history", read_run(tmp_path).artifact, {})


@pytest.mark.parametrize("file", ["retrieval.json", "intervals.json"])
def test_a_changed_character_in_a_results_file_is_an_input_error_or_harmless(tmp_path, file):
    write_run(tmp_path, more=FULL)
    path = tmp_path / file
    content = path.read_bytes()
    messages = []
    for place in range(0, len(content), 5):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            read_run(tmp_path)
        except InputError as error:
            messages.append(error.message)
    assert len(messages) > 50
    assert [each for each in messages if "run `dvc repro evaluate`" not in each] == []


@pytest.mark.parametrize(
    ("file", "place", "value"),
    [
        ("retrieval.json", ("rsum",), None),
        ("retrieval.json", ("rsum",), 10**400),
        ("retrieval.json", ("rsum",), 599.0),
        ("retrieval.json", ("ties", "image_to_text"), "<b>"),
        ("retrieval.json", ("ties",), []),
        ("intervals.json", ("rsum",), {"low": "a", "high": "b"}),
        ("intervals.json", ("rsum",), {"low": math.nan, "high": 1.0}),
        ("intervals.json", ("image_to_text", "R@1"), None),
    ],
)
def test_a_changed_value_of_the_results_is_one_line(tmp_path, file, place, value):
    write_run(tmp_path)
    content = parse_metrics((tmp_path / file).read_bytes())
    *path, last = place
    inner = content["test_full"]
    for key in path:
        inner = inner[key]
    inner[last] = value
    write_metrics(tmp_path / file, content)
    with pytest.raises(InputError, match=r"run `dvc repro evaluate`$") as caught:
        read_run(tmp_path)
    assert "\n" not in caught.value.message


def test_a_history_with_pipes_or_with_folders_that_are_nested_too_deeply_is_read_or_refused(tmp_path):
    write_run(tmp_path)
    write_history(tmp_path, {"val/rsum": [1, 2]})
    os.mkfifo(tmp_path / "history/plots/metrics/pipe.tsv")
    assert list(read_tables(tmp_path / "history").series) == ["val/rsum"]
    Path(tmp_path, "history/plots/metrics", *["a"] * 150).mkdir(parents=True)
    for read in (read_tables, lambda folder: read_history(folder, read_run(tmp_path).artifact, {})):
        with pytest.raises(InputError, match="more than 100 folders are nested here, which is the limit"):
            read(tmp_path / "history")
