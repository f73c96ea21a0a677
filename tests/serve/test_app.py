"""The JSON interface: photos, pictures, wrong requests, and the page."""

import asyncio
import hashlib
import io
import json
from pathlib import Path

import pytest
from PIL import Image
from starlette.exceptions import HTTPException
from starlette.requests import Request

from fne.core.errors import InputError
from fne.search import engine
from fne.search.open_project import Project
from fne.serve import app, schemas
from fne.serve.app import PictureCache, api
from fne.serve.session import Live
from tests.support.stages import run
from tests.text.test_caption_vectors import ALL, use, write_both

__all__ = ["run"]


def png(color="red", size=(40, 32), form="PNG"):
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, form)
    return buffer.getvalue()


def problem(response):
    return response.status_code, response.json()["error"]


EXAMPLES = {
    "/api/status": {},
    "/api/search": {"text": "a red circle"},
    "/api/sentences": {"image": "red-circle.png"},
    "/api/words": {"image": "red-circle.png", "text": "a red circle"},
    "/api/similar": {"image": "red-circle.png"},
    "/api/image": {"image": "red-circle.png"},
    "/api/description": {"image": "red-circle.png"},
}


@pytest.mark.parametrize(
    "operation", [each for each in api.routes if each.response_model], ids=lambda each: each.path
)
def test_answers_have_the_form_that_is_described(client, operation):
    if operation.methods == {"POST"}:
        response = client.post(operation.path, content=png())
    else:
        response = client.get(operation.path, params=EXAMPLES[operation.path])
    assert response.status_code == 200
    operation.response_model.model_validate_json(response.content)


def test_the_words_of_a_sentence_are_those_of_the_search_also_for_a_photo(client, ask, live):
    sent = client.post("/api/photos", content=png("blue")).json()
    for named in ({"image": "red-circle.png"}, {"photo": sent["photo"]}):
        found = ask("/api/words", text="A red circle", **named)["words"]
        vector = live.session.find_image(named.get("image"), named.get("photo")).vector
        expected = engine.explain_sentence(live.session.snapshot, "A red circle", vector)
        assert [(each["text"], each["drop"]) for each in found] == [
            (each.text, each.drop) for each in expected
        ]
        assert max(abs(each["level"]) for each in found) == 4
    assert problem(client.get("/api/words", params={"image": "red-circle.png", "text": "zzz"}))[0] == 400


def test_a_new_photo_finds_what_the_search_finds(client, ask, live, tmp_path):
    file = tmp_path / "new.png"
    file.write_bytes(png("blue"))
    sent = client.post("/api/photos", content=file.read_bytes()).json()
    assert sent["photo"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (sent["image"], sent["width"], sent["height"]) == (None, 40, 32)
    similar = ask("/api/similar", photo=sent["photo"], k=24)
    wanted = engine.search(Project(live.params), str(file), "fne", None, 24)
    assert [(each["id"], each["score"]) for each in similar["matches"]] == [
        (each.id, each.score) for each in wanted.matches
    ]
    sentences = ask("/api/sentences", photo=sent["photo"], k=40)
    wanted = engine.search(Project(live.params), str(file), None, None, 40)
    assert [(each["id"], each["score"]) for each in sentences["matches"]] == [
        (each.id, each.score) for each in wanted.matches
    ]
    assert ask("/api/description", photo=sent["photo"])["photo"] == sent["photo"]
    assert ask("/api/image", photo=sent["photo"])["picture"] is None


def test_a_photo_of_the_catalog_is_recognized(client, live):
    content = (live.params.parent / "photos/red-circle.png").read_bytes()
    assert client.post("/api/photos", content=content).json()["image"] == "red-circle.png"


def test_the_status_has_pictures_of_the_catalog(client, ask):
    samples = ask("/api/status")["samples"]
    assert len({each["image"] for each in samples}) == 24
    assert client.get(f"/api/pictures/{samples[0]['picture']}").status_code == 200


def test_a_photo_may_come_in_a_form(client, live):
    content = (live.params.parent / "photos/red-circle.png").read_bytes()
    assert client.post("/api/photos", files={"file": content}).json()["image"] == "red-circle.png"
    assert problem(client.post("/api/photos", files={"a": content, "b": content})) == (
        400,
        "the form has several fields; send one photo at a time, and nothing else",
    )


def test_photos_of_visitors_leave_nothing_on_disk(client, live):
    scratch = live.params.parent / ".fne"

    def sizes():
        return {path: path.stat().st_size for path in scratch.rglob("*") if path.is_file()}

    before = sizes()
    assert client.post("/api/photos", content=png("teal")).status_code == 200
    assert sizes() == before


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the photo is empty; send the content of an image file"),
        (b"<svg onload=alert(1)>", "not an image of a known format (JPEG, PNG, GIF, BMP, TIFF, WEBP, PPM)"),
        (png(size=(9000, 6000)), "9000x6000 pixels, more than 50000000 in all"),
        (png(size=(4, 4)), "4x4 pixels, a side below 8"),
    ],
    ids=["empty", "svg", "pixels", "tiny"],
)
def test_what_is_no_photo_is_refused_with_the_reason(client, content, reason):
    assert problem(client.post("/api/photos", content=content)) == (400, reason)


