"""How gradients become steps.

Every optimizer is called as `optimizer(parameters, learning_rate)` and returns one of torch's.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn


class UncorrectedAdam(torch.optim.Adam):
    """Adam as the papers' published codes compute it.

    They decay the moments by 0.9 and 0.999, but correct their bias as if by 0.1 and 0.001,
    which is next to no correction: the first steps are 3.5 (t = 1) to 6.5 times (t = 10) those of
    Adam. Written as Adam with another rate and epsilon in every step, which is the same.
    """

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Make one step."""
        (group,) = self.param_groups
        number = 1 + next((int(state["step"]) for state in self.state.values()), 0)
        first, second = (1 - beta**number for beta in group["betas"])
        uncorrected = first / second**0.5 * (1 - 0.001**number) ** 0.5 / (1 - 0.1**number)
        rate, epsilon = group["lr"], group["eps"]
        group["lr"], group["eps"] = rate * uncorrected, epsilon / second**0.5
        try:
            loss: float | None = super().step(closure)
        finally:
            group["lr"], group["eps"] = rate, epsilon
        return loss


def adam(parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    """Adam as published."""
    return torch.optim.Adam(parameters, lr=learning_rate, fused=True)


def adam_uncorrected(parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    """Adam nearly without its correction of bias."""
    return UncorrectedAdam(parameters, lr=learning_rate, fused=True)


def flatten(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return the tensors that an optimizer keeps, by name, for a checkpoint."""
    state: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
    return {f"{number}.{key}": value for number, kept in state.items() for key, value in kept.items()}


def restore(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Give an optimizer the tensors that `flatten` returned."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in tensors.items():
        number, key = name.split(".")
        state.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})


OPTIMIZERS = {"adam": adam, "adam_uncorrected": adam_uncorrected}
