from pathlib import Path

import numpy as np
import pytest

from fne.search.engine import search
from fne.search.open_project import Project
from fne.store.arrays import read_arrays
from fne.store.layout import Layer, plan_shards
from fne.store.rows import write_rows
from tests.support.projects import change_params
from tests.support.stages import IDS, SPLITS, run

__all__ = ["run"]

CAPTION_IDS = [f"{image}#{number}" for image in IDS for number in range(2)]
DIM = 5
SIDES = "Error: features/imported and features/imported_captions are not of one space"
TEST = [each for each, split in zip(IDS, SPLITS, strict=True) if split == "test"]


def write(path: str, name: str, ids, values, similarity="cosine") -> None:
    place = {each: number for number, each in enumerate(ids)}
    shards = [
        (number, own, values[[place[each] for each in own]]) for number, own in plan_shards(ids, 2).items()
    ]
    settings = {"source": "x.npz", "similarity": similarity}
    write_rows(Path(path), name, [Layer("clip", values.shape[1])], "float32", shards, settings, {})


def write_both(scale=1, similarity="cosine") -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Write vectors of both sides; captions are near their images, and vectors are of different lengths."""
    generator = np.random.default_rng(5)
    images = generator.normal(size=(len(IDS), DIM)).astype(np.float32)
    noise = generator.normal(size=(len(CAPTION_IDS), DIM)).astype(np.float32)
    captions = np.repeat(images, 2, axis=0) + noise
    images, captions = np.float32(scale) * images, np.float32(scale) * captions
    images *= generator.uniform(0.5, 5, (len(IDS), 1)).astype(np.float32)
    write("features/imported", "activations", IDS, images, similarity)
    write("features/imported_captions", "caption_features", CAPTION_IDS, captions, similarity)
    return dict(zip(IDS, images, strict=True)), dict(zip(CAPTION_IDS, captions, strict=True))


@pytest.fixture(autouse=True)
def stores(run):
    change_params(
        Path(), {"imported": {"images": "features/imported", "captions": "features/imported_captions"}}
    )


def fault(run) -> str:
    result = run("evaluate_imported")
    assert result.exit_code == 2, result.output
    assert not Path("metrics/imported.json").exists()
    return result.stderr.splitlines()[-1]


def score(name: str, image: np.ndarray, caption: np.ndarray) -> float:
    image, caption = image.astype(np.float64), caption.astype(np.float64)
    if name == "euclidean":
        return -float(np.sqrt(((image - caption) ** 2).sum()))
    return float(image @ caption / np.sqrt((image @ image) * (caption @ caption)))


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_the_ranks_of_imported_vectors_are_those_of_a_plain_loop(run, similarity):
    images, captions = write_both(50, similarity)
    result = run("evaluate_imported")
    assert result.exit_code == 0, result.output
    own = {image: [f"{image}#0", f"{image}#1"] for image in TEST}
    scored = [caption for image in TEST for caption in own[image]]
    image_ranks = []
    for image in TEST:
        best = max(score(similarity, images[image], captions[each]) for each in own[image])
        others = [each for each in scored if each not in own[image]]
        better = [each for each in others if score(similarity, images[image], captions[each]) >= best]
        image_ranks.append(1 + len(better))
    caption_ranks = []
    for caption in scored:
        true = caption.rpartition("#")[0]
        best = score(similarity, images[true], captions[caption])
        others = [score(similarity, images[each], captions[caption]) for each in TEST if each != true]
        caption_ranks.append(1 + sum(each >= best for each in others))
    ranks = read_arrays(Path("metrics/imported_ranks.h5"), "ranks")
    order = [ranks.texts("image_ids").index(image) for image in TEST]
    assert ranks["image_ranks"][order].tolist() == image_ranks
    found = dict(zip(ranks.texts("caption_ids"), ranks["caption_ranks"].tolist(), strict=True))
    assert [found[each] for each in scored] == caption_ranks


def test_results_say_what_was_compared_and_that_no_model_made_them(run):
    write_both()
    assert run("evaluate_imported").stdout.endswith("; cosine\n")
    ranks = read_arrays(Path("metrics/imported_ranks.h5"), "ranks").artifact
    assert ranks.settings["similarity"] == "cosine"
    assert sorted(ranks.lineage) == ["activations", "caption_features", "captions", "train_images"]
    assert not Path("metrics/retrieval.json").exists()
    assert not Path("models").exists()


def test_vectors_of_two_spaces_are_reported(run):
    write_both()
    captions = np.random.default_rng(3).normal(size=(len(CAPTION_IDS), DIM)).astype(np.float32)
    write("features/imported_captions", "caption_features", CAPTION_IDS, captions)
    warning = "Warning: the imported vectors are not clearly better than chance: rsum "
    assert run("evaluate_imported").stderr.splitlines()[-1].startswith(warning)


def test_a_caption_of_the_catalog_can_be_searched_for_and_a_new_sentence_is_refused(run):
    images, captions = write_both()
    project = Project(Path("params.yaml").absolute(), "imported")
    answer = search(project, "number 07", None, None, 20)
    scores = {image: score("cosine", vector, captions["07.png#0"]) for image, vector in images.items()}
    assert [match.image for match in answer.matches] == sorted(IDS, key=lambda each: -scores[each])
    assert (answer.by, answer.measure) == ("imported", "cosine")
    with pytest.raises(Exception, match="the encoder that computed them is unknown; search the catalog with"):
        search(project, "number 07 and 08", None, None, 5)


def test_sentences_are_found_for_an_image_that_has_a_vector(run):
    images, captions = write_both()
    project = Project(Path("params.yaml").absolute(), "imported")
    answer = search(project, "07.png", None, None, 40)
    scores = {each: score("cosine", images["07.png"], vector) for each, vector in captions.items()}
    assert [match.id for match in answer.matches] == sorted(CAPTION_IDS, key=lambda each: -scores[each])
    with pytest.raises(Exception, match="--model imported searches the catalog by its vectors; remove --by"):
        search(project, "07.png", "fne", None, 5)


def test_sides_of_different_lengths_are_refused_with_both_names(run):
    write_both()
    ones = np.ones((len(CAPTION_IDS), 3), np.float32)
    write("features/imported_captions", "caption_features", CAPTION_IDS, ones)
    assert f"{SIDES}: vectors have 5 and 3 values; import both sides of one encoder" in fault(run)


def test_sides_of_different_similarities_are_refused_with_both_names(run):
    _, captions = write_both()
    values = np.stack(list(captions.values()))
    write("features/imported_captions", "caption_features", CAPTION_IDS, values, "euclidean")
    assert f"{SIDES}: their similarities are 'cosine' and 'euclidean'; import both with" in fault(run)


def test_a_store_that_was_not_imported_or_is_not_there_is_refused(run):
    write_both()
    change_params(Path(), {"imported": {"images": "features/activations"}})
    found = fault(run)
    assert (
        "features/activations: does not record a similarity; import vectors with `fne import FILE`" in found
    )
    change_params(Path(), {"imported": {"captions": "nowhere"}})
    assert "nowhere: no such store; make it with `fne import --captions FILE`" in fault(run)


@pytest.mark.parametrize(
    ("folder", "name", "ids", "message"),
    [
        ("features/imported_captions", "caption_features", CAPTION_IDS, "1 of 40 captions, the first is '00.png#0'; "),
        ("features/imported", "activations", IDS, "1 of 20 images, the first is '00.png'; import vectors of all images"),
    ],
)  # fmt: skip
def test_a_store_that_lacks_a_row_is_refused(run, folder, name, ids, message):
    write_both()
    write(folder, name, ids[1:], np.ones((len(ids) - 1, DIM), np.float32))
    assert fault(run).startswith(f"Error: {folder}: has no vector for {message}")
