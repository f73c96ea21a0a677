"""The networks whose activations are extracted.

A backbone is one entry of `BACKBONES`. It lists the layers in the order of the network, and the modules that
an image passes through in turn. The layers are all convolutions and all hidden fully connected layers, after
normalization and ReLU where they have one. The last layer, the ImageNet classifier, is excluded.

Further outputs are extracted only where `extract.layers` names them: the pooled output of a
ResNet, `pool5`, is not a layer of the full-network embedding.

Every network of timm is a backbone too, under the name `timm/NAME`; see `fne.extraction.timm_networks`.
"""

from torch import nn

from fne.extraction.layers import OUTPUTS, RESNET_BLOCKS, TAPS, VGG_CONVOLUTIONS, Backbone
from fne.extraction.settings import is_timm
from fne.extraction.timm_networks import build_timm, open_timm


def find_backbone(name: str) -> Backbone:
    """Return the backbone of a name."""
    return open_timm(name) if is_timm(name) else BACKBONES[name]


def build_backbone(name: str) -> nn.Module:
    """Return the network of this name in inference mode."""
    if is_timm(name):
        return build_timm(name)
    if name in VGG_CONVOLUTIONS:
        return _build_vgg(*VGG_CONVOLUTIONS[name]).eval()
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


# The filters of each block of a VGG network.
_VGG_FILTERS = (64, 128, 256, 512, 512)

BACKBONES = {
    name: Backbone(taps, _resnet_modules if name in RESNET_BLOCKS else _vgg_modules, OUTPUTS.get(name, ()))
    for name, taps in TAPS.items()
}
