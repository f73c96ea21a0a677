import re
from dataclasses import replace

import pytest

from fne.core.errors import InputError
from fne.report.compare_page import Change, changed_settings, compare_runs, grids, render
from tests.support.comparison import write_project

HOSTILE = ['<script>alert("1")</script>', "{{ 7 * 7 }}", "</bdi></li><style>*{display:none}</style>"]


@pytest.fixture
def project(tmp_path):
    return write_project(tmp_path)


def test_settings_that_differ_are_listed_and_code_by_its_folders(project):
    found = compare_runs(project, "a", "b")
    assert found.changes == [Change("train.margin", "0.2", "0.1")]
    assert found.code == ["fne/matching"]


def test_a_key_that_applies_to_one_run_only_is_listed(project):
    a = project.run("a")
    other = replace(a, settings=a.settings | {"train": a.settings["train"] | {"max_hinge.hardest": "query"}})
    other = replace(other, given=other.given | {"train.max_hinge.hardest"})
    assert changed_settings(a, other) == [Change("train.max_hinge.hardest", "-", "query")]


def test_a_setting_that_no_parameter_file_says_is_marked(project):
    a = project.run("a")
    other = replace(a, settings=a.settings | {"train": a.settings["train"] | {"clip": 2.0}})
    assert changed_settings(a, other) == [Change("train.clip (default)", "0.0", "2.0")]
    given = replace(other, given=other.given | {"train.clip"})
    assert changed_settings(a, given) == [Change("train.clip", "0.0", "2.0")]


def test_inputs_that_differ_under_the_same_name_are_listed(project):
    a = project.run("a")
    other = replace(a, hashes=a.hashes | {"data/captions.jsonl": "another"})
    assert changed_settings(a, other) == [Change("content of data/captions.jsonl", "c", "another")]


def test_queries_that_moved_most_come_first_with_their_answers(project):
    found = compare_runs(project, "a", "b")
    for moves in found.moves:
        for listed, sign in ((moves.better_in_b, 1), (moves.better_in_a, -1)):
            ratios = [sign * (mover.a - mover.b) for mover in listed]
            assert all(each > 0 for each in ratios)
            gains = [max(mover.a / mover.b, mover.b / mover.a) for mover in listed]
            assert gains == sorted(gains, reverse=True)
    images, sentences = found.moves
    a, b = (project.run(name).ranks for name in "ab")
    ids = a.texts("image_ids")
    for mover in (*images.better_in_b, *images.better_in_a):
        query = ids.index(mover.query)
        assert (mover.a, mover.b) == (a["image_ranks"][query], b["image_ranks"][query])
        assert all(answer.startswith(f"{mover.query}#") for answer in mover.answers)
        assert [candidate.place for candidate in mover.first[0]] == [1, 2, 3, 4, 5]
    for mover in (*sentences.better_in_b, *sentences.better_in_a):
        assert [mover.query.partition("#")[0]] == mover.answers


def test_each_metric_has_the_interval_of_each_side(project):
    for each in compare_runs(project, "a", "b").differences:
        assert each.a_interval[0] <= each.a <= each.a_interval[1]
        assert each.b_interval[0] <= each.b <= each.b_interval[1]


def test_with_five_seeds_a_verdict_is_given(tmp_path):
    few, many = (compare_runs(write_project(tmp_path / str(n), seeds=n), "a", "b") for n in (1, 5))
    assert not few.can_be_shown
    assert many.can_be_shown
    assert many.title == "A: a (5 seeds); B: b (5 seeds)"
    verdicts = {"A is better", "B is better", "no difference shown"}
    assert {each.verdict for each in many.differences} <= verdicts


def test_tables_have_validation_and_the_closed_form(project):
    _, metrics, *moved = grids(compare_runs(project, "a", "b"))
    assert metrics.rows[-2:] == [
        ["validation rsum", "300.0", "", "310.0", "", "+10.0", "", "", ""],
        ["closed form", "290.0", "", "290.0", "", "+0.0", "", "", ""],
    ]
    assert metrics.notes[0].startswith("Warning: among 4 images chance scores ")
    assert metrics.notes[1] == "the code differs in fne/matching"
    assert all(len(grid.rows) <= 3 for grid in moved)


def test_the_page_shows_pictures_curves_and_both_answers_and_loads_nothing(project):
    page = render(compare_runs(project, "a", "b", pictures=True))
    assert "http" not in page.replace("http-equiv", "")
    assert "<script" not in page
    assert page.count('class="line second"') == 4  # two recall and two learning curves
    assert page.count("data:image/jpeg") > 4
    assert "content=\"default-src 'none'" in page.replace("&#39;", "'")


def test_without_pictures_histories_and_best_answers_the_page_is_still_made(tmp_path):
    project = write_project(tmp_path, pictures=False)
    (tmp_path / "history" / "history.json").unlink()
    for name, run in project.named.items():
        kept = {key: value for key, value in run.ranks.values.items() if "best" not in key}
        project.named[name] = replace(run, ranks=replace(run.ranks, values=kept), validation=None)
    (tmp_path / "captions.jsonl").unlink()
    (tmp_path / "history").rename(tmp_path / "gone")
    page = render(compare_runs(project, "a", "b", pictures=True))
    assert "The first answers of this run are not recorded." in page
    assert "not recorded" in page
    assert 'id="training"' not in page


def test_hostile_captions_are_shown_and_never_executed(tmp_path):
    project = write_project(tmp_path, sentences=[(text, f"{text} again") for text in HOSTILE * 2])
    page = render(compare_runs(project, "a", "b"))
    assert "<script" not in page
    assert len(re.findall("<style>", page)) == 2  # those of the page
    assert "{{ 7 * 7 }}" in page


def test_the_same_experiment_is_not_compared_with_itself(project):
    with pytest.raises(InputError, match="'a' and 'a' are the same experiment, .*; name two different ones"):
        compare_runs(project, "a", "a")
