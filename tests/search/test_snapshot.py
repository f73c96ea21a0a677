"""Artifacts are loaded as a set that belongs together, or not at all."""

import shutil

import pytest

from fne.core.errors import InputError
from fne.search.snapshot import fingerprint, load_snapshot
from tests.support.projects import change_params
from tests.support.search import run_stages


def test_a_finished_project_is_loaded_completely(project):
    found = load_snapshot(project / "params.yaml")
    assert len(found.embeddings.ids) == len(found.images.ids) == 24
    assert len(found.captions.ids) == 40
    assert list(found.describing) == ["tags"]
    assert found.splits == {"train": 8, "val": 4, "test": 8, "gallery": 4}
    [note] = found.notes
    assert note.startswith("no caption and concepts; `dvc repro pipelines/captioning/dvc.yaml` makes models/")
    assert found.version == load_snapshot(project / "params.yaml").version
    captioned = found.catalog.captioned.values()
    held_out = [each.captions[0] for each in captioned if each.split in ("val", "test")]
    assert found.examples == held_out[:3]


def test_parts_that_are_missing_are_named(project):
    shutil.rmtree(project / "vectors")
    found = load_snapshot(project / "params.yaml")
    assert found.model is None
    needed = "models/matching/model.safetensors and vectors/; run `dvc repro encode`"
    assert found.notes[0] == f"sentences need {needed}"
    needed = "models/tuned.safetensors and vectors/tuned/; run `dvc repro pipelines/finetuning/dvc.yaml`"
    assert load_snapshot(project / "params.yaml", "tuned").notes[0] == f"sentences need {needed}"
    shutil.rmtree(project / "features/embeddings")
    with pytest.raises(InputError, match="nothing to search yet: look-alikes need features/embeddings"):
        load_snapshot(project / "params.yaml")


def test_parts_that_do_not_belong_together_are_refused(project):
    change_params(project, {"train": {"seed": 7}})
    run_stages("train")
    with pytest.raises(InputError, match="holds model .*, but .*vectors/images was made from model"):
        load_snapshot(project / "params.yaml")


def test_a_tagger_of_other_embeddings_is_left_out(project):
    change_params(project, {"embed": {"low": -0.5}})
    run_stages("embed", "train", "encode")
    found = load_snapshot(project / "params.yaml")
    assert found.describing == {}
    assert any(note.startswith("no tags and concepts: ") and "dvc repro" in note for note in found.notes)


def test_a_replaced_file_changes_the_fingerprint(project):
    before = fingerprint(project / "params.yaml")
    assert fingerprint(project / "params.yaml") == before
    model = project / "models/matching/model.safetensors"
    content = model.read_bytes()
    model.unlink()
    assert fingerprint(project / "params.yaml") != before
    model.write_bytes(content)
    assert fingerprint(project / "params.yaml") != before
