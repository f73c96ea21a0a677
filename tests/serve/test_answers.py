"""Answers equal those of `fne search`, and filters choose among them."""

from pathlib import Path

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.search import engine
from fne.search.open_project import Project
from fne.search.snapshot import Space
from fne.serve.answers import Filters, embedding_scores, images_for_sentence
from fne.serve.session import Live
from fne.store.artifact import Artifact
from fne.store.layout import TERNARY, Layer, pack
from tests.matching.test_imported import ALL, use, write_both
from tests.support.stages import run

__all__ = ["run"]


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
    space = live.session.snapshot.embeddings
    layers = ask("/api/status")["layers"]
    assert layers == [layer.name for layer in space.layers]
    answers = {
        name: ask("/api/similar", image="red-circle.png", layer=name, k=23)["matches"] for name in layers
    }
    totals = {}
    for matches in answers.values():
        for match in matches:
            totals[match["id"]] = totals.get(match["id"], 0) + match["score"]
    whole = ask("/api/similar", image="red-circle.png", k=23)["matches"]
    assert totals == {match["id"]: match["score"] for match in whole}


@pytest.mark.parametrize("columns", [slice(0, 37), slice(3, 9), slice(8, 24), slice(36, 37), slice(5, 5)])
def test_ternary_scores_of_columns_equal_plain_loops(columns):
    generator = np.random.default_rng(3)
    values = generator.integers(-1, 2, (50, 37)).astype(np.int8)
    query = generator.integers(-1, 2, 37).astype(np.int8)
    artifact = Artifact("features", "embeddings", "0")
    space = Space(artifact, [str(each) for each in range(50)], pack(values), [Layer("all", 37)], TERNARY)
    wanted = [
        sum(int(row[column]) * int(query[column]) for column in range(columns.start, columns.stop))
        for row in values
    ]
    assert embedding_scores(space, pack(query[None])[0], columns).tolist() == wanted


def test_cosines_of_columns_equal_plain_loops():
    generator = np.random.default_rng(4)
    values = generator.standard_normal((20, 9)).astype(np.float32)
    values[3, 2:7] = 0
    artifact = Artifact("features", "embeddings", "0")
    space = Space(artifact, [str(each) for each in range(20)], values, [Layer("all", 9)], "float32")
    found = embedding_scores(space, values[5], slice(2, 7))
    query = values[5, 2:7].astype(float)
    for row, score in zip(values[:, 2:7].astype(float), found, strict=True):
        lengths = np.sqrt(sum(row * row)) * np.sqrt(sum(query * query))
        assert score == pytest.approx(sum(row * query) / lengths if lengths else 0, abs=1e-6)


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
    write_both()
    use()
    assert run(*ALL).exit_code == 0
    session = Live(Path("params.yaml").absolute(), None).session
    record = next(each for each in session.snapshot.catalog.captioned.values() if each.captions)
    found = images_for_sentence(session, record.captions[0], Filters(), 24)
    wanted = engine.search(Project(Path("params.yaml")), record.captions[0], None, None, 24)
    assert [(each["id"], each["score"]) for each in found["matches"]] == [
        (each.id, each.score) for each in wanted.matches
    ]
    assert found["unknown_words"] == []
    with pytest.raises(
        InputError, match="the encoder that computed them is unknown; search the catalog with"
    ):
        images_for_sentence(session, "any other sentence", Filters(), 1)
