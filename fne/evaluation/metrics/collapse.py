"""What a training run that did not start means, and what helps.

A training run counts as started when its sum of recalls is clearly above chance (see
`fne.evaluation.metrics.recall.has_started`). The advice depends on the loss, because losses of the hardest
negatives can settle where everything is mapped to one point, and on how long the training was.
"""

from collections.abc import Sequence

# Losses that can settle at the loss of a collapsed model. The sum over all negatives leaves it, and a
# collapsed model has no semi-hard negatives.
CAN_SETTLE = ("hard_hinge", "max_hinge", "top_k_hinge")
SEMI_HARD = "semi_hard_hinge"
SUM = "sum_hinge"
# Fewer updates than this are few for any loss: a GRU of the demo's size needs about a hundred.
FEW_UPDATES = 200


def not_started(
    rsum: float,
    chance: float,
    losses: Sequence[str],
    epochs: int,
    updates: int,
    collapsed: bool,
    method: str = "steps",
) -> str:
    """Return what happened and what helps.

    Args:
        losses: the loss of each phase.
        collapsed: whether the loss stayed at that of a model that maps everything to one point.
        method: a value of `train.method`.

    Example:
        >>> text = not_started(8.2, 7.9, ["sum_hinge"], 2, 24, False)
        >>> print(text.partition(". ")[2])
        24 updates in 2 epochs are few: raise train.epochs, or lower train.batch
    """
    happened = (
        f"training did not start: the validation rsum of {rsum:.1f} is not clearly above chance "
        f"({chance:.1f})"
    )
    if collapsed:
        happened += ", and the loss stayed at that of a model that maps everything to one point"
    return f"{happened}. {start_advice(losses, epochs, updates, method)}"


def start_advice(losses: Sequence[str], epochs: int, updates: int, method: str = "steps") -> str:
    """Return what helps a training run that did not start."""
    if method != "steps":
        return (
            "A closed form has nothing to start: look whether the features belong to the captions "
            "(`fne verify`), or try stronger regularization"
        )
    advice = []
    first = losses[0] if losses else SUM
    if first in CAN_SETTLE:
        advice.append(f"start with a sum phase (-S 'train.loss=[{SUM},{first}]')")
    elif first == SEMI_HARD:
        advice.append(f"start with a sum phase (-S 'train.loss=[{SUM},{first}]'), or raise train.margin")
    if updates < FEW_UPDATES:
        made = f"{_count(updates, 'update')} in {_count(epochs, 'epoch')}"
        advice.append(f"{made} are few: raise train.epochs, or lower train.batch")
    if not advice or (first in CAN_SETTLE and updates >= FEW_UPDATES):
        advice.append("lower train.learning_rate, or try another train.seed")
    text = "; ".join(advice)
    return text[:1].upper() + text[1:]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
