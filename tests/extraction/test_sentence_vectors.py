import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from fne.cli import main
from fne.core.errors import InputError
from fne.extraction.sentence_vectors import open_sentence_vectors
from fne.extraction.text_networks import open_text_network
from fne.search.engine import search
from fne.search.open_project import choose_model
from fne.store.catalog import read_captions
from tests.support.projects import change_params
from tests.support.stages import IDS, run
from tests.support.text_networks import (
    PretendedOpenClip,
    write_bert,
    write_clip,
    write_open_clip,
    write_pretended_clip,
    write_sentence_transformer,
)

__all__ = ["run"]

SENTENCES = ["a dog", "red cat .", "number 12 cat a dog red cat ."]


@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken"])
def test_the_modules_of_sentence_transformers_are_applied_in_turn(tmp_path, pooling):
    folder = write_sentence_transformer(tmp_path / "net", pooling)
    found = open_sentence_vectors(folder).encode(SENTENCES)
    network = open_text_network(folder)
    weights = load_file(folder / "2_Dense/model.safetensors")
    for sentence, vector in zip(SENTENCES, found, strict=True):
        numbers = network.tokenizer(sentence, truncation=True, max_length=6)["input_ids"]
        with torch.no_grad():
            states = network.model(input_ids=torch.tensor([numbers])).last_hidden_state[0].numpy()
        pooled = {"mean": states.mean(axis=0), "cls": states[0], "lasttoken": states[-1]}[pooling]
        mapped = np.tanh(weights["linear.weight"].numpy() @ pooled + weights["linear.bias"].numpy())
        assert np.allclose(vector, mapped / np.linalg.norm(mapped), atol=1e-5)


def test_a_clip_projects_its_end_token(tmp_path):
    from transformers import CLIPModel

    folder = write_clip(tmp_path / "net")
    found = open_sentence_vectors(folder).encode(SENTENCES)
    model, network = CLIPModel.from_pretrained(folder).eval(), open_text_network(folder)
    for sentence, vector in zip(SENTENCES, found, strict=True):
        with torch.no_grad():
            numbers = torch.tensor([network.tokenizer(sentence)["input_ids"]])
            state = model.text_model(input_ids=numbers).last_hidden_state[0, -1]
            expected = model.text_projection(state).numpy()
        assert np.allclose(vector, expected, atol=1e-5)


def of_another_pooling(folder: Path) -> None:
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_max_tokens": true}')


def with_another_module(folder: Path) -> None:
    listed = json.loads((folder / "modules.json").read_text())
    listed[2]["type"] = "x.models.LSTM"
    (folder / "modules.json").write_text(json.dumps(listed))


def outside(folder: Path) -> None:
    (folder / "modules.json").write_text('[{"type": "x.Dense", "path": "../other"}]')


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (of_another_pooling, "pools by max, expected cls, lasttoken, mean"),
        (with_another_module, "the module LSTM is not supported"),
        (outside, "names a folder outside"),
        (lambda folder: (folder / "modules.json").write_text("{"), "modules.json: damaged"),
        (lambda folder: (folder / "modules.json").unlink(), "does not say how its tokens become a vector"),
    ],
)
def test_a_folder_that_does_not_say_how_to_pool_is_refused(tmp_path, damage, message):
    folder = write_sentence_transformer(tmp_path / "net")
    damage(folder)
    with pytest.raises(InputError, match=message):
        open_sentence_vectors(folder)


@pytest.fixture(params=["sentence-transformers", "open_clip", "pretended open_clip"])
def folder(request, tmp_path, monkeypatch):
    """A network of each program whose vectors can be imported."""
    if request.param == "sentence-transformers":
        return write_sentence_transformer(tmp_path / "net")
    if request.param == "open_clip":
        pytest.importorskip("open_clip", reason="open_clip is not installed: pip install -e '.[clip]'")
        return write_open_clip(tmp_path / "net")
    monkeypatch.setitem(sys.modules, "open_clip", PretendedOpenClip)
    return write_pretended_clip(tmp_path / "net")


def test_a_network_of_open_clip_that_cannot_be_read_is_refused(tmp_path, monkeypatch):
    folder = write_pretended_clip(tmp_path / "net")
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(InputError, match=r"pip install -e '\.\[clip\]'"):
        open_sentence_vectors(folder)
    monkeypatch.setitem(sys.modules, "open_clip", PretendedOpenClip)
    (folder / "open_clip_model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match="cannot be read as a network of open_clip"):
        open_sentence_vectors(folder)


def test_an_import_that_names_its_network_answers_new_sentences(run, folder, tmp_path):
    captioned, _ = read_captions(Path("data/captions.jsonl"))
    texts = {i: text for each in captioned for i, text in zip(each.caption_ids, each.captions, strict=True)}
    vectors = open_sentence_vectors(folder).encode([*texts.values()])
    np.savez("captions.npz", vectors=vectors.astype(np.float16), ids=[*texts])
    np.savez("images.npz", vectors=vectors[::2], ids=IDS)
    command = ["import", "captions.npz", "--captions", "--text-network"]
    result = CliRunner().invoke(main, [*command, str(write_bert(tmp_path / "other"))])
    assert (result.exit_code, "does not say how its tokens" in result.output) == (2, True)
    result = CliRunner().invoke(main, [*command, str(folder)])
    assert "captions agree" in result.output, result.output
    assert CliRunner().invoke(main, ["import", "images.npz", "--to", "features/i"]).exit_code == 0
    change_params(Path(), {"imported": {"images": "features/i", "captions": "features/imported_captions"}})
    project = choose_model(Path("params.yaml"), "imported", imported=True)
    answer = search(project, "number 07 a dog", None, None, 3)
    images = vectors[::2] / np.linalg.norm(vectors[::2], axis=1, keepdims=True)
    expected = images @ open_sentence_vectors(folder).encode(["number 07 a dog"])[0]
    assert [each.image for each in answer.matches] == [IDS[place] for place in np.argsort(-expected)[:3]]
    vectors[0] *= -1
    np.savez("captions.npz", vectors=vectors, ids=[*texts])
    result = CliRunner().invoke(main, [*command, str(folder)])
    assert result.exit_code == 2
    assert "makes another vector of" in result.output
