"""Where a project keeps what a search needs."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fne.core.params import load_key
from fne.core.runtime import Runtime, load_runtime
from fne.datasets.root import image_root
from fne.store.catalog import Captioned, Image, read_captions, read_images
from fne.store.lineage import Artifact


@dataclass(frozen=True)
class Catalog:
    """What there is to search: images by id, what is said about them, and the folder of their files."""

    images: dict[str, Image]
    captioned: dict[str, Captioned]
    root: Path
    artifacts: list[Artifact]

    @cached_property
    def ids(self) -> list[str]:
        """All image ids, in the order of the catalog."""
        return list(self.captioned)

    def file(self, image_id: str) -> Path | None:
        """Return where an image is, or None where the catalog has only its features."""
        image = self.images.get(image_id)
        return self.root / image.path if image else None

    def sentences(self, image_id: str) -> list[str]:
        """Return what is said about an image; nothing about one of the gallery."""
        record = self.captioned.get(image_id)
        return list(record.captions) if record else []


@dataclass(frozen=True)
class Project:
    """The artifacts of a project by its parameter file, at the places that `dvc.yaml` gives them."""

    params: Path

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog, read once."""
        images, images_artifact = read_images(self.path("data/images.jsonl"))
        captioned, captions_artifact = read_captions(self.path("data/captions.jsonl"))
        return Catalog(
            {image.id: image for image in images},
            {record.id: record for record in captioned},
            image_root(self.path(load_key(self.params, "catalog", "root"))),
            # Without image files there is none that could be of another data set.
            [captions_artifact, *[images_artifact] * bool(images)],
        )

    @cached_property
    def runtime(self) -> Runtime:
        """How to compute."""
        return load_runtime(self.params)

    @property
    def scratch(self) -> Path:
        """The scratch folder."""
        return self.path(str(self.runtime.scratch_folder()))

    @property
    def weights(self) -> Path:
        """The file of the network's weights."""
        return self.path(load_key(self.params, "extract", "weights"))

    @property
    def statistics(self) -> Path:
        """What is ordinary for each feature."""
        return self.path("features/statistics.h5")

    @property
    def embeddings(self) -> Path:
        """The store of image embeddings."""
        return self.path("features/embeddings")

    @property
    def vocabulary(self) -> Path:
        """The words that the model knows."""
        return self.path("captions/vocabulary.json")

    @property
    def model(self) -> Path:
        """The trained model."""
        return self.path("models/matching.safetensors")

    @property
    def image_vectors(self) -> Path:
        """The store of images in the joint space."""
        return self.path("vectors/images")

    @property
    def caption_vectors(self) -> Path:
        """The store of captions in the joint space."""
        return self.path("vectors/captions")

    def path(self, name: str) -> Path:
        """Return a path of the project; an absolute one stays as it is."""
        return self.params.parent / name
