import numpy as np

from fne.evaluation.curves import LONGEST, PERCENT, rank_curves, recall_curves, write_curves

WAYS = ("image_to_text", "text_to_image")


def test_recalls_are_means_over_folds_of_different_sizes():
    ranks, folds = np.array([1, 2, 3, 1]), np.array([0, 0, 0, 1])
    found = recall_curves({"a": ranks}, {"a": folds}, [1, 2, 3])["a"]
    assert np.allclose(found, [100 * (1 / 3 + 1) / 2, 100 * (2 / 3 + 1) / 2, 100])


def test_the_rank_of_a_percentage_is_one_that_a_query_has():
    ranks = np.random.default_rng(0).integers(1, 50, 37)
    curve = rank_curves({"a": ranks})["a"]
    ordered = sorted(ranks.tolist())
    for percent, rank in zip(PERCENT, curve, strict=True):
        assert rank == ordered[-(-percent * len(ordered) // 100) - 1]


def test_tables_of_all_experiments_have_the_same_steps(tmp_path):
    for largest, steps in ((7, 7), (5000, LONGEST)):
        ranks = {way: np.array([1, 3]) for way in WAYS}
        write_curves(tmp_path / "curves", ranks, {way: np.zeros(2, int) for way in WAYS}, largest)
        recall = (tmp_path / "curves/recall.tsv").read_text().splitlines()
        assert recall[0] == "k\timage_to_text\ttext_to_image"
        assert recall[1] == "1\t50\t50"
        assert [line.partition("\t")[0] for line in recall[1:]] == [str(k) for k in range(1, steps + 1)]
        ranks_table = (tmp_path / "curves/ranks.tsv").read_text().splitlines()
        assert ranks_table[50:52] == ["50\t1\t1", "51\t3\t3"]
