"""New artifacts replace the old ones as a whole; a folder is indexed meanwhile."""

import hashlib
import shutil
import threading

import pytest
from starlette.testclient import TestClient

from fne.search.describe_photo import Wanted, describe
from fne.search.engine import AbsentError, images_for_sentence, similar_images
from fne.search.open_project import Project
from fne.serve.app import build_app
from fne.serve.session import Live
from tests.serve.conftest import LOCAL
from tests.serve.test_app import png
from tests.support.finetuning import LEARNED, OF_KIND, write_describing_project
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.search import draw, run_stages


@pytest.fixture
def live(project):
    return Live(project / "params.yaml", None)


def test_nothing_is_loaded_again_without_a_change(live):
    assert live.refresh() is False
    assert live.waiting is None


def test_new_artifacts_are_used_only_when_all_of_them_are_there(live, project):
    """As during `dvc repro`: outputs are removed, then made one after the other."""
    first = live.session
    text = ("A red circle.", 24)
    before = images_for_sentence(first.snapshot, *text)
    change_params(project, {"train": {"seed": 7}})
    (project / "models/matching/model.safetensors").unlink()
    assert live.refresh() is False
    assert live.waiting == "waiting for model"
    run_stages("train")
    assert live.refresh() is False
    assert "vectors/images was made from model" in live.waiting
    assert live.session is first
    assert images_for_sentence(live.session.snapshot, *text) == before
    run_stages("encode")
    assert live.refresh() is True
    assert live.waiting is None
    after = images_for_sentence(live.session.snapshot, *text)
    assert live.session.snapshot.version != first.snapshot.version
    assert [match.score for match in after.matches] != [match.score for match in before.matches]
    # A request that began before ends with the artifacts that it began with.
    assert images_for_sentence(first.snapshot, *text) == before


def test_a_photo_of_earlier_artifacts_has_to_be_sent_again(live, project):
    live.session.prepare()
    with TestClient(build_app(live, None), base_url=LOCAL) as client:
        photo = client.post("/api/photos", content=png()).json()["photo"]
        assert client.get("/api/similar", params={"photo": photo}).status_code == 200
        change_params(project, {"embed": {"low": -0.5}})
        run_stages("embed", "train", "encode")
        assert live.refresh() is True
        answer = client.get("/api/similar", params={"photo": photo})
        assert (answer.status_code, answer.json()["error"]) == (
            404,
            "this photo is not here any more; send it again",
        )


def test_a_network_of_other_artifacts_is_refused(live, project):
    change_params(project, {"train": {"seed": 7}})
    run_stages("train")
    live.session.prepare()
    state, message = live.session.network_state
    assert state == "failed"
    assert message.endswith(
        "models/matching/model.safetensors has been replaced; the new artifacts are loaded in a moment"
    )


def test_the_watching_thread_loads_new_artifacts(live, project, monkeypatch):
    monkeypatch.setattr("fne.serve.session.POLL_SECONDS", 0.05)
    loaded = threading.Event()
    live.log = lambda text: loaded.set()
    version = live.session.snapshot.version
    live.start()
    try:
        change_params(project, {"train": {"seed": 7}})
        run_stages("train", "encode")
        assert loaded.wait(60)
        assert live.session.snapshot.version != version
    finally:
        live.stop()


def test_the_index_of_a_folder_reports_its_progress(project, tmp_path):
    for number, color in enumerate(["red", "blue", "green", "teal", "navy"]):
        draw(tmp_path / "album" / f"{number}.png", color, "circle")
    (tmp_path / "album/broken.png").write_bytes(b"\x89PNG broken")
    live = Live(project / "params.yaml", tmp_path / "album")
    session = live.session
    assert session.folder.as_dict() | {"unreadable": None} == {
        "name": "album",
        "version": None,
        "state": "reading",
        "message": None,
        "done": None,
        "total": None,
        "photos": None,
        "unreadable": None,
    }
    with pytest.raises(AbsentError, match="the folder is still being indexed"):
        session.index()
    session.prepare()
    found = session.folder.as_dict()
    assert (found["state"], found["done"], found["total"], found["photos"]) == ("ready", 5, 5, 5)
    assert list(found["unreadable"]) == ["broken.png"]
    image = session.find_image("brown-line.png", None)
    assert len(similar_images(session.snapshot, image, 5, folder=session.index()).matches) == 5


def test_a_folder_without_photos_is_reported_and_the_catalog_is_served(project, tmp_path):
    (tmp_path / "empty").mkdir()
    session = Live(project / "params.yaml", tmp_path / "empty").session
    session.prepare()
    assert session.folder.state == "failed"
    assert "no images" in session.folder.message or "no readable images" in session.folder.message
    assert images_for_sentence(session.snapshot, "a red circle", 1).matches


def test_without_a_model_only_look_alikes_are_found(project):
    shutil.rmtree(project / "vectors")
    session = Live(project / "params.yaml", None).session
    with pytest.raises(AbsentError, match="sentences need a trained model; run `dvc repro encode`"):
        images_for_sentence(session.snapshot, "a red circle", 1)
    assert similar_images(session.snapshot, session.find_image("red-circle.png", None), 1).matches


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    """A project with a tuned tagger, and a captioner that was not tuned."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "weights", tmp_path / "weights")
    write_describing_project(tmp_path, "tagger")
    change_params(tmp_path, {"train_captioner": LEARNED | OF_KIND["captioner"]})
    run_stages("train_captioner", "tune_tagger")
    return tmp_path / "params.yaml"


def test_tuned_models_describe_where_there_are_any_and_fixed_ones_elsewhere(tuned, tmp_path):
    """What the server says of images of the catalog, the folder and a visitor is what `fne describe` says."""
    (tmp_path / "album").mkdir()
    files = [tmp_path / "photos/13.png", tmp_path / "album/new.png", tmp_path / "other.png"]
    files[1].write_bytes(png("teal", (260, 240)))
    files[2].write_bytes(png("olive", (250, 240)))
    names = [str(file) for file in files]
    fixed, expected = (
        [each.values for each in describe(Project(tuned), names, None, Wanted(8), tuned=which).descriptions]
        for which in (False, True)
    )
    shutil.rmtree(tmp_path / ".fne")
    live = Live(tuned, tmp_path / "album", "tuned")
    live.session.prepare()
    with TestClient(build_app(live, None), base_url=LOCAL) as client:

        def said(number):
            digest = hashlib.sha256(files[number].read_bytes()).hexdigest()
            response = client.get("/api/description", params={"photo": digest})
            assert response.status_code == 200, response.text
            return response.json()

        def tuned_models(found):
            notes = client.get("/api/status").json()["notes"]
            of_fixed = [note.split()[0] for note in notes if "those of the fixed network" in note]
            return of_fixed, {each["name"]: each["tuned"] for each in found["models"]}

        client.post("/api/photos", content=files[2].read_bytes())
        for number in range(3):
            found = said(number)
            assert tuned_models(found) == (["captions"], {"captioner": False, "tagger": True})
            assert found["tags"] == expected[number]["tags"]
            assert found["concepts"] == pytest.approx(expected[number]["concepts"], abs=1e-3)
            assert found["concepts"] != pytest.approx(fixed[number]["concepts"], abs=1e-3)
        (tmp_path / "models/tuned_tagger.safetensors").unlink()
        assert live.refresh() is True
        found = said(0)
        assert tuned_models(found) == (["captions", "tags"], {"captioner": False, "tagger": False})
        assert found["concepts"] == pytest.approx(fixed[0]["concepts"], abs=1e-3)
    live.stop()
