"""The networks whose activations are extracted.

A backbone is one entry of `BACKBONES`. It lists the layers in the order of the network, and the modules that
an image passes through in turn. The layers are all convolutions and all hidden fully connected layers, after
normalization and ReLU where they have one. The last layer, the ImageNet classifier, is excluded.

Further outputs are extracted only where `extract.layers` names them: the pooled output of a
ResNet, `pool5`, is not a layer of the full-network embedding.

Every network of timm is a backbone too, under the name `timm/NAME`; see `fne.extraction.timm_networks`.
"""

from torch import nn

from fne.extraction.layers import Backbone, Tap
from fne.extraction.timm_networks import build_timm, is_timm, open_timm


def find_backbone(name: str) -> Backbone:
    """Return the backbone of a name."""
    return open_timm(name) if is_timm(name) else BACKBONES[name]


def build_backbone(name: str) -> nn.Module:
    """Return the network of this name in inference mode."""
    if is_timm(name):
        return build_timm(name)
    if name in _VGG_CONVOLUTIONS:
        return _build_vgg(*_VGG_CONVOLUTIONS[name]).eval()
    from torchvision.models import get_model  # torchvision: slow to import

    model: nn.Module = get_model(name, weights=None)
    return model.eval()


def _build_vgg(*convolutions: int) -> nn.Module:
    """Return torchvision's VGG network, given its number of convolutions per block.

    It is built here, because importing torchvision takes longer than the row of an image.
    """
    features, channels = list[nn.Module](), 3
    for count, filters in zip(convolutions, _VGG_FILTERS, strict=True):
        for _ in range(count):
            features += [nn.Conv2d(channels, filters, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
            channels = filters
        features.append(nn.MaxPool2d(kernel_size=2, stride=2))
    classifier = [nn.Linear(channels * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    classifier += [nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000)]
    return nn.ModuleDict(
        {
            "features": nn.Sequential(*features),
            "avgpool": nn.AdaptiveAvgPool2d((7, 7)),
            "classifier": nn.Sequential(*classifier),
        }
    )


def _vgg_modules(model: nn.Module) -> dict[str, nn.Module]:
    features = {
        f"features.{name}": module for name, module in model.get_submodule("features").named_children()
    }
    classifier = {
        f"classifier.{name}": module for name, module in model.get_submodule("classifier").named_children()
    }
    return features | {"avgpool": model.get_submodule("avgpool"), "flatten": nn.Flatten()} | classifier


def _resnet_modules(model: nn.Module) -> dict[str, nn.Module]:
    stem = {name: model.get_submodule(name) for name in ("conv1", "bn1", "relu", "maxpool")}
    blocks = {
        f"layer{number}.{name}": block
        for number in range(1, 5)
        for name, block in model.get_submodule(f"layer{number}").named_children()
    }
    return stem | blocks


def _vgg_taps(*convolutions: int) -> tuple[Tap, ...]:
    """Return the layers of a VGG network, given its number of convolutions per block."""
    taps, index = [], 0
    for block, count in enumerate(convolutions, start=1):
        for position in range(1, count + 1):
            taps.append(_sequential(f"conv{block}_{position}", "features", index))
            index += 2
        index += 1  # the max-pool between blocks
    return (*taps, _sequential("fc6", "classifier", 0), _sequential("fc7", "classifier", 3))


def _resnet_taps(convolutions: int, *blocks: int) -> tuple[Tap, ...]:
    """Return the layers of a ResNet, given its convolutions per block and its blocks per stage.

    The last convolution of a block and the one of its shortcut have no ReLU of their own:
    the ReLU of the block follows their sum.
    """
    taps = [Tap("conv1", "conv1", activated="bn1", normalized="bn1", rectify=True)]
    for stage, count in enumerate(blocks, start=1):
        for block in range(count):
            prefix = f"layer{stage}.{block}"
            for number in range(1, convolutions + 1):
                normalized = f"{prefix}.bn{number}"
                name = f"conv{stage + 1}_{block + 1}_{number}"
                own_relu = number < convolutions
                taps.append(Tap(name, f"{prefix}.conv{number}", normalized, normalized, rectify=own_relu))
            if block == 0 and (stage > 1 or convolutions == 3):
                name, shortcut = f"conv{stage + 1}_{block + 1}_shortcut", f"{prefix}.downsample"
                taps.append(Tap(name, f"{shortcut}.0", f"{shortcut}.1", f"{shortcut}.1"))
    return tuple(taps)


def _resnet(convolutions: int, *blocks: int) -> Backbone:
    """Return a ResNet; its pooled output is the mean of the last block over all positions."""
    last = f"layer{len(blocks)}.{blocks[-1] - 1}"
    pooled = Tap("pool5", f"{last}.conv{convolutions}", activated=last, block=True)
    return Backbone(_resnet_taps(convolutions, *blocks), _resnet_modules, (pooled,))


def _sequential(layer: str, part: str, index: int) -> Tap:
    return Tap(layer, f"{part}.{index}", f"{part}.{index + 1}")


# Of each block of a VGG network.
_VGG_FILTERS = (64, 128, 256, 512, 512)
_VGG_CONVOLUTIONS = {"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}

_ALEXNET_TAPS = (
    *(
        _sequential(f"conv{number}", "features", index)
        for number, index in enumerate([0, 3, 6, 8, 10], start=1)
    ),
    _sequential("fc6", "classifier", 1),
    _sequential("fc7", "classifier", 4),
)

BACKBONES = {
    "alexnet": Backbone(_ALEXNET_TAPS, _vgg_modules),
    "resnet18": _resnet(2, 2, 2, 2, 2),
    "resnet50": _resnet(3, 3, 4, 6, 3),
    **{name: Backbone(_vgg_taps(*counts), _vgg_modules) for name, counts in _VGG_CONVOLUTIONS.items()},
}
