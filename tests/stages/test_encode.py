import json
from pathlib import Path

import numpy as np

from fne.core.dvc import bytes_md5, cache_object, content_md5
from fne.store.rows import Rows
from tests.support.projects import change_params
from tests.support.stages import IDS, SPLITS, refusal, write_catalog

READY = ("standardize", "embed", "tokenize", "train")
MODEL = Path("models/matching/model.safetensors")


def test_all_images_and_captions_become_vectors_of_length_one(run):
    write_catalog([*SPLITS[:-2], "gallery", "gallery"])
    assert run(*READY, "encode").exit_code == 0
    images, captions = Rows.open(Path("vectors/images")), Rows.open(Path("vectors/captions"))
    assert (sorted(images.ids), len(captions.ids)) == (IDS, 36)
    assert np.allclose(np.linalg.norm(images.read(IDS), axis=1), 1)


def test_every_stage_records_the_shards_that_it_has_hashed(run, monkeypatch):
    monkeypatch.setattr("fne.core.stat_cache.CLOCK_RESOLUTION", 0)
    records, before = Path(".fne/verified"), 0
    for stages in (["standardize"], ["embed", "tokenize"], ["train"], ["encode"], ["evaluate"]):
        assert run(*stages).exit_code == 0
        lines = len(records.read_text().split())
        # `embed` reads the shards that `standardize` has hashed, and `encode` those of `train`.
        assert (lines > before) is (stages[-1] in ("standardize", "train", "evaluate")), stages
        before = lines


def test_a_model_of_other_embeddings_is_refused(run):
    run(*READY)
    change_params(Path(), {"embed": {"low": -1.0}})
    message = refusal("embed", "encode")
    assert message.startswith(f"{MODEL} was made from embeddings ")
    assert "…, but features/embeddings holds embeddings " in message


def test_the_next_stage_refuses_a_model_whose_settings_differ_from_the_record(run):
    assert run(*READY).exit_code == 0
    listing = [{"md5": content_md5(MODEL), "relpath": MODEL.name}]
    content = json.dumps(listing, sort_keys=True).encode()
    cached = cache_object(Path(".dvc/cache/files/md5"), f"{bytes_md5(content)}.dir")
    cached.parent.mkdir(parents=True)
    cached.write_bytes(content)
    Path(".dvc/config").write_text("[core]\n    no_scm = true\n")
    outs = [{"path": str(MODEL.parent), "md5": content_md5(MODEL.parent)}]
    train = {"params": {"params.yaml": {"train": {"margin": 0.4}}}, "outs": outs}
    Path("dvc.lock").write_text(json.dumps({"stages": {"train": train}}))
    change_params(Path(), {"train": {"margin": 0.4}})
    made = f"{MODEL} was made with train.margin = [0.2], but dvc.lock records 0.4; "
    assert refusal("encode") == f"{made}run `dvc repro --force train`"
    assert not Path("vectors").exists()
