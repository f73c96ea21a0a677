from pathlib import Path

import numpy as np

from fne.matching.model_file import read_model_file
from fne.store.arrays import read_arrays
from fne.store.layout import Layer
from fne.store.rows import Rows
from tests.support.features import write_store
from tests.support.projects import change_params
from tests.support.stages import IDS, run

__all__ = ["run"]

CAPTION_IDS = [f"{image}#{number}" for image in IDS for number in range(2)]
DIM = 5
BEFORE = ("standardize", "embed", "tokenize")
ALL = (*BEFORE, "train", "encode", "evaluate")


def write(path: str, name: str, ids, values) -> None:
    rows = dict(zip(ids, values, strict=True))
    write_store(
        Path(path), name, [Layer("clip", values.shape[1])], rows, shards=2, settings={"source": "x.npz"}
    )


def write_both(dim=DIM, lengths=True) -> np.ndarray:
    """Write vectors of both sides; captions are near their images, and vectors are of different lengths."""
    generator = np.random.default_rng(5)
    images = generator.normal(size=(len(IDS), dim)).astype(np.float32)
    captions = np.repeat(images, 2, axis=0) + generator.normal(size=(len(CAPTION_IDS), dim))
    if lengths:
        images *= generator.uniform(0.5, 5, (len(IDS), 1)).astype(np.float32)
    write("features/imported", "activations", IDS, images)
    write("features/imported_captions", "caption_features", CAPTION_IDS, captions.astype(np.float32))
    return images


def use(**train) -> None:
    embed = {"source": "features/imported", "kind": "raw", "layers": "all"}
    tokenize = {"vectors": "features/imported_captions"}
    change_params(Path(), {"embed": embed, "tokenize": tokenize, "train": train})


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
    images = write_both(dim=6, lengths=False)
    # Captions are a rotation of their images: a closed form finds it.
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0].astype(np.float32)
    write(
        "features/imported_captions", "caption_features", CAPTION_IDS, np.repeat(images, 2, axis=0) @ rotation
    )
    use(method="cca", **{"cca.text": "vectors", "cca.dim": 6})
    result = run(*ALL)
    assert result.exit_code == 0, result.output
    ranks = read_arrays(Path("metrics/ranks.h5"), "ranks")
    assert set(ranks["caption_ranks"].tolist()) == {1}


def test_a_store_that_lacks_a_caption_and_methods_that_need_words_are_refused(run):
    def refused(*stages) -> str:
        result = run(*stages)
        assert result.exit_code == 2
        return result.stderr.splitlines()[-1]

    write_both()
    use(text_encoder="gru")
    message = refused(*BEFORE, "train")
    assert message.startswith(
        "Error: tokenize.vectors are vectors of captions, which need a text head (bow, "
    )
    assert "-S ++train.text_encoder=bow -S ++train.words=fixed -S ++train.word_dim=5, or " in message
    assert message.endswith("-S train.method=cca -S ++train.cca.text=vectors")
    use(method="ridge")
    message = refused("train")
    assert message.startswith(
        "Error: tokenize.vectors are vectors of captions, but train.ridge.text is 'tfidf'"
    )
    assert message.endswith("; use -S ++train.ridge.text=vectors")
    write("features/imported_captions", "caption_features", CAPTION_IDS[1:], np.ones((39, DIM), np.float32))
    message = refused("tokenize")
    assert message.startswith(
        "Error: features/imported_captions: has no vector for 1 of 40 captions, the first "
    )
    assert message.endswith("'00.png#0'; import vectors of all captions")
