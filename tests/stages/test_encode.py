from pathlib import Path

import numpy as np

from fne.store.rows import Rows
from tests.projects import change_params
from tests.stages.conftest import IDS, SPLITS, write_catalog

READY = ("standardize", "embed", "tokenize", "train")


def test_all_images_and_captions_become_vectors_of_length_one(run):
    assert run(*READY, "encode").exit_code == 0
    images, captions = Rows.open(Path("vectors/images")), Rows.open(Path("vectors/captions"))
    assert (sorted(images.ids), len(captions.ids)) == (IDS, 40)
    assert np.allclose(np.linalg.norm(images.read(IDS), axis=1), 1)


def test_gallery_images_become_vectors_too(run):
    write_catalog([*SPLITS[:-2], "gallery", "gallery"])
    run(*READY, "encode")
    assert sorted(Rows.open(Path("vectors/images")).ids) == IDS
    assert len(Rows.open(Path("vectors/captions")).ids) == 36


def test_a_model_of_other_embeddings_is_refused(run):
    run(*READY)
    change_params(Path(), {"embed": {"low": -1.0}})
    run("embed")
    result = run("encode")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: models/matching.safetensors was made from embeddings ")
    assert "…, but features/embeddings holds embeddings " in result.stderr
