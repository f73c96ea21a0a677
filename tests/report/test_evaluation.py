"""What is read back of an evaluation."""

import numpy as np
import pytest

from tests.report.runs import read_run, write_run


@pytest.mark.parametrize("folds", [1, 4])
def test_recalls_at_any_k_agree_with_the_metrics(tmp_path, folds):
    write_run(tmp_path, sentences=[(f"a {number}", f"b {number}") for number in range(20)], folds=folds)
    evaluation = read_run(tmp_path)
    for way in (evaluation.image_to_text, evaluation.text_to_image):
        assert {k: way.recall(k) for k in (1, 5, 10)} == pytest.approx(way.recalls)
        assert way.recall(way.pool) == 100


def test_a_query_searches_its_own_fold(tmp_path):
    write_run(tmp_path, sentences=[(f"a {number}", f"b {number}") for number in range(20)], folds=4, top=5)
    evaluation = read_run(tmp_path)
    assert (evaluation.image_to_text.pool, evaluation.text_to_image.pool) == (10, 5)
    for way in (evaluation.image_to_text, evaluation.text_to_image):
        assert np.array_equal(way.pool_folds[way.best], np.repeat(way.folds[:, None], 5, axis=1))


def test_images_may_have_any_number_of_sentences(tmp_path):
    write_run(tmp_path, sentences=[("one",), ("two", "three", "four"), ("five", "six")])
    evaluation = read_run(tmp_path)
    assert evaluation.image_to_text.true_counts.tolist() == [1, 3, 2]
    assert evaluation.text_to_image.answers.tolist() == [0, 1, 1, 1, 2, 2]
