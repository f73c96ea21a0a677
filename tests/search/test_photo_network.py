"""New photos go through the network that made what they are compared with."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.search import engine
from fne.search.decode_process import decode_pixels
from fne.search.open_project import Project
from fne.search.snapshot import fingerprint, load_snapshot
from fne.serve.answers import Filters, find_image, images_for_sentence, sentences_for_image, similar_images
from fne.serve.session import Live
from fne.store.rows import Rows
from tests.serve.test_app import png
from tests.support.finetuning import TUNING, write_tunable_project
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.search import run_stages


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
        run_stages("finetune", "encode")
    return folder


@pytest.fixture
def project(tuned, tmp_path, monkeypatch):
    folder = tmp_path / "project"
    shutil.copytree(tuned, folder)
    monkeypatch.chdir(folder)
    return folder


def scores(matches):
    return [(match["id"], match["score"]) for match in matches]


def wanted(answer):
    return [(match.id, match.score) for match in answer.matches]


def test_a_tuned_network_answers_as_the_search_does(project, tmp_path):
    """Vectors are those of the tuned network, and embeddings those of the network before the tuning."""
    (project / "album").mkdir()
    file = project / "album/new.png"
    file.write_bytes(png("teal", (260, 240)))
    session = Live(project / "params.yaml", project / "album").session
    session.prepare()
    searched = Project(project / "params.yaml")
    assert session.snapshot.joint.model.artifact.name == "tuned"
    text = "a red ground"
    found = images_for_sentence(session, text, Filters(), 16)
    assert scores(found["matches"]) == wanted(engine.search(searched, text, None, None, 16))
    in_folder = images_for_sentence(session, text, Filters("folder"), 16)
    assert scores(in_folder["matches"]) == wanted(engine.search(searched, text, None, project / "album", 16))
    content = png("olive", (250, 240))
    other = tmp_path / "other.png"
    other.write_bytes(content)
    digest = session.add_photo("0" * 64, decode_pixels(content, 10**6)).sha256
    photo = find_image(session, None, digest)
    sentences = sentences_for_image(session, photo, 32)
    assert scores(sentences["matches"]) == wanted(engine.search(searched, str(other), None, None, 32))
    similar = similar_images(session, photo, None, Filters(), 16)
    np.testing.assert_allclose(
        [score for _, score in scores(similar["matches"])],
        [score for _, score in wanted(engine.search(searched, str(other), "plain", None, 16))],
        rtol=1e-6,
    )


def test_vectors_of_a_tuned_network_do_not_belong_to_the_model_before_it(project):
    before = fingerprint(project / "params.yaml")
    change_params(project, {"finetune": {"epochs": 0}})
    run_stages("finetune")  # says that nothing was tuned; the vectors are still those of the tuned network
    assert "tuned" in Rows.open(Path("vectors/images")).artifact.lineage
    assert fingerprint(project / "params.yaml") != before
    with pytest.raises(InputError, match=r"holds model .*, but .*vectors/images was made from tuned .*; run"):
        load_snapshot(project / "params.yaml")
