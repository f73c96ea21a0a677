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
    assert found.notes == [
        "no caption and concepts; `dvc repro pipelines/captioning/dvc.yaml` makes models/captioner.safetensors"
    ]


def test_examples_are_captions_of_images_that_were_not_trained_on(project):
    found = load_snapshot(project / "params.yaml")
    held_out = [
        each.captions[0] for each in found.catalog.captioned.values() if each.split in ("val", "test")
    ]
    assert found.examples == held_out[:3]


def test_the_same_files_are_the_same_version(project):
    assert load_snapshot(project / "params.yaml").version == load_snapshot(project / "params.yaml").version


def test_parts_that_are_missing_are_named(project):
    shutil.rmtree(project / "vectors")
    found = load_snapshot(project / "params.yaml")
    assert found.model is None
    assert (
        found.notes[0]
        == "sentences need models/matching/model.safetensors and vectors/; run `dvc repro encode`"
    )
    assert load_snapshot(project / "params.yaml", "tuned").notes[0] == (
        "sentences need models/tuned.safetensors and vectors/tuned/; run `dvc repro "
        "pipelines/finetuning/dvc.yaml`"
    )
    shutil.rmtree(project / "features/embeddings")
    with pytest.raises(
        InputError, match="there is nothing to search yet: look-alikes need features/embeddings"
    ):
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
    content = (project / "models/matching/model.safetensors").read_bytes()
    (project / "models/matching/model.safetensors").unlink()
    assert fingerprint(project / "params.yaml") != before
    (project / "models/matching/model.safetensors").write_bytes(content)
    assert fingerprint(project / "params.yaml") != before
