import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fne.cli import main
from fne.core.errors import InputError
from fne.matching.model_file import read_model_file
from fne.matching.numpy_model import PREFIX, embed_sentences
from fne.search import embed_query
from fne.search.decode_process import decode_pixels
from fne.search.engine import images_for_sentence, search, sentences_for_image, similar_images
from fne.search.open_project import ExternalImage, Project, parse_query
from fne.search.snapshot import fingerprint, load_snapshot
from fne.serve.session import Live
from fne.store.arrays import read_arrays, write_arrays
from fne.store.artifact import Artifact
from fne.store.rows import Rows
from tests.serve.test_app import png
from tests.support.finetuning import TUNING, write_tunable_project
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.search import draw, run_stages

MODEL = Path("models/matching/model.safetensors")


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
        (("new.png",), "models/matching/model.safetensors"),
        (("--by", "fne", "new.png"), "features/embeddings"),
        (("a red circle", "--in", "photos"), "models/matching/model.safetensors"),
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
    model = read_model_file(MODEL, PREFIX)
    found = embed_query.torch_encoder(model.artifact)([[1, 2, 3]])
    np.testing.assert_allclose(found, embed_sentences(model, [[1, 2, 3]]), rtol=1e-5, atol=1e-6)


def test_another_text_encoder_is_computed_with_torch(project, monkeypatch):
    expected = search(Project(Path("params.yaml")), "a red circle", None, None, 24)
    calls, open_encoder = [], embed_query.torch_encoder
    monkeypatch.setattr("fne.search.snapshot.TEXT_ENCODER", "none")
    monkeypatch.setattr(
        embed_query, "torch_encoder", lambda *given: calls.append(given) or open_encoder(*given)
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
        embed_query.open_model_network(Project(Path("params.yaml")), before)


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


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A project whose image network was trained together with the model."""
    folder = tmp_path_factory.mktemp("tuned")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copy(ROOT / "params.yaml", folder)
        shutil.copytree(ROOT / "weights", folder / "weights")
        write_tunable_project(folder)
        change_params(folder, {"finetune": TUNING})
        run_stages("encode", "finetune", "encode_tuned")
    return folder


@pytest.fixture
def tuned_project(tuned, tmp_path, monkeypatch):
    folder = tmp_path / "tuned"
    shutil.copytree(tuned, folder)
    monkeypatch.chdir(folder)
    return folder


def scores(answer):
    return [(match.id, match.score) for match in answer.matches]


def test_a_tuned_network_answers_as_the_search_does(tuned_project, tmp_path):
    """Vectors are those of the tuned network, and embeddings those of the network before the tuning."""
    project = tuned_project
    (project / "album").mkdir()
    file = project / "album/new.png"
    file.write_bytes(png("teal", (260, 240)))
    session = Live(project / "params.yaml", project / "album", "tuned").session
    session.prepare()
    snapshot, searched = session.snapshot, Project(project / "params.yaml", "tuned")
    assert snapshot.model.artifact.name == "tuned"
    text = "a red ground"
    found = images_for_sentence(snapshot, text, 16)
    assert scores(found) == scores(search(searched, text, None, None, 16))
    in_folder = images_for_sentence(snapshot, text, 16, folder=session.index())
    assert scores(in_folder) == scores(search(searched, text, None, project / "album", 16))
    content = png("olive", (250, 240))
    other = tmp_path / "other.png"
    other.write_bytes(content)
    digest = session.add_photo("0" * 64, decode_pixels(content, 10**6)).sha256
    photo = session.find_image(None, digest)
    sentences = sentences_for_image(snapshot, photo, 32)
    assert scores(sentences) == scores(search(searched, str(other), None, None, 32))
    similar = similar_images(snapshot, photo, 16)
    np.testing.assert_allclose(
        [score for _, score in scores(similar)],
        [score for _, score in scores(search(searched, str(other), "plain", None, 16))],
        rtol=1e-6,
    )


def test_vectors_of_a_tuned_network_do_not_belong_to_the_model_before_it(tuned_project):
    params = tuned_project / "params.yaml"
    before, tuned = fingerprint(params), fingerprint(params, "tuned")
    shutil.rmtree("vectors/images")
    shutil.copytree("vectors/tuned/images", "vectors/images")
    assert fingerprint(params) != before
    assert fingerprint(params, "tuned") == tuned
    with pytest.raises(InputError, match=r"holds model .*, but .*vectors/images was made from tuned .*; run"):
        load_snapshot(params)
    assert load_snapshot(params, "tuned").model.artifact.name == "tuned"
