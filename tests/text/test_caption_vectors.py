from pathlib import Path

import numpy as np
import pytest

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


def test_a_store_that_lacks_a_caption_is_refused(run):
    write_both()
    write("features/imported_captions", "caption_features", CAPTION_IDS[1:], np.ones((39, DIM), np.float32))
    use()
    assert run(*BEFORE).stderr.splitlines()[-1] == (
        "Error: features/imported_captions: has no vector for 1 of 40 captions, the first is '00.png#0'; import vectors "
        "of all captions, or run `dvc repro pipelines/text_network/dvc.yaml:embed_text`"
    )


@pytest.mark.parametrize("start", ["auto", "random"])
def test_a_text_head_learns_on_rows_of_captions(run, start):
    write_both(dim=16)
    use(text_encoder="rows", start=start, epochs=8, image_head="linear_bias", embed_dim=16)
    result = run(*ALL)
    assert result.exit_code == 0, result.output
    model = read_model_file(Path("models/matching/model.safetensors"))
    captions = read_arrays(Path("captions/vectors.h5"), "caption_rows")
    assert captions["vectors"].dtype == np.float32
    weight, bias = (model.weights[f"text_encoder.head.{name}"] for name in ("weight", "bias"))
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
    use(method="cca", **{"cca.text": "rows", "cca.dim": 6})
    result = run(*ALL)
    assert result.exit_code == 0, result.output
    ranks = read_arrays(Path("metrics/ranks.h5"), "ranks")
    assert set(ranks["caption_ranks"].tolist()) == {1}


@pytest.mark.parametrize(
    ("vectors", "train", "message"),
    [
        (
            "features/imported_captions",
            {"text_encoder": "gru"},
            "params.yaml: tokenize.vectors names rows of captions, but train.text_encoder is 'gru', which reads words; "
            "use -S train.text_encoder=rows, or -S tokenize.vectors=weights/random_words.yaml",
        ),
        (
            "features/imported_captions",
            {"method": "ridge"},
            "params.yaml: tokenize.vectors names rows of captions, but train.ridge.text is 'tfidf', which reads words; "
            "use -S ++train.ridge.text=rows, or -S tokenize.vectors=weights/random_words.yaml",
        ),
        (
            "weights/random_words.yaml",
            {"text_encoder": "rows_mlp"},
            "params.yaml: train.text_encoder is 'rows_mlp', but tokenize.vectors names no rows of captions; use -S "
            "tokenize.vectors=features/text/embeddings, which pipelines/text_network makes, or import some",
        ),
    ],
)
def test_words_and_rows_of_captions_are_not_taken_for_each_other(run, vectors, train, message):
    write_both()
    use(**train)
    change_params(Path(), {"tokenize": {"vectors": vectors}})
    result = run(*BEFORE, "train")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"Error: {message}")
