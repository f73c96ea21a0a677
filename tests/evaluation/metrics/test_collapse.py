import pytest

from fne.evaluation.metrics.collapse import not_started, start_advice


@pytest.mark.parametrize(
    ("losses", "epochs", "advice"),
    [
        (["max_hinge"], 40, "Start with a sum phase (-S 'train.loss=[sum_hinge,max_hinge]'); lower train.learning_rate"),
        (["top_k_hinge"], 40, "Start with a sum phase (-S 'train.loss=[sum_hinge,top_k_hinge]'); lower train.learning"),
        (["hard_hinge"], 40, "Start with a sum phase (-S 'train.loss=[sum_hinge,hard_hinge]'); lower train.learning"),
        (["semi_hard_hinge"], 40, "Start with a sum phase (-S 'train.loss=[sum_hinge,semi_hard_hinge]'), or raise train.margin"),
        (["sum_hinge", "max_hinge"], 40, "Lower train.learning_rate, or try another train.seed"),
        (["sum_hinge"], 1, "4 updates in 1 epoch are few: raise train.epochs, or lower train.batch"),
        (["max_hinge"], 1, "Start with a sum phase (-S 'train.loss=[sum_hinge,max_hinge]'); 4 updates in 1 epoch are few"),
    ],
)  # fmt: skip
def test_advice_depends_on_the_losses_and_the_length_of_a_training(losses, epochs, advice):
    assert start_advice(losses, epochs, 4 if epochs == 1 else 4000).startswith(advice)
    assert start_advice([], 1, 0, "cca").startswith("A closed form has nothing to start")


def test_the_sentence_says_what_happened():
    text = not_started(8.24, 7.9, ["max_hinge"], 40, 4000, collapsed=True)
    assert text.startswith(
        "training did not start: the validation rsum of 8.2 is not clearly above chance (7.9)"
    )
    assert "a model that maps everything to one point. Start with a sum phase" in text
    assert "one point" not in not_started(8.24, 7.9, ["max_hinge"], 40, 4000, collapsed=False)
