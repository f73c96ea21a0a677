import numpy as np
import pytest

from benchmarks.two_branch import FLOORS, WORDS, arms, report, train_section


@pytest.mark.parametrize("name", arms(epochs=3, rate=0.001, long=6))
def test_every_arm_has_valid_settings_and_the_budget_of_its_part(name):
    arm = arms(epochs=3, rate=0.001, long=6)[name]
    settings = train_section(arm.method, arm.changes, seed=7)
    assert settings.epochs == settings.patience == ([6] if arm.part == "long" else [3])
    assert (settings.embed_dim, settings.word_dim, settings.seed) == (256, 50, 7)
    assert arm.words in WORDS
    # Words without a pretrained vector are random, so they must be learned.
    assert settings.words == "learned" or arm.words == "dropped"


def test_arms_of_one_part_differ_only_in_what_their_names_say():
    found = {name: train_section(arm.method, arm.changes, 0) for name, arm in arms(3, 0.001, 6).items()}
    first, tenth = found["K1, lambda 0.1"].applied(), found["K10, lambda 0.1"].applied()
    assert {key for key in first if first[key] != tenth[key]} == {"losses"}
    other = found["K10, lambda 1"].applied()
    assert {key: other[key] for key in other if other[key] != tenth[key]} == {"caption_anchors": 1.0}
    assert found["K = 10"] == found["K10, lambda 1"] == found["mean GloVe, fixed"]


@pytest.mark.parametrize("name", FLOORS)
def test_floors_are_closed_forms(name):
    changes, words = FLOORS[name]
    assert train_section("K10", changes, 0).method == "cca"
    assert words in WORDS


def finished(image_ranks, kept):
    captions = np.repeat(image_ranks, 5)
    return {
        "best_epoch": 2,
        "kept": kept,
        "seconds": 3.0,
        "image_ranks": list(image_ranks),
        "caption_ranks": captions.tolist(),
        "caption_image": np.repeat(np.arange(len(image_ranks)), 5).tolist(),
    }


def test_the_report_has_the_mean_over_seeds_and_the_difference_from_the_first_arm():
    right, wrong, half = np.ones(20, int), np.full(20, 99), np.array([1, 99] * 10)
    runs = {"a": [finished(right, 600.0), finished(wrong, 0.0)], "b": [finished(half, 300.0)] * 2}
    lines = list(report(runs, {"a": "mining", "b": "mining"}))
    assert lines[0].startswith("\n| mining | seeds | val | test | 95 % |")
    assert lines[1].startswith("| a | 2 | 300.0 | 300.0 | 300.0 to 300.0 | 600.0 0.0 | +0.0 | +0.0 to +0.0 |")
    assert lines[2].startswith("| b | 2 | 300.0 | 300.0 | ")
    assert "| 300.0 300.0 | +0.0 | -" in lines[2]
