"""The image network while it is trained: frozen below a layer, trained from there on.

Dropout and batch normalization stay in evaluation mode, with the statistics of the weights file. So an
image's row does not depend on the other images of the batch, and a batch can pass through the network in
parts. Only the rows are kept. When their gradient is known, each part passes through again and adds its share
of the gradient of the weights (gradient caching). So memory depends on the size of a part, not on the batch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from fne.core.errors import InputError
from fne.core.settings import not_one_of
from fne.extraction.forward_pass import Network, run_modules
from fne.extraction.layers import Tap
from fne.extraction.networks import BACKBONES
from fne.finetuning.settings import ALL, BIASES, FIRST, GAINS, WEIGHTS


def trained_taps(backbone: str, layer: str, first: str) -> list[Tap]:
    """Return the layers to train, from `first` or all, up to the `layer` that the image head reads."""
    if backbone not in BACKBONES:
        raise InputError(
            f"params.yaml: finetune.first: {backbone} cannot be tuned; set extract.backbone to one of "
            f"{', '.join(sorted(BACKBONES))}"
        )
    known = BACKBONES[backbone].taps
    names = [tap.layer for tap in known]
    # The pooled output of a network has no weights of its own and comes after all layers.
    below = known[: names.index(layer) + 1] if layer in names else known
    if first == ALL:
        return list(below)
    allowed = [tap.layer for tap in below]
    if first in names and first not in allowed:
        raise InputError(
            f"params.yaml: finetune.first is '{first}', which comes after '{layer}', the layer that the "
            f"model reads; use {ALL} or one of {', '.join(allowed)}"
        )
    if first not in allowed:
        raise InputError(
            f"params.yaml: finetune.first: {not_one_of(first, [ALL, *allowed])}, the layers of {backbone}"
        )
    return list(below[allowed.index(first) :])


class TunedNetwork(nn.Module):
    """Maps images to rows, the values of one layer.

    Args:
        network: the network up to that layer, its only one.
        trained: the layers that are trained, the last ones of the network.
        unit: whether rows are scaled to length one.
        part: how many images pass through the network at once.
        entrance: the name of the network's first convolution in torchvision.
    """

    def __init__(
        self, network: Network, trained: Sequence[Tap], unit: bool, part: int, entrance: str
    ) -> None:
        super().__init__()
        self._network = network
        self._unit = unit
        self._entrance = entrance
        self.part = part
        names = list(network.modules)
        start = names.index(network.parent(trained[0].weighted))
        self._below, self._above = names[:start], names[start:]
        for module in network.modules.values():
            module.requires_grad_(False)
        for tap in trained:
            for name in filter(None, (tap.weighted, tap.normalized)):
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
        return self._network.layers[0].features

    def full_state(self) -> dict[str, Tensor]:
        """Return all weights and statistics, the frozen ones included, by their names in torchvision."""
        return {
            f"{name}.{key}": value
            for name, module in self._network.modules.items()
            for key, value in module.state_dict().items()
        }

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
            self._top(values)
        return max(largest, sum(kept.values())) + entering

    def _frozen(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            values = images.contiguous(memory_format=torch.channels_last)
            for name in self._below:
                values = self._network.modules[name](values)
        return values

    def _rows(self, images: Tensor) -> Tensor:
        values = self._frozen(images)
        if not torch.is_grad_enabled():
            return self._top(values)
        found: Tensor = checkpoint(self._top, values, use_reentrant=False, preserve_rng_state=False)
        return found

    def _top(self, values: Tensor) -> Tensor:
        rows = run_modules(self._network, values, self._above)
        return functional.normalize(rows, dim=1) if self._unit else rows
