from itertools import islice

import pytest

from fne.datasets.demo.dataset import Render, splits
from fne.datasets.demo.judgments import facts, grade, judgments
from fne.datasets.demo.scenes import scenes


def test_a_scene_has_the_best_grade_for_its_own_sentences_and_others_the_share_of_facts():
    first, second = islice(scenes(0), 2)
    assert grade(first, first) == 4
    shared = [each for each in facts(second) if each in facts(first)]
    assert grade(first, second) == pytest.approx(1 + 3 * len(shared) / len(facts(second)))


def test_every_test_image_is_judged_by_three_whose_grades_follow_the_exact_one():
    settings = Render(images=80)
    lines = [line.split("\t") for line in judgments(settings).splitlines()]
    known = {f"scene-{number:04d}.jpg": scene for number, scene in enumerate(islice(scenes(0), 80))}
    tested = {f"scene-{number:04d}.jpg" for number, split in enumerate(splits(settings)) if split == "test"}
    assert {line[0] for line in lines} == tested
    assert {line[1].partition("#")[0] for line in lines} <= tested
    assert len({(line[0], line[1]) for line in lines}) == len(lines) == 10 * len(tested)
    for image, caption, *grades in lines:
        exact = grade(known[image], known[caption.partition("#")[0]])
        assert all(abs(int(each) - exact) <= 1.25 for each in grades)
    assert judgments(settings) == judgments(settings)
