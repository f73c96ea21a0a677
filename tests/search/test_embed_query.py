import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fne.cli import main
from fne.core.errors import InputError
from fne.matching.model_file import read_model_file
from fne.search import embed_query, engine
from fne.search.engine import search
from fne.search.numpy_model import PREFIX, embed_sentence
from fne.search.open_project import ExternalImage, Project, parse_query
from fne.store.arrays import read_arrays, write_arrays
from fne.store.artifact import Artifact
from fne.store.rows import Rows
from tests.support.search import draw

MODEL = Path("models/matching.safetensors")


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


def test_another_version_of_the_extractor_is_refused(monkeypatch):
    monkeypatch.setattr("fne.extraction.extractor.EXTRACTOR_VERSION", 99)
    assert fault("--by", "fne", "new.png") == (
        "Error: features/embeddings was made with version 1 of the extractor, but this is version 99; "
        "run `dvc repro`\n"
    )


def test_torch_embeds_a_sentence_as_numpy_does(project):
    expected = embed_sentence(read_model_file(MODEL, PREFIX), [1, 2, 3])
    np.testing.assert_allclose(
        embed_query.embed_sentences(MODEL, [[1, 2, 3]])[0], expected, rtol=1e-5, atol=1e-6
    )


def test_a_text_encoder_without_a_numpy_implementation_is_computed_with_torch(project, monkeypatch):
    expected = search(Project(Path("params.yaml")), "a red circle", None, None, 24)
    calls, embed_with_torch = [], embed_query.embed_sentences
    monkeypatch.setattr(engine, "SENTENCE_ENCODERS", {})
    monkeypatch.setattr(
        embed_query, "embed_sentences", lambda *given: calls.append(given) or embed_with_torch(*given)
    )
    found = search(Project(Path("params.yaml")), "a red circle", None, None, 24)
    assert len(calls) == 1
    scores = [{match.id: match.score for match in each.matches} for each in (found, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def test_a_model_that_was_replaced_during_the_search_is_refused(project):
    before = Artifact(MODEL, "model", "0" * 64)
    with pytest.raises(
        InputError, match=r"holds model .*…, but .* holds model 000000000000…; run `dvc repro`"
    ):
        embed_query.open_row_source(Project(Path("params.yaml")), before)


def test_a_query_photo_that_is_replaced_meanwhile_is_kept_under_no_wrong_digest(project):
    searched = Project(Path("params.yaml"))
    catalog = searched.catalog
    first, second = parse_query("new.png", catalog), project / "second.png"
    draw(second, "pink", "square")
    second.replace("new.png")
    replaced = parse_query("new.png", catalog)
    assert isinstance(first, ExternalImage)
    assert isinstance(replaced, ExternalImage)
    embeddings = Rows.open(Path("features/embeddings")).artifact
    files = [Path("weights/random.yaml"), Path("features/statistics.h5")]
    embedder = embed_query.open_embedder(embeddings, *files, searched.runtime, project / "scratch")
    vector = embedder.embed(first)
    Path("new.png").write_bytes(first.content)
    alone = embed_query.open_embedder(embeddings, *files, searched.runtime, project / "other")
    assert np.array_equal(vector, alone.embed(first))
    assert not np.array_equal(vector, embedder.embed(replaced))
