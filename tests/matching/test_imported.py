import json
import re
from pathlib import Path

import numpy as np
import pytest

from fne.matching.model_file import read_model_file
from fne.search.engine import search
from fne.search.open_project import Project
from fne.store.arrays import read_arrays
from fne.store.history import read_history_seal
from fne.store.layout import Layer, plan_shards
from fne.store.rows import Rows, write_rows
from tests.support.projects import change_params
from tests.support.stages import IDS, SPLITS, run

__all__ = ["run"]

CAPTION_IDS = [f"{image}#{number}" for image in IDS for number in range(2)]
DIM = 5
BEFORE = ("standardize", "embed", "tokenize")
ALL = (*BEFORE, "train", "encode", "evaluate")
TEST = [each for each, split in zip(IDS, SPLITS, strict=True) if split == "test"]


def write(path: str, name: str, ids, values, layer="clip") -> None:
    place = {each: number for number, each in enumerate(ids)}
    shards = [
        (number, own, values[[place[each] for each in own]]) for number, own in plan_shards(ids, 2).items()
    ]
    write_rows(Path(path), name, [Layer(layer, values.shape[1])], "float32", shards, {"source": "x.npz"}, {})


def write_both(dim=DIM, lengths=True, scale=1) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Write vectors of both sides; captions are near their images, and vectors are of different lengths."""
    generator = np.random.default_rng(5)
    images = generator.normal(size=(len(IDS), dim)).astype(np.float32)
    captions = np.repeat(images, 2, axis=0) + generator.normal(size=(len(CAPTION_IDS), dim)).astype(
        np.float32
    )
    images, captions = np.float32(scale) * images, np.float32(scale) * captions
    if lengths:
        images *= generator.uniform(0.5, 5, (len(IDS), 1)).astype(np.float32)
    write("features/imported", "activations", IDS, images)
    write("captions/imported", "caption_features", CAPTION_IDS, captions)
    return dict(zip(IDS, images, strict=True)), dict(zip(CAPTION_IDS, captions, strict=True))


def use(**train) -> None:
    change_params(
        Path(),
        {
            "embed": {"source": "features/imported", "kind": "raw", "layers": "all"},
            "tokenize": {"vectors": "captions/imported"},
        }
        | ({"train": train} if train else {"encode": {"source": "imported"}}),
    )


def score(name: str, image: np.ndarray, caption: np.ndarray) -> float:
    image, caption = image.astype(np.float64), caption.astype(np.float64)
    if name == "euclidean":
        return -float(np.sqrt(((image - caption) ** 2).sum()))
    return float(image @ caption / np.sqrt((image @ image) * (caption @ caption)))


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_the_ranks_of_imported_vectors_are_those_of_a_plain_loop(run, similarity):
    images, captions = write_both(scale=50)
    use()
    change_params(Path(), {"train": {"similarity": similarity}})
    result = run(*ALL)
    assert result.exit_code == 0, result.output
    own = {image: [f"{image}#0", f"{image}#1"] for image in TEST}
    scored = [caption for image in TEST for caption in own[image]]
    image_ranks = []
    for image in TEST:
        best = max(score(similarity, images[image], captions[each]) for each in own[image])
        others = [each for each in scored if each not in own[image]]
        image_ranks.append(
            1 + sum(score(similarity, images[image], captions[each]) >= best for each in others)
        )
    caption_ranks = []
    for caption in scored:
        true = caption.rpartition("#")[0]
        best = score(similarity, images[true], captions[caption])
        others = [score(similarity, images[each], captions[caption]) for each in TEST if each != true]
        caption_ranks.append(1 + sum(each >= best for each in others))
    ranks = read_arrays(Path("metrics/ranks.h5"), "ranks")
    order = [ranks.texts("image_ids").index(image) for image in TEST]
    assert ranks["image_ranks"][order].tolist() == image_ranks
    found = dict(zip(ranks.texts("caption_ids"), ranks["caption_ranks"].tolist(), strict=True))
    assert [found[each] for each in scored] == caption_ranks


def test_nothing_is_trained_and_the_model_is_only_a_header(run):
    write_both()
    use()
    result = run(*BEFORE, "train")
    assert result.exit_code == 0, result.output
    assert "imported vectors, nothing is trained" in result.output
    model = read_model_file(Path("models/matching.safetensors"))
    assert model.weights == {}
    assert model.artifact.settings["source"] == "imported"
    assert "word_vectors" in model.artifact.lineage
    assert Path("models/matching.safetensors").stat().st_size < 10_000
    assert read_history_seal(Path("models/history")).points == 0


def test_the_validation_of_imported_vectors_is_that_of_a_plain_loop(run):
    images, captions = write_both()
    use()
    result = run(*BEFORE, "train")
    found = json.loads(Path("metrics/training.json").read_text())
    chosen = [each for each, split in zip(IDS, SPLITS, strict=True) if split == "val"]
    firsts = 0
    for image in chosen:
        own = max(score("cosine", images[image], captions[f"{image}#{number}"]) for number in range(2))
        others = [
            score("cosine", images[image], captions[f"{other}#{number}"])
            for other in chosen
            if other != image
            for number in range(2)
        ]
        firsts += own > max(others)
    assert found["validation"]["image_to_text"]["R@1"] == 100 * firsts / len(chosen)
    assert (found["validation"]["images"], found["validation"]["captions"]) == (4, 8)
    assert (found["best_epoch"], found["epochs"], found["updates"]) == (0, 0, 0)
    rsum, chance = found["validation"]["rsum"], found["validation"]["chance"]
    assert f"nothing is trained; validation rsum {rsum:.1f}, chance {chance:.1f}, " in result.stdout


def test_the_header_has_no_weights(run):
    write_both()
    use()
    assert run(*BEFORE, "train").exit_code == 0
    assert read_model_file(Path("models/matching.safetensors")).weights == {}


def test_vectors_of_two_spaces_are_reported(run):
    write_both()
    captions = np.random.default_rng(8).normal(size=(len(CAPTION_IDS), DIM)).astype(np.float32)
    write("captions/imported", "caption_features", CAPTION_IDS, captions)
    use()
    assert re.fullmatch(
        r"Warning: the imported vectors are not clearly better than chance: validation rsum [\d.]+, chance "
        r"[\d.]+. Look whether both sides are of one space, and whether the ids and numbers of captions are "
        r"right",
        run(*BEFORE, "train").stderr.splitlines()[-1],
    )


def test_vectors_for_cosines_have_length_one_and_others_stay_as_they_are(run):
    images, captions = write_both()
    use()
    assert run(*BEFORE, "train", "encode").exit_code == 0
    found = Rows.open(Path("vectors/images")).read(IDS)
    expected = np.stack([images[each] / np.linalg.norm(images[each]) for each in IDS])
    assert np.allclose(found, expected, atol=1e-6)
    change_params(Path(), {"train": {"similarity": "euclidean"}})
    assert run("train", "encode").exit_code == 0
    assert np.array_equal(
        Rows.open(Path("vectors/images")).read(IDS), np.stack([images[each] for each in IDS])
    )
    found = Rows.open(Path("vectors/captions")).read(CAPTION_IDS)
    assert np.array_equal(found, np.stack([captions[each] for each in CAPTION_IDS]))


def test_a_caption_of_the_catalog_can_be_searched_for_and_a_new_sentence_is_refused(run):
    images, captions = write_both()
    use()
    assert run(*ALL).exit_code == 0
    project = Project(Path("params.yaml").absolute())
    answer = search(project, "number 07", None, None, 20)
    scores = {image: score("cosine", vector, captions["07.png#0"]) for image, vector in images.items()}
    assert [match.image for match in answer.matches] == sorted(IDS, key=lambda each: -scores[each])
    with pytest.raises(Exception, match="the encoder that computed them is unknown; search the catalog with"):
        search(project, "number 07 and 08", None, None, 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tokenize": {"vectors": "weights/no_words.yaml"}},
            "params.yaml: encode.source is 'imported', but tokenize.vectors names no vectors of captions; import "
            "them with `fne import --captions FILE`, and use -S tokenize.vectors=captions/imported",
        ),
        (
            {"embed": {"kind": "zscore"}},
            "params.yaml: encode.source is 'imported', but embed.kind is 'zscore', which changes the vectors of "
            "images; use -S embed.kind=raw",
        ),
    ],
)
def test_what_is_not_two_sides_of_one_space_is_refused(run, changes, message):
    write_both()
    use()
    change_params(Path(), changes)
    result = run(*BEFORE, "train")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"Error: {message}")


def test_sides_of_different_lengths_are_refused(run):
    write_both()
    write("captions/imported", "caption_features", CAPTION_IDS, np.ones((len(CAPTION_IDS), 3), np.float32))
    use()
    result = run(*BEFORE, "train")
    assert result.stderr.splitlines()[-1] == (
        "Error: features/embeddings has vectors of 5 values, and captions/vectors.h5 of 3; encode.source "
        "'imported' needs vectors of one space"
    )


def test_a_store_that_lacks_a_caption_is_refused(run):
    write_both()
    write("captions/imported", "caption_features", CAPTION_IDS[1:], np.ones((39, DIM), np.float32))
    use()
    assert run(*BEFORE).stderr.splitlines()[-1] == (
        "Error: captions/imported: has no vector for 1 of 40 captions, the first is '00.png#0'; import vectors "
        "of all captions"
    )


def test_a_text_head_learns_on_imported_caption_vectors(run):
    write_both(dim=16)
    use(text_encoder="bow", words="fixed", word_dim=16, epochs=8, image_head="linear_bias", embed_dim=16)
    result = run(*ALL)
    assert result.exit_code == 0, result.output
    model = read_model_file(Path("models/matching.safetensors"))
    table = model.weights["text_encoder.words.weight"]
    captions = read_arrays(Path("captions/vectors.h5"), "word_vectors")
    assert np.array_equal(table[1:], captions["vectors"]), "fixed vectors stay as they are"
    weight, bias = (model.weights[f"text_encoder.map.{name}"] for name in ("weight", "bias"))
    ids = captions.texts("ids")
    expected = captions["vectors"] @ weight.T + bias
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(Rows.open(Path("vectors/captions")).read(ids), expected, atol=1e-5)


def test_imported_caption_vectors_are_aligned_in_closed_form(run):
    images, _ = write_both(dim=6, lengths=False)
    # Captions are a rotation of their images: a closed form finds it.
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0].astype(np.float32)
    rotated = np.stack([images[each.rpartition("#")[0]] for each in CAPTION_IDS]) @ rotation
    write("captions/imported", "caption_features", CAPTION_IDS, rotated)
    use(method="cca", **{"cca.text": "vectors", "cca.dim": 6})
    result = run(*ALL)
    assert result.exit_code == 0, result.output
    ranks = read_arrays(Path("metrics/ranks.h5"), "ranks")
    assert set(ranks["caption_ranks"].tolist()) == {1}


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            {"text_encoder": "gru"},
            "tokenize.vectors are vectors of captions, which need a text head (bow, bow_mlp, bow_mlp_bn_first); use "
            "-S train.text_encoder=bow -S train.words=fixed -S train.word_dim=5, or -S train.method=cca -S "
            "train.cca.text=vectors",
        ),
        (
            {"method": "ridge"},
            "tokenize.vectors are vectors of captions, but train.ridge.text is 'tfidf'; use -S "
            "train.ridge.text=vectors",
        ),
    ],
)
def test_a_text_encoder_that_needs_words_is_refused(run, train, message):
    write_both()
    use(**train)
    result = run(*BEFORE, "train")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"Error: {message}")
