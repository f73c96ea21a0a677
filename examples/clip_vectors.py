r"""Compute the vectors of all images and captions of the catalog with a CLIP model, as a yardstick.

    pip install -e '.[clip]'
    python -m examples.clip_vectors --model ViT-B-32 --weights /path/to/open_clip_model.safetensors
    fne import clip_images.npz
    fne import --captions clip_captions.npz
    cp pipelines/imported/pipeline.yaml pipelines/imported/dvc.yaml
    dvc repro pipelines/imported/dvc.yaml     # with the two stores named in pipelines/imported/params.yaml

The model comes from open_clip. Its weights are a local file; nothing is downloaded. Vectors have length one.
`--configuration` names a JSON file of open_clip's form for a model that open_clip does not list.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch.nn import functional

import fne

BATCH = 64


@click.command()
@click.option("--model", default="ViT-B-32", show_default=True, help="The name of the model in open_clip.")
@click.option("--weights", type=click.Path(exists=True, path_type=Path), help="Its weights; random without.")
@click.option("--configuration", type=click.Path(exists=True, path_type=Path), help="Of a model of your own.")
@click.option("--project", type=click.Path(path_type=Path), default=Path(), help="The folder of the project.")
@click.option("--images", type=click.Path(path_type=Path), default=Path("clip_images.npz"), show_default=True)
@click.option(
    "--captions", type=click.Path(path_type=Path), default=Path("clip_captions.npz"), show_default=True
)
def main(
    model: str, weights: Path | None, configuration: Path | None, project: Path, images: Path, captions: Path
) -> None:
    """Write the vectors of both sides as npz files that `fne import` reads."""
    import open_clip

    if configuration:
        open_clip.add_model_config(configuration)
        model = configuration.stem
    torch.manual_seed(0)
    network, _, prepare = open_clip.create_model_and_transforms(model, pretrained=weights and str(weights))
    tokenizer, catalog = open_clip.get_tokenizer(model), fne.load_catalog(project)
    network.eval()

    def of_images(ids: Sequence[str]) -> torch.Tensor:
        return network.encode_image(torch.stack([prepare(catalog.open(each)) for each in ids]))

    def of_captions(texts: Sequence[str]) -> torch.Tensor:
        return network.encode_text(tokenizer(list(texts)))

    ids = catalog.ids()
    pairs = [(image, number, text) for image in ids for number, text in enumerate(catalog.captions[image])]
    write(images, {"ids": ids, "features": encode(of_images, ids)})
    write(
        captions,
        {
            "ids": [image for image, _, _ in pairs],
            "number": [number for _, number, _ in pairs],
            "features": encode(of_captions, [text for _, _, text in pairs]),
        },
    )


@torch.inference_mode()
def encode(function: Any, items: Sequence[str]) -> np.ndarray:
    """Return vectors (items, dim) of length one, in float32."""

    def blocks() -> Iterator[np.ndarray]:
        with click.progressbar(range(0, len(items), BATCH), label=function.__name__) as starts:
            for start in starts:
                vectors = function(items[start : start + BATCH]).float()
                yield functional.normalize(vectors, dim=1).numpy()

    return np.concatenate(list(blocks()))


def write(path: Path, arrays: dict[str, Any]) -> None:
    """Write an npz file, unless there is one."""
    if path.exists():
        raise click.UsageError(f"{path} exists and is not replaced; name another file")
    np.savez(path, **{name: np.array(values) for name, values in arrays.items()})
    click.echo(f"{path}: {json.dumps({name: list(np.shape(values)) for name, values in arrays.items()})}")


if __name__ == "__main__":
    main()
