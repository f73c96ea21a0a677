"""The demo's data set: drawn scenes with their sentences, laid out like Flickr8k.

The folder holds `images/*.jpg` and `dataset.json` in Karpathy's format, so that the demo
goes through the same reader as the real data sets. JPEG and not PNG: smaller, and the
encoder's output does not depend on the build of zlib.
"""

import json
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fne.core.params import Section
from fne.datasets.drawing import draw
from fne.datasets.grammar import SENTENCES, sentences
from fne.datasets.scenes import generator, scenes
from fne.store.files import replacing_folder, write_text

QUALITY = 90
SPLITS = ("train", "val", "test")

Share = Annotated[float, Field(gt=0, lt=1)]


class Render(Section):
    """The `render` section: how many scenes, in which splits, how large."""

    seed: Annotated[int, Field(ge=0)]
    images: Annotated[int, Field(ge=1, le=10_000)]
    val_share: Share
    test_share: Share
    side: Annotated[int, Field(ge=32, le=1024)]

    @model_validator(mode="after")
    def _every_split_has_images(self) -> Self:
        if self.val_share + self.test_share >= 1:
            raise ValueError(
                f"val_share {self.val_share} and test_share {self.test_share} leave nothing for train; "
                "their sum must be below 1"
            )
        counts = Counter(splits(self))
        empty = [split for split in SPLITS if not counts[split]]
        if empty:
            raise ValueError(f"images {self.images} is too few: none is left for {' and '.join(empty)}")
        return self


def splits(settings: Render) -> list[str]:
    """Return the split of every image: exact shares in random order."""
    val = round(settings.images * settings.val_share)
    test = round(settings.images * settings.test_share)
    names = ["val"] * val + ["test"] * test
    names = ["train"] * (settings.images - len(names)) + names
    generator(settings.seed, "splits").shuffle(names)
    return names


def describe_world(settings: Render) -> dict[str, Any]:
    """Return the contents of `dataset.json`, which needs no picture to be drawn."""
    images = []
    numbered = enumerate(zip(splits(settings), scenes(settings.seed), strict=False))
    for number, (split, scene) in numbered:
        raws = sentences(scene, generator(settings.seed, number, "sentences"))
        ids = range(number * SENTENCES, (number + 1) * SENTENCES)
        images.append(
            {
                "imgid": number,
                "filename": _filename(number),
                "split": split,
                "sentids": list(ids),
                "sentences": [
                    {
                        "raw": raw,
                        "tokens": re.findall("[a-z]+", raw.lower()),
                        "imgid": number,
                        "sentid": sentid,
                    }
                    for raw, sentid in zip(raws, ids, strict=True)
                ],
            }
        )
    return {"dataset": "demo", "images": images}


def write_world(settings: Render, folder: Path) -> Counter[str]:
    """Draw the world into `folder`, which appears whole or not at all; return the images of each split."""
    world = describe_world(settings)
    with replacing_folder(folder) as temporary:
        (temporary / "images").mkdir()
        for number, scene in enumerate(islice(scenes(settings.seed), settings.images)):
            picture = draw(scene, settings.side, generator(settings.seed, number, "grain"))
            # Full color resolution: the edges of saturated shapes would bleed without it.
            picture.save(temporary / "images" / _filename(number), quality=QUALITY, subsampling="4:4:4")
        write_text(temporary / "dataset.json", json.dumps(world, ensure_ascii=False) + "\n")
    return Counter(image["split"] for image in world["images"])


def _filename(number: int) -> str:
    return f"scene-{number:04d}.jpg"
