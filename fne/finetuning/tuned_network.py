"""The image network while it is trained: frozen below a layer, trained from there on.

Dropout and batch normalization stay in evaluation mode, with the statistics of the weights file. So an
image's row does not depend on the other images of the batch, and a batch can pass through the network in
parts. Only the rows are kept. When their gradient is known, each part passes through again and adds its share
of the gradient of the weights (gradient caching). So memory depends on the size of a part, not on the batch.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from fne.core.errors import InputError
from fne.core.settings import not_one_of
from fne.extraction.forward_pass import Network, build_network, concatenate_layers, run_modules
from fne.extraction.layers import Tap
from fne.extraction.networks import find_backbone
from fne.extraction.weights import Weights
from fne.features.embeddings import ONE_LAYER, kept_layers
from fne.features.standardize import Statistics
from fne.finetuning.settings import ALL, BIASES, FIRST, GAINS, WEIGHTS
from fne.store.layout import Layer

# The statistics of z-scores, by their names in the file of a tuned network.
SCALING = {"mean": "zscore.mean", "deviation": "zscore.deviation"}
# From activations of the kept layers (images, features) to rows of the same shape.
RowsOf = Callable[[Tensor], Tensor]


def trained_taps(backbone: str, layer: str, first: str, section: str = "finetune") -> list[Tap]:
    """Return the layers to train, from `first` or all, up to the last `layer` that the model reads."""
    known = find_backbone(backbone).taps
    names = [tap.layer for tap in known]
    # The pooled output of a network has no weights of its own and comes after all layers.
    below = known[: names.index(layer) + 1] if layer in names else known
    if first == ALL:
        return list(below)
    allowed = [tap.layer for tap in below]
    if first in names and first not in allowed:
        raise InputError(
            f"params.yaml: {section}.first is '{first}', which comes after '{layer}', the last layer that "
            f"the model reads; use {ALL} or one of {', '.join(allowed)}"
        )
    if first not in allowed:
        raise InputError(
            f"params.yaml: {section}.first: {not_one_of(first, [ALL, *allowed])}, the layers of {backbone}"
        )
    return list(below[allowed.index(first) :])


def layers_read(
    weights: Weights, extraction: Mapping[str, Any], embedding: Mapping[str, Any]
) -> tuple[list[Layer], list[str]]:
    """Return the layers of an extraction, as far as there are weights, and the names of those embedded."""
    backbone, chosen = extraction["backbone"], extraction["layers"]
    if embedding["kind"] in ONE_LAYER:
        return [], [embedding["layer"]]
    known = build_network(backbone, weights, torch.device("meta"), extraction["activations"]).layers
    listed = known if chosen == ALL else [each for each in known if each.name in chosen]
    return listed, kept_layers([each.name for each in listed], embedding["layers"])


def rows_of(embedding: Mapping[str, Any], sizes: Sequence[int], ordinary: Statistics | None = None) -> RowsOf:
    """Return what `fne.features.embeddings` does to the kept layers, as a function with gradients.

    Args:
        embedding: the recorded settings of the embedding.
        sizes: the features of each kept layer.
        ordinary: the statistics of the kept features, for z-scores.
    """
    scalings: list[RowsOf] = []
    if embedding["kind"] == "zscore":
        assert ordinary is not None, "z-scores need statistics"
        inverse = np.where(ordinary.varies, 1 / np.where(ordinary.varies, ordinary.deviation, 1.0), 0.0)
        mean, scale = torch.from_numpy(ordinary.mean), torch.from_numpy(inverse)
        scalings.append(lambda rows: ((rows - mean.to(rows.device)) * scale.to(rows.device)).to(rows.dtype))
    wanted = ["layers" if embedding["kind"] == "blocks" else "none", embedding.get("rows", "none")]
    for name in wanted:
        if name == "layers":
            scalings.append(partial(_unit_layers, sizes=list(sizes)))
        elif name == "unit":
            scalings.append(partial(functional.normalize, dim=1))
        elif name == "rms":
            scalings.append(lambda rows: rows / embedding["rms"])
    return lambda rows: reduce(lambda found, scale_rows: scale_rows(found), scalings, rows)


def _unit_layers(rows: Tensor, sizes: list[int]) -> Tensor:
    parts = torch.split(rows, sizes, dim=1)
    return torch.cat([functional.normalize(each, dim=1) for each in parts], dim=1)


class TunedNetwork(nn.Module):
    """Maps images to rows, the values of some layers.

    Args:
        network: the network up to the last layer that is read.
        trained: the layers that are trained, the last ones of the network.
        rows_of: what is done to the activations of the layers, see `rows_of`.
        part: how many images pass through the network at once.
        entrance: the name of the network's first convolution in torchvision.
        besides: what the file of the network has besides these modules, by name.
    """

    def __init__(
        self,
        network: Network,
        trained: Sequence[Tap],
        rows_of: RowsOf,
        part: int,
        entrance: str,
        besides: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self._network = network
        self._besides = besides
        self._rows_of = rows_of
        self._entrance = entrance
        self.part = part
        self.trained_layers = [tap.layer for tap in trained]
        names = list(network.modules)
        start = names.index(network.parent(trained[0].weighted or trained[0].activated))
        self._below, self._above = names[:start], names[start:]
        for module in network.modules.values():
            module.requires_grad_(False)
        for tap in trained:
            # A block of a transformer has no weights but those of its parts.
            for name in filter(None, (tap.weighted, tap.normalized) if tap.weighted else (tap.activated,)):
                network.module(name).requires_grad_(True)
        # Modules below the first trained layer never change, so no checkpoint needs them.
        self.modules_above = nn.ModuleList(network.modules[name] for name in self._above)
        self.eval()

    def train(self, mode: bool = True) -> "TunedNetwork":
        """Stay in evaluation mode."""
        return super().train(False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the rows (images, features) of images (images, channels, height, width)."""
        rows = [self._rows(part) for part in torch.split(images, self.part)]
        return torch.cat(rows) if rows else images.new_zeros((0, self.features))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.modules_above.parameters()).device

    @property
    def features(self) -> int:
        """The length of a row."""
        return sum(layer.features for layer in self._network.layers)

    def full_state(self) -> dict[str, Tensor]:
        """Return all weights and statistics, the frozen ones included, by their names in torchvision."""
        own = {
            f"{name}.{key}".removeprefix("."): value
            for name, module in self._network.modules.items()
            for key, value in module.state_dict().items()
        }
        return {**self._besides, **own}

    def trained_kinds(self) -> dict[str, list[nn.Parameter]]:
        """Return the trained parameters by their kind; the weights of the first convolution are one."""
        kinds: dict[str, list[nn.Parameter]] = {kind: [] for kind in (WEIGHTS, BIASES, GAINS, FIRST)}
        for parent in self._above:
            for name, module in self._network.modules[parent].named_modules(prefix=parent):
                for key, value in module.named_parameters(recurse=False):
                    if value.requires_grad:
                        own = FIRST if name == self._entrance else WEIGHTS
                        gain = GAINS if isinstance(module, nn.BatchNorm2d) else own
                        kinds[BIASES if key == "bias" else gain].append(value)
        return kinds

    def activation_bytes(self, images: Tensor, batch: int) -> int:
        """Return the memory of the values of a step: of the layer or the part that needs most of it.

        The images (images, channels, height, width) pass through the network at once. Of the `batch`, what
        enters the trained layers is kept.
        """
        values, largest = images, 0
        with torch.no_grad():
            for name in self._below:
                size = values.nbytes
                values = self._network.modules[name](values)
                largest = max(largest, size + values.nbytes)
        entering, kept = values.nbytes * batch // len(images), dict[int, int]()

        def count(value: Tensor) -> Tensor:
            kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
            return value

        with torch.autograd.graph.saved_tensors_hooks(count, lambda value: value):
            run_modules(self._network, values, self._above)
        return max(largest, sum(kept.values())) + entering

    def _rows(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            values = images.contiguous(memory_format=torch.channels_last)
            values, frozen = run_modules(self._network, values, self._below)
        if not torch.is_grad_enabled():
            return self._top(values, frozen)
        found: Tensor = checkpoint(self._top, values, frozen, use_reentrant=False, preserve_rng_state=False)
        return found

    def _top(self, values: Tensor, frozen: Mapping[str, Tensor]) -> Tensor:
        _, trained = run_modules(self._network, values, self._above)
        return self._rows_of(concatenate_layers(self._network, {**frozen, **trained}))
