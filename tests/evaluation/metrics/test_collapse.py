import pytest

from fne.evaluation.metrics.collapse import not_started, start_advice

SEED = "lower train.learning_rate, or try another train.seed"


@pytest.mark.parametrize("loss", ["max_hinge", "top_k_hinge", "hard_hinge"])
def test_advice_for_losses_of_the_hardest_negatives_is_to_start_with_a_sum(loss):
    assert start_advice([loss], 40, 4000) == (
        f"Start with a sum phase (-S 'train.loss=[sum_hinge,{loss}]'); {SEED}"
    )


def test_a_loss_that_starts_with_a_sum_gets_no_such_advice():
    assert start_advice(["sum_hinge", "max_hinge"], 40, 4000) == SEED[:1].upper() + SEED[1:]


def test_semi_hard_negatives_may_need_a_larger_margin():
    assert start_advice(["semi_hard_hinge"], 40, 4000) == (
        "Start with a sum phase (-S 'train.loss=[sum_hinge,semi_hard_hinge]'), or raise train.margin"
    )


def test_advice_for_a_short_training_is_to_train_longer():
    assert start_advice(["sum_hinge"], 1, 4) == (
        "4 updates in 1 epoch are few: raise train.epochs, or lower train.batch"
    )
    assert start_advice(["max_hinge"], 2, 8) == (
        "Start with a sum phase (-S 'train.loss=[sum_hinge,max_hinge]'); 8 updates in 2 epochs are few: raise "
        "train.epochs, or lower train.batch"
    )


def test_a_closed_form_gets_no_advice_about_epochs():
    assert start_advice([], 1, 0, "cca").startswith("A closed form has nothing to start")


def test_the_sentence_says_what_happened():
    text = not_started(8.24, 7.9, ["max_hinge"], 40, 4000, collapsed=True)
    assert text.startswith(
        "training did not start: the validation rsum of 8.2 is not clearly above chance (7.9), and the loss stayed "
        "at that of a model that maps everything to one point. Start with a sum phase"
    )
    assert "one point" not in not_started(8.24, 7.9, ["max_hinge"], 40, 4000, collapsed=False)
