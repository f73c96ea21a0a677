import pytest

from fne.core.errors import InputError
from fne.extraction.preprocess import CAFFE, TORCHVISION
from fne.extraction.recorded_extractor import recorded_extraction, recorded_input
from fne.store.artifact import Artifact

EXTRACTED = {
    "backbone": "alexnet", "activations": "post_relu", "resize": "squash", "crops": "center", "precision": "float32",
    "layers": "all", "views": "mean",
}  # fmt: skip


def origin(settings, **lineage):
    entries = {"activations": {"digest": "a", "settings": settings}} | lineage
    return Artifact("features/embeddings", "embeddings", "", {}, entries)


def test_a_new_image_cannot_be_embedded_like_imported_features():
    with pytest.raises(InputError) as error:
        recorded_extraction(origin({}))
    assert error.value.message == (
        "features/embeddings was made from imported features, and the network that computed them is unknown; "
        "search with an image of the catalog"
    )


@pytest.mark.parametrize("fed", [CAFFE, TORCHVISION])
def test_images_are_fed_as_the_record_says(fed):
    recorded = EXTRACTED | {"input": fed.model_dump()}
    assert recorded_input(origin(recorded, weights={"digest": "w", "settings": {}})) == fed
