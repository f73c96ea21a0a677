"""What `fne inspect` and `fne verify` do with captioners and what these write."""

import shutil
from pathlib import Path

import pytest

from fne.cli.artifacts import KINDS
from fne.core.errors import InputError
from fne.describing.kinds import WRITTEN
from fne.store.checksums import parse_metrics, write_metrics
from fne.store.verify import kind_at
from tests.support.captions import write_world
from tests.support.imports import ROOT
from tests.support.projects import change_params
from tests.support.stages import invoke

MODEL, SENTENCES = Path("models/captioner.safetensors"), Path("annotations/captions.jsonl")
METRICS, PAGE = Path("metrics/captions.json"), Path("report/captions.html")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    shutil.copy(ROOT / "params.yaml", folder)
    small = {"units": 8, "word_dim": 6, "batch": 32, "epochs": 1, "min_count": 1}
    change_params(
        folder,
        {"train_captioner": small, "score_captions": {"meteor": "never"}, "runtime": {"device": "cpu"}},
    )
    write_world(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        result = invoke("train_captioner", "write_captions", "score_captions", "captions_page")
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def project(finished, tmp_path, monkeypatch):
    shutil.copytree(finished, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")


def checked(path):
    return kind_at(path, KINDS).check(path, lambda size: None)


def test_written_captions_are_distinguished_from_the_catalog(project):
    assert kind_at(SENTENCES, KINDS) == WRITTEN
    assert kind_at(Path("data/captions.jsonl"), KINDS).name == "captions.jsonl"
    assert kind_at(Path("missing/captions.jsonl"), KINDS).name == "captions.jsonl"


@pytest.mark.parametrize(
    ("path", "name", "ancestor"),
    [
        (MODEL, "captioner", "embeddings"),
        (SENTENCES, "written_captions", "captioner"),
        (PAGE, "captions_page", "captioner"),
    ],
)
def test_artifacts_record_what_they_are_and_were_made_from(project, path, name, ancestor):
    contents = checked(path)
    assert contents.faults == []
    assert contents.artifact.name == name
    assert ancestor in contents.artifact.lineage
    assert contents.artifact.settings


def test_a_captioner_is_described_with_its_settings_and_written_captions_with_examples(project):
    lines = kind_at(MODEL, KINDS).describe(MODEL)
    assert lines[0].startswith("models/captioner.safetensors: captioner, ")
    assert any(line.strip() == "condition: concepts" for line in lines)
    lines = kind_at(SENTENCES, KINDS).describe(SENTENCES)
    said = "annotations/captions.jsonl: captions that a model wrote, 192 sentences for 64 images"
    assert lines[0].startswith(said)
    assert lines[2].startswith("  00.png: ")


def test_scores_are_a_table_with_the_baselines_and_say_that_the_captioner_collapsed(project):
    content = parse_metrics(METRICS.read_bytes())
    content["test_full"]["collapsed"] = True
    for name, score in {"captioner": 0.5, "constant": 0.1, "nearest": 0.75, "consensus": 0.25}.items():
        content["test_full"][name] |= {"CIDEr-D": score, "words_used": 7.0, "distinct_captions": 0.5}
    write_metrics(METRICS, content)
    lines = kind_at(METRICS, KINDS).describe(METRICS)
    assert lines[0] == "metrics/captions.json: test_full, captions of 8 images"
    assert [line.split()[0] for line in lines[2:6]] == ["captioner", "constant", "nearest", "consensus"]
    assert lines[1].split()[-2:] == ["words", "distinct"]
    assert lines[2].split()[-2:] == ["7", "50%"]
    assert lines[6] == "  CIDEr-D of the captioner: -0.250 to the best baseline, 'nearest'"
    assert lines[-1] == "  the captioner writes the same for (nearly) all images"


@pytest.mark.parametrize("path", [MODEL, SENTENCES])
def test_a_flipped_bit_is_detected(project, path):
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError):
        checked(path)
