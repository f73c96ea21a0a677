"""Small data sets and image files for the tests of readers and catalog."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fne.core.files import file_digest
from fne.datasets.read import Catalog, CatalogResult, check_catalog, read_catalog
from fne.store.catalog import Image as Entry


def picture(seed: int = 0, width: int = 12, height: int = 10) -> Image.Image:
    """Return an RGB image of noise, a different one for each seed."""
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def encoded(image: Image.Image, format_name: str = "JPEG", **options: Any) -> bytes:
    """Return the bytes of an image file."""
    file = io.BytesIO()
    image.save(file, format_name, **options)
    return file.getvalue()


def image_entry(path: Path) -> Entry:
    """Return the entry of an image file in a catalog of its folder."""
    with Image.open(path) as opened:
        return Entry(path.name, path.name, file_digest(path), path.stat().st_size, *opened.size)


def write_images(folder: Path, *names: str) -> None:
    """Write an image file for every name, each with different content."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(picture(seed=sum(name.encode()) + len(name))))


def entry(name: str, split: str = "train", *captions: object) -> dict[str, Any]:
    """Return an image in Karpathy's format; it has one caption if none is given."""
    return {"filename": name, "split": split, "sentences": [{"raw": each} for each in captions or ["a dog"]]}


def write_karpathy(root: Path, *entries: dict[str, Any], images: bool = True) -> Path:
    """Write `dataset.json` and all images it names."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / "dataset.json"
    path.write_text(json.dumps({"images": entries}))
    if images:
        write_images(root / "images", *(each["filename"] for each in entries))
    return path


def build(root: Path, **settings: Any) -> CatalogResult:
    """Read the catalog of `root` in this process, without a cache."""
    shares = {"val_share": 0.25, "test_share": 0.25}
    result = read_catalog(root, "auto", Catalog(**shares | settings), 0, None)
    check_catalog(root, result)
    return result


def splits(result: CatalogResult) -> dict[str, str]:
    """Return the split of every image of a catalog."""
    return {record.id: record.split for record in result.captioned}
