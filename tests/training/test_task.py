from fne.training.best_epoch import Scores


def test_the_first_score_chooses_the_best_weights():
    scores = Scores({"rsum": 5.0, "R@1": 9.0})
    assert (scores.name, scores.main) == ("rsum", 5.0)