def test_a_photo_with_too_many_bytes_is_refused(client, monkeypatch):
    monkeypatch.setattr(app, "MAX_BYTES", 1 << 20)
    wanted = (413, "a photo may have at most 1 MB")
    assert problem(client.post("/api/photos", content=bytes((1 << 20) + 1))) == wanted
    parts = (bytes(1 << 18) for _ in range(5))  # without a length
    assert problem(client.post("/api/photos", content=parts)) == wanted


def test_a_photo_that_comes_too_slowly_is_refused(monkeypatch):
    monkeypatch.setattr(app, "BODY_SECONDS", 0.05)

    async def receive():
        await asyncio.sleep(60)

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(HTTPException) as refused:
        asyncio.run(app._body(request))
    assert (refused.value.status_code, refused.value.detail) == (
        408,
        "the photo did not arrive within 0.05 s",
    )


def test_no_more_photos_are_embedded_than_there_is_room_for(client):
    slots = client.app._app.state.server.photos
    taken = [slots.acquire(blocking=False) for _ in range(app.PHOTOS)]
    try:
        response = client.post("/api/photos", content=png("olive"))
        assert problem(response) == (503, "other photos are waiting; try again in a moment")
        assert response.headers["Retry-After"] == "2"
    finally:
        for _ in taken:
            slots.release()


def test_a_picture_is_a_small_jpeg_that_may_be_cached(client, ask):
    digest = ask("/api/image", image="red-circle.png")["picture"]
    response = client.get(f"/api/pictures/{digest}")
    assert response.headers["content-type"] == "image/jpeg"
    assert response.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert Image.open(io.BytesIO(response.content)).size == (72, 64)


def test_a_file_that_was_replaced_is_not_sent(client, live):
    """Whatever a link or a new file holds: only the content that the catalog names is sent."""
    file = live.params.parent / "photos/brown-line.png"
    original = file.read_bytes()
    digest = hashlib.sha256(original).hexdigest()
    secret = live.params.parent / "secret.png"
    secret.write_bytes(png("black"))
    try:
        file.unlink()
        file.symlink_to(secret)
        assert problem(client.get(f"/api/pictures/{digest}")) == (404, "the file of this picture has changed")
        file.unlink()
        assert problem(client.get(f"/api/pictures/{digest}")) == (
            404,
            "the picture cannot be shown: no such file",
        )
    finally:
        file.unlink(missing_ok=True)
        file.write_bytes(original)
    assert client.get(f"/api/pictures/{digest}").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/api/pictures/..%2f..%2fparams.yaml",
        "/api/pictures/" + "0" * 64,
        "/api/pictures/%2e%2e/%2e%2e/etc/passwd",
        "/static/../app.py",
        "/..%2fapp.py",
        "/params.yaml",
        "/api/pictures/",
    ],
)
def test_other_files_cannot_be_read(client, path):
    assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    ("path", "code", "reason"),
    [
        ("/api/search", 400, "text: Field required"),
        ("/api/search?text=", 400, "text: String should have at least 1 character"),
        ("/api/search?text=%20", 400, "the query is empty; describe what the image shows"),
        ("/api/search?text=a&text=b", 400, "text is given twice"),
        ("/api/search?text=a&k=0", 400, "k: Input should be greater than or equal to 1"),
        (
            "/api/search?text=a&k=1e9",
            400,
            "k: Input should be a valid integer, unable to parse string as an integer",
        ),
        ("/api/search?text=a&in=/etc", 400, "in: Input should be 'catalog' or 'folder'"),
        (
            "/api/search?text=red&in=folder&tag=red",
            400,
            "photos of the folder have no splits and tags; leave split and tag out",
        ),
        ("/api/search?text=a&folder=/etc", 400, "folder: Extra inputs are not permitted"),
        ("/api/search?text=" + "a" * 501, 400, "text: String should have at most 500 characters"),
        ("/api/search?text=%21%21", 400, "the query '!!' has no words; describe what the image shows"),
        ("/api/similar", 400, "name an image of the catalog (image) or a photo (photo)"),
        ("/api/similar?image=zebra.png", 404, "the catalog has no image 'zebra.png'"),
        ("/api/similar?photo=" + "0" * 64, 404, "this photo is not here any more; send it again"),
        ("/api/similar?photo=x", 400, "photo: String should match pattern '^[0-9a-f]{64}$'"),
        ("/nothing", 404, "Not Found"),
    ],
)
def test_a_wrong_request_gets_the_reason(client, path, code, reason):
    assert problem(client.get(path)) == (code, reason)


