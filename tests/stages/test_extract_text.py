import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.extraction.text_networks import TextNetwork
from fne.features.embeddings import unit_rows
from fne.search.engine import search
from fne.search.open_project import open_project
from fne.search.snapshot import open_for_sentence
from fne.store.catalog import Captioned, read_captions, write_captions
from fne.store.rows import Rows
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.stages import refused, run
from tests.support.text_networks import write_bert

__all__ = ["run"]

STORE = Path("features/text/activations")
TEXT = ("extract_text", "standardize_text", "embed_text")
WHOLE = (*TEXT, "standardize", "embed", "tokenize", "train", "encode")


@pytest.fixture
def project(run, tmp_path):
    write_bert(tmp_path / "net")
    return run


def use(**changes) -> None:
    change_params(
        Path(), {"extract_text": {"network": "net"}, "embed_text": {"source": str(STORE)}} | changes
    )


def files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in STORE.iterdir()}


def write_texts(**changed: str) -> None:
    captioned, _ = read_captions(Path("data/captions.jsonl"))
    records = [
        Captioned(
            each.id, each.split, (changed.get(f"c{each.id[:2]}", each.captions[0]), each.captions[1]), ()
        )
        for each in captioned
    ]
    write_captions(Path("data/captions.jsonl"), records)


def test_captions_become_rows_that_are_kept_and_only_new_ones_are_computed(project, monkeypatch):
    use()
    assert project("extract_text").exit_code == 0
    rows = Rows.open(STORE, "caption_features")
    assert (len(rows.ids), rows.features) == (40, 24)
    assert rows.artifact.lineage.keys() == {"captions", "text_network"}
    kept = rows.read(rows.ids)
    before, computed, original = files(), [], TextNetwork.rows
    monkeypatch.setattr(
        TextNetwork, "rows", lambda self, numbers: computed.append(len(numbers)) or original(self, numbers)
    )
    assert project("extract_text").exit_code == 0
    assert (files(), computed) == (before, [])
    write_texts(c03="a red cat .")
    result = project("extract_text")
    assert "1 to compute" in result.output
    assert computed == [1]
    again = Rows.open(STORE)
    others = [each for each in rows.ids if each != "03.png#0"]
    places = [rows.ids.index(each) for each in others]
    assert again.read(others).tobytes() == kept[places].tobytes()
    assert not np.array_equal(again.read(["03.png#0"])[0], kept[rows.ids.index("03.png#0")])


def test_a_killed_run_continues_and_gives_the_same_bytes(project, tmp_path):
    use(runtime={"scratch": ".killed"})
    program = (
        "import os, signal\n"
        "from fne.extraction.text_networks import TextNetwork\n"
        "original, calls = TextNetwork.rows, []\n"
        "def rows(self, numbers):\n"
        "    calls.append(1)\n"
        "    if len(calls) > 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return original(self, numbers[:8])\n"
        "import fne.extraction.text_networks as networks, fne.extraction.text_rows as text_rows\n"
        "text_rows.BATCH = 8\n"
        "TextNetwork.rows = rows\n"
        "from stages.extract_text import main\n"
        "main(['data/captions.jsonl', 'features/text/activations'])\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    killed = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert not STORE.exists()
    result = project("extract_text")
    assert "40 captions: 40 different ones, 32 to compute" in result.output
    continued = files()
    use(runtime={"scratch": ".whole"})
    assert project("extract_text").exit_code == 0
    assert files() == continued


def test_an_empty_caption_is_refused_and_a_long_one_is_said(project):
    use()
    write_texts(c03=" ", c04="dog " * 30)
    assert refused(project("extract_text")) == (
        "caption '03.png#0' is empty; remove it from the data set, or write one"
    )
    write_texts(c03="dog", c04="dog " * 30)
    assert "1 captions have more than 12 tokens and are cut: '04.png#0'" in project("extract_text").output


@pytest.mark.parametrize("kind", ["blocks", "fne"])
def test_a_new_sentence_goes_the_way_of_the_captions(project, kind):
    use(
        embed_text={"source": str(STORE), "kind": kind},
        tokenize={"vectors": "features/text/embeddings"},
        train={"text_encoder": "rows", "start": "auto", "image_head": "linear_bias", "epochs": 2},
    )
    result = project(*WHOLE)
    assert result.exit_code == 0, result.output
    embedded = Rows.open(Path("features/text/embeddings"), "caption_embeddings")
    raw = Rows.open(STORE).read(["03.png#0"])
    if kind == "blocks":
        expected = np.concatenate([unit_rows(part) for part in np.split(raw, 3, axis=1)], axis=1)
        assert np.allclose(embedded.read(["03.png#0"]), expected, atol=1e-6)
    else:
        assert embedded.dtype == "ternary"
    opened = open_project(Path())
    reader = open_for_sentence(opened, in_folder=True).reader
    stored = Rows.open(Path("vectors/captions"))
    record = read_captions(Path("data/captions.jsonl"))[0][3]
    ids = record.caption_ids
    assert np.allclose(reader(list(record.captions)), stored.read(ids), atol=1e-5)
    answer = search(opened, "a red cat that nobody wrote", None, None, 3)
    assert (answer.found, len(answer.matches), answer.unknown_words) == ("images", 3, [])
    change_params(Path(), {"extract_text": {"network": "other"}})
    write_bert(Path("other"), seed=5)
    message = refused_search(opened)
    assert "text_network" in message
    assert message.count("…") == 2, "both digests"


def refused_search(opened) -> str:
    with pytest.raises(InputError) as found:
        search(opened, "a red cat", None, None, 3)
    return str(found.value.message)
