from pathlib import Path

import numpy as np
import pytest

from fne.matching.model_file import read_model_file
from fne.store.arrays import read_arrays
from fne.store.layout import Layer, plan_shards
from fne.store.rows import Rows, write_rows
from tests.support.projects import change_params
from tests.support.stages import IDS, run

__all__ = ["run"]

CAPTION_IDS = [f"{image}#{number}" for image in IDS for number in range(2)]
DIM = 5
BEFORE = ("standardize", "embed", "tokenize")
ALL = (*BEFORE, "train", "encode", "evaluate")


def write(path: str, name: str, ids, values, layer="clip") -> None:
    place = {each: number for number, each in enumerate(ids)}
    shards = [
        (number, own, values[[place[each] for each in own]]) for number, own in plan_shards(ids, 2).items()
    ]
    write_rows(Path(path), name, [Layer(layer, values.shape[1])], "float32", shards, {"source": "x.npz"}, {})


def write_both(dim=DIM, lengths=True) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Write vectors of both sides; captions are near their images, and vectors are of different lengths."""
    generator = np.random.default_rng(5)
    images = generator.normal(size=(len(IDS), dim)).astype(np.float32)
    captions = np.repeat(images, 2, axis=0) + generator.normal(size=(len(CAPTION_IDS), dim)).astype(
        np.float32
    )
    if lengths:
        images *= generator.uniform(0.5, 5, (len(IDS), 1)).astype(np.float32)
    write("features/imported", "activations", IDS, images)
    write("features/imported_captions", "caption_features", CAPTION_IDS, captions)
    return dict(zip(IDS, images, strict=True)), dict(zip(CAPTION_IDS, captions, strict=True))


def use(**train) -> None:
    change_params(
        Path(),
        {
            "embed": {"source": "features/imported", "kind": "raw", "layers": "all"},
            "tokenize": {"vectors": "features/imported_captions"},
            "train": train,
        },
    )


def test_a_store_that_lacks_a_caption_is_refused(run):
    write_both()
    write("features/imported_captions", "caption_features", CAPTION_IDS[1:], np.ones((39, DIM), np.float32))
    use()
    assert run(*BEFORE).stderr.splitlines()[-1] == (
        "Error: features/imported_captions: has no vector for 1 of 40 captions, the first is '00.png#0'; import vectors "
        "of all captions"
    )


def test_a_text_head_learns_on_imported_caption_vectors(run):
    write_both(dim=16)
    use(text_encoder="bow", words="fixed", word_dim=16, epochs=8, image_head="linear_bias", embed_dim=16)
    result = run(*ALL)
    assert result.exit_code == 0, result.output
    model = read_model_file(Path("models/matching/model.safetensors"))
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
    write("features/imported_captions", "caption_features", CAPTION_IDS, rotated)
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
            "-S ++train.text_encoder=bow -S ++train.words=fixed -S ++train.word_dim=5, or -S train.method=cca -S "
            "++train.cca.text=vectors",
        ),
        (
            {"method": "ridge"},
            "tokenize.vectors are vectors of captions, but train.ridge.text is 'tfidf'; use -S "
            "++train.ridge.text=vectors",
        ),
    ],
)
def test_a_text_encoder_that_needs_words_is_refused(run, train, message):
    write_both()
    use(**train)
    result = run(*BEFORE, "train")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"Error: {message}")
