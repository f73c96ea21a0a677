"""The demo data set: drawn scenes with their sentences, in the format of Flickr8k.

The folder has `images/*.jpg` and `dataset.json` in Karpathy's format, with the true tags of each image, and
noisy ones as users give them. JPEG files are smaller than PNG files and do not depend on the build of zlib.
"""

import json
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fne.core.files import replacing_folder, write_text
from fne.core.settings import Section
from fne.datasets.demo.drawing import draw
from fne.datasets.demo.scenes import generator, scenes
from fne.datasets.demo.sentences import SENTENCES, sentences

QUALITY = 90
SPLITS = ("train", "val", "test")

Fraction = Annotated[float, Field(gt=0, lt=1)]


class Render(Section):
    """The section `render` of `params.yaml`."""

    seed: int = Field(0, ge=0, description="random seed of the drawing")
    images: int = Field(200, ge=1, le=10_000, description="how many images are drawn")
    val_share: Fraction = Field(0.15, description="the fraction of the images in the split val")
    test_share: Fraction = Field(0.25, description="the fraction of the images in the split test")
    side: int = Field(256, ge=32, le=1024, description="side of an image, in pixels")

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
    """Return the split of every image: exact fractions in random order."""
    val = round(settings.images * settings.val_share)
    test = round(settings.images * settings.test_share)
    names = ["val"] * val + ["test"] * test
    names = ["train"] * (settings.images - len(names)) + names
    generator(settings.seed, "splits").shuffle(names)
    return names


def describe_dataset(settings: Render) -> dict[str, Any]:
    """Return the contents of `dataset.json`, without drawing any image."""
    images = []
    numbered = enumerate(zip(splits(settings), scenes(settings.seed), strict=False))
    for number, (split, scene) in numbered:
        raws = sentences(scene, generator(settings.seed, number, "sentences"))
        ids = range(number * SENTENCES, (number + 1) * SENTENCES)
        images.append(
            {
                "imgid": number,
                "filename": filename(number),
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
                "tags": scene.tags,
                "user_tags": scene.user_tags(generator(settings.seed, number, "user tags")),
            }
        )
    return {"dataset": "demo", "images": images}


def write_dataset(settings: Render, folder: Path) -> Counter[str]:
    """Write the data set to `folder`, atomically; return the number of images per split."""
    dataset = describe_dataset(settings)
    with replacing_folder(folder) as temporary:
        (temporary / "images").mkdir()
        for number, scene in enumerate(islice(scenes(settings.seed), settings.images)):
            image = draw(scene, settings.side, generator(settings.seed, number, "grain"))
            # Without chroma subsampling, which would blur the edges of saturated shapes.
            image.save(temporary / "images" / filename(number), quality=QUALITY, subsampling="4:4:4")
        write_text(temporary / "dataset.json", json.dumps(dataset, ensure_ascii=False) + "\n")
    return Counter(image["split"] for image in dataset["images"])


def filename(number: int) -> str:
    """Return the name of an image's file, which is its id."""
    return f"scene-{number:04d}.jpg"
