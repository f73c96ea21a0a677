"""Branches of fully connected layers, for image features and for mean word vectors.

Every branch is called as `branch(features, embed_dim, settings)`, as image heads are. Its module maps rows
(rows, features) to (rows, embed_dim). It is called as `module(rows, step)`, where `step` is a
`fne.core.distributed_layers.Step` while training. The model, not the branch, normalizes to length one.
"""

import torch
from torch import Tensor, nn

from fne.core.distributed_layers import INITIALIZATIONS, Dropout, Step, SyncBatchNorm
from fne.core.products import Linear
from fne.matching import settings as keys


class Branch(nn.Module):
    """Fully connected layers; every hidden one is followed by ReLU and dropout.

    If `normalized`, batch normalization follows the hidden layers, before their ReLU, and the last layer.
    """

    def __init__(
        self,
        features: int,
        embed_dim: int,
        settings: keys.Branch | keys.DualPath,
        normalized: tuple[bool, bool],
        dropout: float,
        bias: bool,
    ) -> None:
        super().__init__()
        inputs, outputs = [features, *settings.hidden], [*settings.hidden, embed_dim]
        layers = [Linear(width, units, bias=bias) for width, units in zip(inputs, outputs, strict=True)]
        for layer in layers:
            INITIALIZATIONS[settings.initial](layer)
        self.layers = nn.ModuleList(layers)
        hidden, last = normalized
        epsilon, momentum = settings.batch_norm_epsilon, settings.batch_norm_momentum
        self.norms = nn.ModuleList(
            SyncBatchNorm(units, eps=epsilon, momentum=momentum) if wanted else _Unchanged()
            for units, wanted in zip(outputs, [hidden] * len(settings.hidden) + [last], strict=True)
        )
        self.dropout = Dropout(dropout)

    def forward(self, rows: Tensor, step: Step | None = None) -> Tensor:
        """Map (rows, features) to (rows, embed_dim)."""
        last = len(self.layers) - 1
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            rows = norm(layer(rows), step)
            if number < last:
                rows = self.dropout(rows.relu(), step)
        return rows


class MeanOfWords(nn.Module):
    """The mean of a caption's word vectors, mapped by a branch."""

    def __init__(self, words: nn.Embedding, branch: nn.Module) -> None:
        super().__init__()
        self.words = words
        self.branch = branch

    def forward(self, words: Tensor, lengths: Tensor, step: Step | None = None) -> Tensor:
        """Map padded words (captions, longest) and lengths (captions) to (captions, embed_dim)."""
        lengths = lengths.to(words.device)[:, None]
        inside = torch.arange(words.shape[1], device=words.device) < lengths  # (captions, longest)
        total = self.words(words).mul(inside[:, :, None]).sum(dim=1)
        mapped: Tensor = self.branch(total / lengths, step)
        return mapped


class _Unchanged(nn.Module):
    """Stands where a layer is not normalized."""

    def forward(self, rows: Tensor, step: Step | None = None) -> Tensor:
        return rows


def mlp(features: int, embed_dim: int, settings: keys.Branch) -> Branch:
    """Hidden layers; batch normalization after the last one, as the two-branch paper on mining says."""
    return Branch(features, embed_dim, settings, (False, True), settings.dropout, bias=True)


def mlp_bn_first(features: int, embed_dim: int, settings: keys.Branch) -> Branch:
    """Hidden layers; batch normalization after them, as in the published code that the paper builds on."""
    return Branch(features, embed_dim, settings, (True, False), settings.dropout, bias=True)


def dual_path(features: int, embed_dim: int, settings: keys.DualPath) -> Branch:
    """Hidden layers without biases and dropout, and batch normalization after every layer."""
    return Branch(features, embed_dim, settings, (True, True), 0.0, bias=False)
