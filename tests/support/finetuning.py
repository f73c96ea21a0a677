"""A small task of fine-tuning: drawn images, few words, a network of three convolutions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image as Picture
from torch import nn

from fne.extraction.backbones import Tap
from fne.extraction.network import Network
from fne.extraction.preprocess import CROPS, TORCHVISION, shorter_side
from fne.losses.instance import Classes, Instance, class_numbers
from fne.models.matcher import Shape, new_matcher
from fne.store.catalog import Captioned, Image
from fne.store.layout import Layer
from fne.tasks.finetuning.data import Captions, CropChoices, RandomCrops
from fne.tasks.finetuning.network import TunedNetwork
from fne.tasks.finetuning.task import FinetuningTask, Images, Objective, Rates, network_rates
from fne.text.tokens import read_tokens, write_tokens

COUNT = 12
TAPS = (
    Tap("conv1", "0", "2", normalized="1"),
    Tap("conv2", "3", "5", normalized="4"),
    Tap("conv3", "6", "7"),
)
SHAPE = Shape(
    "dual_path", "bow_mlp", "cosine", False, 8, 16, 6, 5,
    {"hidden": [7], "batch_norm_momentum": 0.1, "batch_norm_epsilon": 0.001, "initial": "fan_in"},
    {"hidden": [7], "dropout": 0.3, "batch_norm_momentum": 0.1, "batch_norm_epsilon": 1e-5, "initial": "xavier"},
)  # fmt: skip
OBJECTIVE = Objective(0.5, 2.0, 1.0, 0.1)
RATES = Rates(network_rates(0.1, 0.2, 0.01, 0.05), words=0.5, gains=2.0, classifier=0.25)


def small_network(dtype=torch.float32):
    """A network of three convolutions, the first two with batch normalization, and dropout behind them."""
    torch.manual_seed(3)
    modules = [
        nn.Conv2d(3, 4, 5, stride=4), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
        nn.Conv2d(4, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(inplace=True),
        nn.Conv2d(6, 8, 3, stride=2), nn.ReLU(inplace=True),
    ]  # fmt: skip
    for module in modules:
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    named = {str(number): module.to(dtype).eval() for number, module in enumerate(modules)}
    return Network(named, TAPS[-1:], [Layer("conv3", 8)])


def tuned_network(first=0, unit=False, part=3, dtype=torch.float32):
    return TunedNetwork(small_network(dtype), TAPS[first:], unit, part, "0")


def draw_images(folder):
    """Draw images of several sizes; return their entries in the catalog, by id."""
    import hashlib

    folder.mkdir(exist_ok=True)
    found = {}
    for number in range(COUNT):
        generator = np.random.default_rng(number)
        width, height = 240 + 8 * number, 300 - 6 * number
        pixels = generator.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        path = folder / f"{number:02d}.png"
        Picture.fromarray(pixels).resize((width, height), Picture.Resampling.NEAREST).save(path)
        content = path.read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        found[path.name] = Image(path.name, path.name, sha256, len(content), width, height)
    return found


def captions(folder, split="train"):
    """Captions of all images, one to three each; word 2 + n says which image it is."""
    records = [
        Captioned(f"{number:02d}.png", split, ("x",) * (1 + number % 3), ()) for number in range(COUNT)
    ]
    words = {
        caption_id: [1] * position + [2 + number, 1]
        for number, record in enumerate(records)
        for position, caption_id in enumerate(record.caption_ids)
    }
    write_tokens(folder / "tokens.h5", words, {}, {})
    return Captions(records, read_tokens(folder / "tokens.h5"))


def small_task(folder: Path, network=None, objective=OBJECTIVE, batch=6, seed=0, workers=0, rectified=True):
    """A task on the drawn images, which also validates it."""
    files, texts = draw_images(folder / "images"), captions(folder)
    torch.manual_seed(5)
    loss = Instance(COUNT, 5, True, 0.25)
    choices = CropChoices(0.6, 1.333, True, "bicubic")

    def views(ids):
        for each in ids:
            with Picture.open(folder / "images" / each) as image:
                yield CROPS["center"](shorter_side(image.convert("RGB")))[0]

    return FinetuningTask(
        network or tuned_network(),
        new_matcher(replace(SHAPE), seed=1),
        Classes(loss, class_numbers(texts.image_ids)),
        objective,
        RATES,
        texts,
        texts,
        Images(RandomCrops(files, folder / "images", seed, choices), views, TORCHVISION, workers),
        seed,
        batch,
        4,
        rectified,
    )