def test_an_unknown_layer_lists_those_there_are(client):
    code, reason = problem(client.get("/api/similar", params={"image": "red-circle.png", "layer": "fc99"}))
    assert code == 400
    assert reason.startswith("there is no layer 'fc99'; the layers are conv1, ")


def test_a_method_that_is_not_answered_is_refused(client):
    assert client.delete("/api/photos").status_code == 405
    assert client.post("/api/search").status_code == 405


def test_the_description_of_the_interface_has_every_route(client):
    described = client.get("/openapi.json").json()
    routes = {
        (route.path, method)
        for route in client.app._app.routes
        for method in route.methods - {"HEAD"}
        if route.path.startswith("/api/")
    }
    assert {(path, method.upper()) for path, each in described["paths"].items() for method in each} == routes
    assert described["openapi"] == "3.1.0"
    parameters = described["paths"]["/api/search"]["get"]["parameters"]
    assert {each["name"]: each["required"] for each in parameters} == {
        "text": True,
        "in": False,
        "split": False,
        "tag": False,
        "k": False,
    }
    text = json.dumps(described)
    for name in {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert name in described["components"]["schemas"]


def test_every_parameter_is_described(client):
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for operation in operations.values():
            for each in operation.get("parameters", []):
                assert each.get("description"), (path, each["name"])
    assert schemas.MAX_MATCHES == 200


def test_problems_are_described_as_they_are_answered(client):
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for operation in operations.values():
            codes = {"200", "400", "401", "403", "404", "409", "503"}
            assert operation["responses"].keys() - {"408", "413"} == codes, path
            reference = operation["responses"]["400"]["content"]["application/json"]["schema"]
            assert reference == {"$ref": "#/components/schemas/Problem"}


def test_the_page_comes_with_the_package(client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "http" not in page.text
    for path, kind in (
        ("/page.js", "text/javascript"),
        ("/style.css", "text/css"),
        ("/icon.svg", "image/svg+xml"),
    ):
        assert path in page.text
        assert client.get(path).headers["content-type"].startswith(kind)


def test_pictures_are_dropped_when_there_are_too_many_bytes():
    cache = PictureCache(100)
    cache.put(("a", "small"), bytes(60))
    cache.put(("b", "small"), bytes(30))
    assert cache.get(("a", "small"))
    cache.put(("c", "small"), bytes(40))
    assert cache.get(("b", "small")) is None
    assert cache.get(("a", "small"))
    cache.put(("d", "small"), bytes(101))
    assert cache.get(("d", "small")) is None


def listed(matches):
    return [(match["id"], match["score"], match["true"]) for match in matches]


def expected(project, query, by=None, k=10, folder=None):
    answer = engine.search(Project(project), query, by, folder, k)
    return [(match.id, match.score, match.true) for match in answer.matches], answer


def test_images_for_a_sentence_are_those_of_the_search(ask, live):
    found = ask("/api/search", text="A red circle, a zebra.", k=10)
    wanted, answer = expected(live.params, "A red circle, a zebra.")
    assert listed(found["matches"]) == wanted
    assert (found["candidates"], found["measure"], found["by"]) == (24, "cosine", "model")
    assert found["unknown_words"] == answer.unknown_words == ["zebra"]


def test_a_caption_of_the_catalog_marks_its_images(ask):
    found = ask("/api/search", text="something  RED", k=24)
    wanted = {f"red-{shape}.png" for shape in ("circle", "square", "line")}
    assert {match["id"] for match in found["matches"] if match["true"]} == wanted
    assert {match["true"] for match in ask("/api/search", text="a red thing circle")["matches"]} == {None}


def test_sentences_for_an_image_are_those_of_the_search(ask, live):
    found = ask("/api/sentences", image="green-square.png", k=12)
    assert listed(found["matches"]) == expected(live.params, "green-square.png", k=12)[0]
    assert (found["found"], found["candidates"], found["image"]) == ("sentences", 40, "green-square.png")


def test_look_alikes_are_those_of_the_search(ask, live):
    found = ask("/api/similar", image="green-square.png", k=23)
    assert listed(found["matches"]) == expected(live.params, "green-square.png", "fne", 23)[0]
    assert "green-square.png" not in [match["id"] for match in found["matches"]]


def test_a_layer_is_compared_alone(ask, live):
    store = live.session.snapshot.embeddings.store
    layers = ask("/api/status")["layers"]
    assert layers == [layer.name for layer in store.layers]
    answers = {
        name: ask("/api/similar", image="red-circle.png", layer=name, k=23)["matches"] for name in layers
    }
    totals = {}
    for matches in answers.values():
        for match in matches:
            totals[match["id"]] = totals.get(match["id"], 0) + match["score"]
    whole = ask("/api/similar", image="red-circle.png", k=23)["matches"]
    assert totals == {match["id"]: match["score"] for match in whole}


def test_filters_choose_among_the_scored_images(ask):
    everything = ask("/api/search", text="a red circle", k=24)["matches"]
    only = ask("/api/search", text="a red circle", k=24, split="test", tag="square")
    wanted = [match["id"] for match in everything if match["split"] == "test" and "square" in match["id"]]
    assert [match["id"] for match in only["matches"]] == wanted
    assert only["candidates"] == len(wanted) == 4
    assert ask("/api/search", text="a red circle", tag="zebra")["matches"] == []
    similar = ask("/api/similar", image="red-circle.png", split="gallery")
    assert {match["split"] for match in similar["matches"]} == {"gallery"}


def test_the_folder_is_searched_without_sentences(ask, live):
    found = ask("/api/search", text="a red circle", in_="folder", k=24)
    assert found["candidates"] == 24
    assert found["pool"] == "photos"
    assert [(match["name"], match["score"]) for match in found["matches"]] == [
        (match.id, match.score)
        for match in engine.search(Project(live.params), "a red circle", None, live.folder, 24).matches
    ]
    assert {match["image"] for match in found["matches"]} == {None}


def test_a_photo_of_the_folder_has_look_alikes(ask, live):
    digest = ask("/api/search", text="a red circle", in_="folder", k=1)["matches"][0]["picture"]
    found = ask("/api/similar", photo=digest, in_="folder")
    assert digest not in [match["picture"] for match in found["matches"]]
    assert found["candidates"] == 23


def test_details_say_what_made_an_image(ask):
    found = ask("/api/image", image="red-circle.png")
    assert found["sentences"] == ["A red circle.", "Something red"]
    assert (found["tags"], found["split"]) == (["red", "circle"], "train")
    assert (found["width"], found["height"]) == (72, 64)
    names = [each["name"] for each in found["made"]]
    assert names.index("activations") < names.index("embeddings") < names.index("model")
    assert found["features"] == "extracted with alexnet, center crops, untrained weights"


def test_the_tagger_describes_an_image(ask):
    found = ask("/api/description", image="red-circle.png")
    assert set(found["tags"]) <= {
        "red",
        "green",
        "blue",
        "yellow",
        "purple",
        "orange",
        "gray",
        "brown",
        "circle",
        "square",
        "line",
    }
    assert [model["name"] for model in found["models"]] == ["tagger"]
    assert len(found["concepts"]) > 0


def test_imported_vectors_are_searched_with_captions_word_for_word(run):
    write_both(dim=16)
    use(text_encoder="rows", epochs=2, image_head="linear_bias", embed_dim=16)
    assert run(*ALL).exit_code == 0
    params = Path("params.yaml").absolute()
    session = Live(params, None).session
    record = next(each for each in session.snapshot.catalog.captioned.values() if each.captions)
    found = engine.images_for_sentence(session.snapshot, record.captions[0], 24)
    assert found == engine.search(Project(params), record.captions[0], None, None, 24)
    assert found.unknown_words == []
    with pytest.raises(
        InputError, match="the encoder that computed them is unknown; search the catalog with"
    ):
        engine.images_for_sentence(session.snapshot, "any other sentence", 1)
