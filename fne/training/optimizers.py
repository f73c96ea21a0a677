"""Optimizers and gradient clipping.

Every optimizer is called as `optimizer(groups, learning_rate, settings)` with the task's parameter groups and
returns one of torch's. A group's own rate is a factor on the learning rate. Optimizers with settings of their
own have a block in `params.yaml`.

Every way of clipping is called as `clip(groups, norm)` with the trained parameters of each group, changes the
gradients in place and returns the global norm that they had before.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fne.core.device import download
from fne.training.settings import Rmsprop, RmspropInside, SgdNesterov
from fne.training.task import ParameterGroup


class UncorrectedAdam(torch.optim.Adam):
    """Adam as the papers' published codes compute it.

    They decay the moments by 0.9 and 0.999, but correct their bias as if by 0.1 and 0.001: the first steps
    are 3.5 (t = 1) to 6.5 times (t = 10) those of Adam. It is Adam with another rate and epsilon per step.
    """

    _steps: int | None = None  # made so far; not known before the first one

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state."""
        super().load_state_dict(state_dict)
        self._steps = None

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Make one step."""
        if self._steps is None:  # read once: the state is on the device
            self._steps = next((int(download(state["step"])) for state in self.state.values()), 0)
        self._steps = number = self._steps + 1
        before = [(group["lr"], group["eps"]) for group in self.param_groups]
        for group in self.param_groups:
            first, second = (1 - beta**number for beta in group["betas"])
            uncorrected = first / second**0.5 * (1 - 0.001**number) ** 0.5 / (1 - 0.1**number)
            group["lr"], group["eps"] = group["lr"] * uncorrected, group["eps"] / second**0.5
        try:
            loss: float | None = super().step(closure)
        finally:
            for group, (rate, epsilon) in zip(self.param_groups, before, strict=True):
                group["lr"], group["eps"] = rate, epsilon
        return loss


class InsideRmsprop(torch.optim.Optimizer):
    """RMSprop with epsilon below the root, as in TensorFlow and NeuralTalk; torch adds it after the root.

    The mean of squared gradients starts at `first`: 1 in TensorFlow, 0 in NeuralTalk.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float, settings: RmspropInside) -> None:
        super().__init__(groups, {"lr": lr, **settings.model_dump()})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Make one step."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["squares"] = torch.full_like(weight, group["first"])
                squares = state["squares"]
                squares.mul_(group["decay"]).addcmul_(weight.grad, weight.grad, value=1 - group["decay"])
                weight.addcdiv_(weight.grad, (squares + group["epsilon"]).sqrt_(), value=-group["lr"])
        return loss


def adam(groups: Sequence[ParameterGroup], learning_rate: float, settings: None) -> torch.optim.Optimizer:
    """Adam as published."""
    return torch.optim.Adam(_torch_groups(groups, learning_rate), lr=learning_rate, fused=True)


def adam_uncorrected(
    groups: Sequence[ParameterGroup], learning_rate: float, settings: None
) -> torch.optim.Optimizer:
    """Adam nearly without its bias correction."""
    return UncorrectedAdam(_torch_groups(groups, learning_rate), lr=learning_rate, fused=True)


def rmsprop(
    groups: Sequence[ParameterGroup], learning_rate: float, settings: Rmsprop
) -> torch.optim.Optimizer:
    """RMSprop as torch has it: epsilon is added after the root."""
    return torch.optim.RMSprop(
        _torch_groups(groups, learning_rate), lr=learning_rate, alpha=settings.decay, eps=settings.epsilon
    )


def rmsprop_inside(
    groups: Sequence[ParameterGroup], learning_rate: float, settings: RmspropInside
) -> torch.optim.Optimizer:
    """RMSprop with epsilon below the root."""
    return InsideRmsprop(_torch_groups(groups, learning_rate), learning_rate, settings)


def sgd_nesterov(
    groups: Sequence[ParameterGroup], learning_rate: float, settings: SgdNesterov
) -> torch.optim.Optimizer:
    """Stochastic gradient descent with Nesterov's momentum; weight decay is added to the gradient."""
    return torch.optim.SGD(
        _torch_groups(groups, learning_rate),
        lr=learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=True,
        fused=True,
    )


def flatten(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return the tensors that an optimizer keeps, by name, for a checkpoint."""
    state: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
    return {
        f"{number}.{key}": value
        for number, kept in state.items()
        for key, value in kept.items()
        if value is not None
    }


def restore(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Give an optimizer the tensors that `flatten` returned."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in tensors.items():
        number, key = name.split(".")
        state.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
    for weight in (each for group in optimizer.param_groups for each in group["params"]):
        for key, value in optimizer.state[weight].items():
            # Fused optimizers read weights and what they keep of them side by side in memory, but a file has
            # lost the layout, such as `channels_last`.
            if value is not None and value.shape == weight.shape and value.stride() != weight.stride():
                optimizer.state[weight][key] = torch.empty_like(weight).copy_(value)


def by_global_norm(groups: Sequence[Sequence[nn.Parameter]], norm: float) -> Tensor:
    """Scale all gradients alike when their global norm exceeds `norm`."""
    return nn.utils.clip_grad_norm_([each for group in groups for each in group], norm)


def by_group_norm(groups: Sequence[Sequence[nn.Parameter]], norm: float) -> Tensor:
    """Scale the gradients of each group alike when their norm exceeds `norm`.

    So a large loss of one part of a model does not shorten the steps of another.
    """
    return _joined_norm([nn.utils.clip_grad_norm_(group, norm) for group in groups if group])


def by_tensor_norm(groups: Sequence[Sequence[nn.Parameter]], norm: float) -> Tensor:
    """Scale each gradient by itself when its norm exceeds `norm`, as the papers' published codes do."""
    return _joined_norm([nn.utils.clip_grad_norm_([each], norm) for group in groups for each in group])


def by_element(groups: Sequence[Sequence[nn.Parameter]], norm: float) -> Tensor:
    """Clip every element of the gradients to -`norm` … `norm`, as NeuralTalk does."""
    parameters = [each for group in groups for each in group]
    before = nn.utils.get_total_norm([each.grad for each in parameters if each.grad is not None])
    nn.utils.clip_grad_value_(parameters, norm)
    return before


def clip_gradients(groups: Sequence[Sequence[nn.Parameter]], norm: float, by: str) -> Tensor:
    """Clip by the named way, or not at all where `norm` is 0; return the global norm before."""
    if norm == 0:
        gradients = [each.grad for group in groups for each in group if each.grad is not None]
        return nn.utils.get_total_norm(gradients)
    return CLIPS[by](groups, norm)


def _joined_norm(norms: list[Tensor]) -> Tensor:
    return torch.stack(norms).square().sum().sqrt()


def _torch_groups(groups: Sequence[ParameterGroup], learning_rate: float) -> list[dict[str, Any]]:
    filled = [group for group in groups if group.parameters]
    return [{"params": list(group.parameters), "lr": learning_rate * group.rate} for group in filled]


CLIPS = {"element": by_element, "global": by_global_norm, "group": by_group_norm, "tensor": by_tensor_norm}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": adam,
    "adam_uncorrected": adam_uncorrected,
    "rmsprop": rmsprop,
    "rmsprop_inside": rmsprop_inside,
    "sgd_nesterov": sgd_nesterov,
}
