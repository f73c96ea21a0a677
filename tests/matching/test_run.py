from fne.matching.run import kept


def test_a_training_that_keeps_its_start_says_that_no_epoch_was_better():
    assert kept({"best_epoch": 0, "epochs": 21}, 1) == "no epoch was better than its start, which is kept"


def test_a_closed_form_has_no_epochs_that_could_be_better():
    assert kept({"best_epoch": 0, "epochs": 0}, 1) == "best epoch 0 (phase 1)"


def test_an_epoch_that_is_better_than_the_start_is_named():
    assert kept({"best_epoch": 14, "epochs": 21}, 2) == "best epoch 14 (phase 2)"
