"""A small task of fine-tuning: drawn images, few words, a network of three convolutions; and a small project."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from PIL import Image as Picture
from torch import nn

from fne.extraction.forward_pass import Network
from fne.extraction.layers import Tap
from fne.extraction.preprocess import shorter_side
from fne.extraction.settings import TORCHVISION
from fne.finetuning.data import CropChoices, RandomCrops
from fne.finetuning.network_rows import NetworkRows, Photos
from fne.finetuning.tuned_network import TunedNetwork, rows_of
from fne.matching.data import Pairs
from fne.matching.hard_negatives import LossChoices
from fne.matching.instance_loss import Classes, Instance, class_numbers
from fne.matching.mined_captions import AnchorDraw
from fne.matching.model import Shape, new_matcher
from fne.matching.task import MatchingData, MatchingOptions, MatchingTask, Objective, RateFactors
from fne.store.catalog import Captioned, write_captions, write_images
from fne.store.layout import Layer
from fne.text.tokens import read_tokens, write_tokens
from tests.support.datasets import image_entry
from tests.support.projects import SMALL, change_params
from tests.support.stages import COMMANDS

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
OBJECTIVE = Objective("ranking", LossChoices(), 0.5, 2.0, 1.0, 0.1, mined=True)
NETWORK_RATES = {"weights": 0.1, "biases": 0.2, "gains": 0.01, "first": 0.05}
FACTORS = RateFactors(words=0.5, gains=2.0, classifier=0.25)
CHOICES = CropChoices(0.6, 1.333, True, "bicubic")


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
    transform = rows_of({"kind": "layer", "rows": "unit" if unit else "none"}, [8])
    return TunedNetwork(small_network(dtype), TAPS[first:], transform, part, "0")


def draw_images(folder):
    """Draw images of several sizes; return their entries in the catalog, by id."""
    folder.mkdir(exist_ok=True)
    found = {}
    for number in range(COUNT):
        generator = np.random.default_rng(number)
        width, height = 240 + 8 * number, 300 - 6 * number
        pixels = generator.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        path = folder / f"{number:02d}.png"
        Picture.fromarray(pixels).resize((width, height), Picture.Resampling.NEAREST).save(path)
        found[path.name] = image_entry(path)
    return found


def captioned(split="train"):
    """All images, with one to three captions each."""
    return [Captioned(f"{number:02d}.png", split, ("x",) * (1 + number % 3), ()) for number in range(COUNT)]


def words(folder):
    """The words of all captions; word 2 + n says which image it is."""
    numbers = {
        caption_id: [1] * position + [2 + number, 1]
        for number, record in enumerate(captioned())
        for position, caption_id in enumerate(record.caption_ids)
    }
    write_tokens(folder / "tokens.h5", numbers, {}, {})
    return read_tokens(folder / "tokens.h5")


def network_rows(folder, network=None, draw=None, seed=0, workers=0):
    """The rows of the drawn images, with the crops of a draw read ahead."""
    files, root = draw_images(folder / "images"), folder / "images"

    def crops(epoch):
        return [[(each, epoch) for each in batch.image_ids] for batch in draw.batches(epoch)]

    photos = Photos(folder / "images.jsonl", files, root, shorter_side, TORCHVISION, workers)
    drawn = RandomCrops(files, root, seed, CHOICES)
    return NetworkRows(network or tuned_network(), NETWORK_RATES, photos, drawn, crops)


def small_task(
    folder: Path, network=None, objective=OBJECTIVE, batch=6, seed=0, workers=0, fixed_words=False, phases=2
):
    """A task on the drawn images, which also validates it."""
    draw = AnchorDraw(captioned(), seed, batch, 4)
    rows = network_rows(folder, network, draw, seed, workers)
    texts = Pairs(captioned(), rows, words(folder))
    matcher = new_matcher(replace(SHAPE), seed=1)
    matcher.text_encoder.words.requires_grad_(not fixed_words)
    torch.manual_seed(5)
    classes = Classes(Instance(COUNT, 5, True, 0.25), class_numbers(texts.image_ids))
    options = MatchingOptions(rectified=True, factors=[FACTORS] * phases, section="finetune")
    return MatchingTask(matcher, [objective] * phases, MatchingData(texts, texts, draw), options, classes)


MADE_ONCE = ("extract", "standardize", "embed", "tokenize", "train")
TRAIN = {
    "image_head": "dual_path",
    "dual_path.hidden": [12],
    "text_encoder": "bow_mlp",
    "bow_mlp.hidden": [12],
}
TRAIN |= {"embed_dim": 8, "word_dim": 6, "batch": 6, "epochs": 2, "rectified": True}
TRAIN |= {"image_class_weight": 1.0, "text_class_weight": 1.0}
TUNING = {"epochs": [1, 1], "learning_rate": [0.05, 0.01], "first": "conv2", "batch": 6, "candidates": 5}
COLORS = ["red", "green", "blue", "black", "white", "pink", "brown", "gray"]


def write_photos():
    """Draw images of one color each, and write their catalog."""
    splits = ["train"] * 8 + ["val"] * 4 + ["test"] * 4
    Path("photos").mkdir()
    images, captioned = [], []
    for number, split in enumerate(splits):
        name, color = f"{number:02d}.png", COLORS[number % 8]
        picture = Picture.new("RGB", (260 + number, 240), color)
        picture.paste("yellow", (10 * number, 20, 10 * number + 60, 90))
        picture.save(Path("photos", name))
        images.append(image_entry(Path("photos", name)))
        captioned.append(Captioned(name, split, (f"a {color} ground", f"{color} and yellow {number}"), ()))
    write_images(Path("data/images.jsonl"), images)
    write_captions(Path("data/captions.jsonl"), captioned)


def write_tunable_project(folder: Path, epochs: int = 1) -> None:
    """Draw photos, and train a model on a layer of a network; `folder`, with parameters, must be the current one."""
    own = {
        "catalog": {"root": "photos"},
        "extract": SMALL["extract"] | {"layers": ["conv2"], "resize": "shorter_side"},
        "embed": {"kind": "plain", "layer": "conv2"},
        "train": SMALL["train"] | TRAIN,
    }
    change_params(folder, SMALL | own)
    write_photos()
    for stage in MADE_ONCE:
        import_module(f"stages.{stage}").main.main(COMMANDS[stage].split(), standalone_mode=False)
    change_params(folder, {"finetune": TUNING | {"epochs": [epochs, epochs]}})


DESCRIBING = {"tagger": "tags", "captioner": "captions"}
LEARNED = {"units": 16, "word_dim": 8, "batch": 8, "epochs": 2, "threads": 1, "learning_rate": 0.01}
OF_KIND: dict[str, dict[str, object]] = {
    "tagger": {"concepts": "words", "words.min_images": 1, "words.stop_words": "keep"},
    "captioner": {"min_count": 1, "words.min_images": 2},
}
TUNED: dict[str, object] = {"first": "conv2", "batch": 6, "threads": 1, "learns": ["concept_head", "jointly"]}
TUNED |= {"epochs": [1, 2], "network_rate": [0.01, 0.001]}


def write_describing_project(folder: Path, kind: str, embed: dict[str, object] | None = None) -> None:
    """Draw photos, and train a tagger or captioner on a network; `folder` must be the current one."""
    own: dict[str, dict[str, object]] = {
        "catalog": {"root": "photos"},
        "extract": SMALL["extract"] | {"layers": ["conv1", "conv2"], "resize": "shorter_side"},
        "embed": embed or {"kind": "raw"},
        f"train_{kind}": LEARNED | OF_KIND[kind],
    }
    change_params(folder, SMALL | own)
    write_photos()
    for stage in ("extract", "standardize", "embed", f"train_{kind}"):
        import_module(f"stages.{stage}").main.main(COMMANDS[stage].split(), standalone_mode=False)
    change_params(folder, {f"tune_{kind}": TUNED})
