from pathlib import Path

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.matching.modelfile import read_model_file
from fne.matching.sentence import PREFIX, embed_sentence
from fne.retrieval import by_model, with_torch
from fne.retrieval.project import Project
from fne.retrieval.search import search
from fne.store.lineage import Artifact

MODEL = Path("models/matching.safetensors")


def test_torch_embeds_a_sentence_as_numpy_does(project):
    expected = embed_sentence(read_model_file(MODEL, PREFIX), [1, 2, 3])
    np.testing.assert_allclose(with_torch.embed_sentence(MODEL, [1, 2, 3]), expected, rtol=1e-5, atol=1e-6)


def test_a_text_encoder_without_a_twin_is_answered_all_the_same(project, monkeypatch):
    expected = search(Project(Path("params.yaml")), "a red circle", None, None, 24)
    asked, embed = [], with_torch.embed_sentence
    monkeypatch.setattr(by_model, "SENTENCE_ENCODERS", {})
    monkeypatch.setattr(with_torch, "embed_sentence", lambda *given: asked.append(given) or embed(*given))
    found = search(Project(Path("params.yaml")), "a red circle", None, None, 24)
    assert len(asked) == 1
    scores = [{match.id: match.score for match in each.matches} for each in (found, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def test_a_model_that_was_replaced_meanwhile_is_refused(project):
    before = Artifact(MODEL, "model", "0" * 64)
    with pytest.raises(
        InputError, match=r"holds model .*…, but .* holds model 000000000000…; run `dvc repro`"
    ):
        with_torch.open_maker(Project(Path("params.yaml")), before)
