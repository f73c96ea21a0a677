import pytest

from fne.matching.run import kept


@pytest.mark.parametrize(
    ("outcome", "phase", "sentence"),
    [
        ({"best_epoch": 0, "epochs": 21}, 1, "no epoch was better than its start, which is kept"),
        ({"best_epoch": 0, "epochs": 0}, 1, "best epoch 0 (phase 1)"),  # a closed form has no epochs
        ({"best_epoch": 14, "epochs": 21}, 2, "best epoch 14 (phase 2)"),
    ],
)
def test_the_epoch_that_is_kept_is_named(outcome, phase, sentence):
    assert kept(outcome, phase) == sentence
