"""What refuses to embed an image otherwise than the catalog's were embedded."""

import json

import pytest
from click.testing import CliRunner

from fne.cli import main
from fne.core.errors import InputError
from fne.retrieval.unseen import recorded_extraction
from fne.store.arrays import read_arrays, write_arrays
from fne.store.lineage import Artifact
from tests.retrieval.projects import draw


@pytest.fixture(autouse=True)
def new_image(project):
    draw(project / "new.png", "pink", "circle")


def fault(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["search", *arguments])
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return result.stderr


@pytest.mark.parametrize(
    ("arguments", "origin"),
    [
        (("new.png",), "models/matching.safetensors"),
        (("--by", "fne", "new.png"), "features/embeddings"),
        (("a red circle", "--in", "photos"), "models/matching.safetensors"),
    ],
)
def test_other_weights_are_refused_with_both_digests(project, arguments, origin):
    manifest = json.loads((project / "features/embeddings/manifest.json").read_text())
    made = manifest["lineage"]["weights"]["digest"][:12]
    weights = project / "weights/random.yaml"
    weights.write_text(weights.read_text().replace("seed: 0", "seed: 1"))
    message = fault(*arguments)
    assert message.startswith(
        f"Error: {origin} was made from weights {made}…, but weights/random.yaml holds weights "
    )
    assert message.endswith("…; run `dvc repro`\n")


def test_other_statistics_are_refused_with_both_digests(project):
    path = project / "features/statistics.h5"
    kept = read_arrays(path)
    made = kept.artifact.digest[:12]
    values = kept.values | {"mean": kept["mean"] + 1}
    write_arrays(path, "statistics", values, kept.artifact.settings, kept.artifact.lineage)
    assert fault("--by", "fne", "new.png").startswith(
        f"Error: features/embeddings was made from statistics {made}…, "
        "but features/statistics.h5 holds statistics "
    )


def test_imported_features_cannot_be_made_for_new_images():
    origin = Artifact(
        "features/embeddings", "embeddings", "", {}, {"activations": {"digest": "", "settings": {}}}
    )
    with pytest.raises(InputError) as error:
        recorded_extraction(origin)
    assert error.value.message == (
        "features/embeddings was made from imported features, and nothing is known of the network that "
        "computed them: new images cannot be searched with, only images of the catalog"
    )


def test_another_version_of_the_extractor_is_refused(monkeypatch):
    monkeypatch.setattr("fne.activations.extractor.EXTRACTOR_VERSION", 99)
    assert fault("--by", "fne", "new.png") == (
        "Error: features/embeddings was made with version 1 of the extractor, this is version 99; run `dvc repro`\n"
    )
