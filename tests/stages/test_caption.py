import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from fne.core.files import file_digest
from fne.describing.annotations import read_written
from fne.store.checksums import parse_metrics
from stages.caption import main
from stages.train_captioner import main as train_captioner
from tests.support.captions import write_world
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.stages import COMMANDS

OUTS = [Path(each) for each in COMMANDS["caption"].split()[5:]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Make a folder with a captioner that has learned next to nothing."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copy(ROOT / "params.yaml", folder)
    change_params(
        folder,
        {
            "train_captioner": {"units": 8, "word_dim": 6, "batch": 32, "epochs": 1, "min_count": 1},
            "caption": {"meteor": "never", "examples": 5},
            "runtime": {"device": "cpu", "threads": 1},
        },
    )
    write_world(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        result = CliRunner().invoke(train_captioner, COMMANDS["train_captioner"].split())
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def caption(trained, tmp_path, monkeypatch):
    folder = tmp_path / "project"
    shutil.copytree(trained, folder)
    monkeypatch.chdir(folder)
    return lambda: CliRunner().invoke(main, COMMANDS["caption"].split())


def test_every_image_gets_sentences_and_the_split_is_scored(caption):
    result = caption()
    assert result.exit_code == 0, result.output
    written, artifact = read_written(OUTS[0])
    assert len(written) == 64
    assert {len(each.sentences) for each in written.values()} == {3}
    assert "captioner" in artifact.lineage
    metrics = json.loads(OUTS[1].read_text())["test_full"]
    assert metrics["images"] == 8
    assert {"BLEU-4", "ROUGE-L", "CIDEr-D", "length_ratio"} <= metrics["captioner"].keys()
    assert "CIDEr-D_above_best_baseline" in json.loads(OUTS[2].read_text())["test_full"]
    assert "What the captioner writes about images" in OUTS[3].read_text()


def test_equal_inputs_give_equal_bytes(caption):
    caption()
    first = [file_digest(path) for path in OUTS]
    caption()
    assert [file_digest(path) for path in OUTS] == first


def test_captions_are_not_searched_again_for_another_page(caption, monkeypatch):
    caption()
    first = OUTS[0].read_bytes().partition(b"\n")[2]
    change_params(Path(), {"caption": {"examples": 2, "neighbors": 1}})
    monkeypatch.delattr("fne.describing.write.search")
    result = caption()
    assert result.exit_code == 0, result.output
    assert OUTS[0].read_bytes().partition(b"\n")[2] == first


def test_only_the_scored_images_if_asked_for(caption):
    change_params(Path(), {"caption": {"images": "split", "split": "val", "beam": 1}})
    assert caption().exit_code == 0
    written, _ = read_written(OUTS[0])
    assert len(written) == 8
    assert list(parse_metrics(OUTS[1].read_bytes())) == ["val_full"]


def test_a_captioner_of_other_embeddings_is_refused(caption):
    write_world(Path(), noise=0.2)
    result = caption()
    assert result.exit_code == 2
    assert "models/captioner.safetensors was made from embeddings " in result.stderr
    assert "but features/embeddings holds embeddings " in result.stderr


def test_a_history_of_another_captioner_is_refused(caption):
    shutil.rmtree(".fne")
    shutil.move("models/captioner.safetensors", "other")
    change_params(Path(), {"train_captioner": {"seed": 1}})
    assert CliRunner().invoke(train_captioner, COMMANDS["train_captioner"].split()).exit_code == 0
    shutil.move("other", "models/captioner.safetensors")
    result = caption()
    assert result.exit_code == 2
    assert "models/captioner_history was made from captioner " in result.stderr
