"""A project of all kinds of artifacts, damaged in one way at a time."""

import json
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner, Result

from fne.captions.vocabulary import read_vocabulary, write_vocabulary
from fne.cli import main
from fne.commands.tracked import content_md5
from fne.datasets.rejects import write_rejects
from fne.matching.model import Shape, new_matcher
from fne.matching.modelfile import write_model
from fne.store.arrays import write_arrays
from fne.store.catalog import (
    Captioned,
    Image,
    read_captions,
    read_images,
    split_artifact,
    write_captions,
    write_images,
)
from fne.store.files import file_digest
from fne.store.formats import seal_text
from fne.store.layout import Layer, plan_shards
from fne.store.lineage import merge
from fne.store.rows import Rows
from fne.store.tokens import write_tokens
from fne.store.writer import write_rows
from tests.imports import ROOT

IDS = ["a", "b", "c", "d"]
IMAGES, CAPTIONS = Path("data/images.jsonl"), Path("data/captions.jsonl")
ACTIVATIONS, STATISTICS = Path("features/activations"), Path("features/statistics.h5")
VOCABULARY, TOKENS = Path("captions/vocabulary.json"), Path("captions/tokens.h5")
MODEL, REJECTS, METRICS, PAGE = (
    Path("models/matching.safetensors"),
    Path("data/rejects.csv"),
    Path("metrics/retrieval.json"),
    Path("report/index.html"),
)


def store(path=ACTIVATIONS, ids=IDS, value=0.0, lineage=None, name="activations") -> None:
    shards = [
        (number, chosen, np.full((len(chosen), 3), value)) for number, chosen in plan_shards(ids, 2).items()
    ]
    lineage = merge(read_images(IMAGES)[1]) if lineage is None else lineage
    write_rows(path, name, [Layer("conv", 1), Layer("fc", 2)], "float32", shards, {}, lineage)


def statistics(**arrays) -> None:
    captioned, _ = read_captions(CAPTIONS)
    lineage = merge(Rows.open(ACTIVATIONS).artifact, split_artifact(CAPTIONS, captioned, "train"))
    write_arrays(
        STATISTICS, "statistics", {"mean": np.zeros(3), "deviation": np.ones(3)} | arrays, {}, lineage
    )


def tokens(captions=None) -> None:
    lineage = merge(read_captions(CAPTIONS)[1], read_vocabulary(VOCABULARY).artifact)
    write_tokens(TOKENS, captions or {f"{each}#0": [1] for each in IDS}, {"words": 2}, lineage)


def catalog(ids=IDS, word="x") -> None:
    write_images(IMAGES, [Image(each, each, "0", 1, 2, 3) for each in ids])
    write_captions(CAPTIONS, [Captioned(each, "train", (word,), ()) for each in ids])


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """All kinds of artifacts, small and made by hand, with the project's own pipeline."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    for folder in ("data", "metrics", "report", "models/history/plots/metrics/train"):
        Path(folder).mkdir(parents=True)
    catalog()
    write_rejects(REJECTS, [])
    store()
    statistics()
    write_vocabulary(VOCABULARY, ["<unk>", "x"], {})
    tokens()
    write_model(MODEL, new_matcher(Shape("linear", "gru", "cosine", False, 4, 3, 2, 2), seed=0), {}, {})
    Path("models/history/plots/metrics/train/loss.tsv").write_text("step\tloss\n0\t1.5\n")
    Path("models/history/metrics.json").write_text("{}")
    METRICS.write_text("{}")
    PAGE.write_text("<!DOCTYPE html><html></html>")
    return tmp_path


def verify(*paths) -> Result:
    return CliRunner().invoke(main, ["verify", *map(str, paths)])


def faults(*paths) -> list[str]:
    result = verify(*paths)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    return result.stderr.splitlines()


def change_manifest(path: Path, **changes) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["sha256"]
    (path / "manifest.json").write_text(seal_text(json.dumps(manifest | changes)))


def test_a_sound_project_has_no_faults():
    result = verify()
    assert result.exit_code == 0, result.output
    assert result.output.startswith("11 artifacts verified, ")
    assert result.output.endswith(" not here (`dvc pull` fetches them), no faults\n")


def test_one_sound_artifact_has_no_faults():
    assert verify(ACTIVATIONS, TOKENS).output == "2 artifacts verified, no faults\n"


def test_all_faults_are_found_and_not_only_the_first():
    shard = ACTIVATIONS / "shard-0001.h5"
    shard.write_bytes(shard.read_bytes()[:-1])
    (ACTIVATIONS / "notes.txt").write_text("mine")
    METRICS.write_text("{")
    lines = faults()
    assert len(lines) == 3
    assert lines[0].startswith(f"{shard}: damaged: expected ")
    assert lines[1] == (
        "features/activations: 'notes.txt' is no part of the store; remove it and run `dvc repro extract`"
    )
    assert lines[2].startswith("metrics/retrieval.json: not valid JSON (")


def test_the_summary_counts_the_faults():
    PAGE.write_text("<!DOCTYPE html><html>")
    result = verify(PAGE)
    assert (result.stdout, result.stderr) == (
        "1 artifacts verified, 1 faults\n",
        "report/index.html: not a whole HTML page; remove it and run `dvc repro report`\n",
    )


def test_verification_never_trusts_what_was_remembered():
    shards = list(ACTIVATIONS.glob("*.h5"))
    for shard in shards:
        os.utime(shard, ns=(1, 10**9))
    Rows.open(ACTIVATIONS).read(IDS)
    content = bytearray(shards[0].read_bytes())
    content[-1] ^= 1
    with shards[0].open("r+b") as file:
        file.write(content)
    os.utime(shards[0], ns=(1, 10**9))
    Rows.open(ACTIVATIONS).read(IDS)
    assert faults(ACTIVATIONS)[0].startswith(f"{shards[0]}: damaged: expected ")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named(value):
    store(value=value)
    statistics(mean=np.array([0, value, 0]))
    lines = faults(ACTIVATIONS, STATISTICS)
    assert lines[0].startswith(f"{ACTIVATIONS}/shard-0000.h5: row ")
    assert f"has {value} in layer 'conv', column 0; " in lines[0]
    assert lines[-1].startswith(f"{STATISTICS}: 'mean' has 1 values that are not finite; ")


def test_rows_that_the_catalog_does_not_name_and_rows_it_lacks_are_named():
    store(ids=["a", "b", "e"])
    assert faults(ACTIVATIONS) == [
        "features/activations: lacks 2 of the 4 ids of data/images.jsonl, the first is 'c'; run `dvc repro`",
        "features/activations: has 1 ids that data/images.jsonl does not have, the first is 'e'; run `dvc repro`",
    ]


def test_an_imported_store_may_have_more_rows_than_the_catalog_but_not_fewer():
    imported = Path("features/imported")
    store(imported, ids=[*IDS, "e"], lineage={})
    assert verify(imported).exit_code == 0
    store(imported, ids=IDS[:3], lineage={})
    assert faults(imported) == [
        "features/imported: lacks 1 of the 4 ids of data/captions.jsonl, the first is 'd'; "
        "bring it again, or import it again with `fne import`"
    ]


def test_tokens_must_be_of_the_captions_and_within_the_vocabulary():
    tokens({"a#0": [2], "b#0": [1], "c#0": []})
    assert faults(TOKENS) == [
        "captions/tokens.h5: has words beyond the 2 of its vocabulary; remove it and run `dvc repro tokenize`",
        "captions/tokens.h5: lacks 1 of the 4 ids of data/captions.jsonl, the first is 'd#0'; run `dvc repro`",
    ]


def test_artifacts_made_from_others_than_those_here_are_named_with_both_digests():
    before = Rows.open(ACTIVATIONS).artifact.digest
    store(value=1.0)
    after = Rows.open(ACTIVATIONS).artifact.digest
    assert faults() == [
        f"features/statistics.h5 was made from activations {before[:12]}…, but "
        f"features/activations holds activations {after[:12]}…; run `dvc repro`"
    ]


def test_another_catalog_is_noticed_by_all_that_was_made_from_it():
    old, old_images = (
        read(path)[1].digest for read, path in ((read_captions, CAPTIONS), (read_images, IMAGES))
    )
    catalog(IDS[:3], word="y")
    new, new_images = (
        read(path)[1].digest for read, path in ((read_captions, CAPTIONS), (read_images, IMAGES))
    )
    lines = faults(ACTIVATIONS, TOKENS)
    assert (
        f"captions/tokens.h5 was made from captions {old[:12]}…, but data/captions.jsonl holds captions "
        f"{new[:12]}…; run `dvc repro`"
    ) in lines
    assert (
        f"features/activations was made from images {old_images[:12]}…, but data/images.jsonl holds images "
        f"{new_images[:12]}…; run `dvc repro`"
    ) in lines


def test_extracted_and_imported_activations_may_stand_side_by_side():
    store(Path("features/imported"), value=5.0, lineage={})
    lineage = merge(Rows.open(Path("features/imported")).artifact)
    store(Path("features/embeddings"), lineage=lineage, name="embeddings")
    assert verify("features/embeddings", "features/imported").exit_code == 0


def test_statistics_that_make_no_sense_are_named():
    statistics(deviation=-np.ones(3))
    assert faults(STATISTICS)[0].startswith("features/statistics.h5: has negative deviations; ")
    statistics(deviation=np.ones(2))
    assert faults(STATISTICS)[0].startswith("features/statistics.h5: has (3,) means, but (2,) deviations; ")


def test_a_store_that_reaches_out_of_itself_is_refused():
    shard = ACTIVATIONS / "shard-0000.h5"
    with h5py.File(shard, "a") as file:
        file["more"] = h5py.ExternalLink("/etc/passwd", "/")
    shards = json.loads((ACTIVATIONS / "manifest.json").read_text())["shards"]
    shards[0]["sha256"] = file_digest(shard)
    change_manifest(ACTIVATIONS, shards=shards)
    assert faults(ACTIVATIONS)[0] == (
        f"{shard}: 'more' is a link out of the file; such files are refused; remove it and run `dvc repro extract`"
    )


def test_ids_that_come_twice_are_named():
    shards = json.loads((ACTIVATIONS / "manifest.json").read_text())["shards"]
    shards[0]["ids"] = [shards[1]["ids"][0], *shards[0]["ids"][1:]]
    change_manifest(ACTIVATIONS, shards=shards)
    assert any(": has 1 ids more than once, the first is " in line for line in faults(ACTIVATIONS))


def test_a_newer_format_is_refused_naming_the_version_it_needs():
    change_manifest(ACTIVATIONS, version=3)
    assert faults(ACTIVATIONS)[0].startswith(
        "features/activations/manifest.json: needs a version of fne that reads fne-rows 3; "
        "this one reads fne-rows up to 2; "
    )


@pytest.mark.parametrize(
    ("path", "content", "fault"),
    [
        (REJECTS, b"id,path\n", "expected the columns id, path, caption, reason"),
        (REJECTS, b"", "expected the columns id, path, caption, reason"),
        (REJECTS, b"\xff", "not a table of rejects"),
        (METRICS, b'{"R@1": NaN}', "not valid JSON (NaN is not a number)"),
        (
            Path("models/history/plots/metrics/train/loss.tsv"),
            b"step\tloss\n0\tx\n",
            "expected numbers in columns",
        ),
        (Path("models/history/metrics.json"), b"", "not valid JSON"),
        (VOCABULARY, b"{}", "damaged (KeyError('format'))"),
        (CAPTIONS, b"", "not a catalog file (it is empty)"),
        (MODEL, b"", "damaged or not a model of ours"),
    ],
)
def test_what_cannot_be_parsed_is_named(path, content, fault):
    path.write_bytes(content)
    assert any(
        line.startswith(f"{path}: {fault}") and "; remove it and run `dvc repro " in line for line in faults()
    )


def test_what_differs_from_the_lock_file_is_named_with_both_digests():
    lock = {"stages": {"report": {"outs": [{"path": str(PAGE), "md5": "0" * 32}]}}}
    Path("dvc.lock").write_text(json.dumps(lock))
    (line,) = [line for line in faults() if line.startswith(str(PAGE))]
    assert line.startswith(f"{PAGE}: is not what dvc.lock names: expected md5 000000000000…, found ")


def test_a_missing_path_and_a_foreign_file_are_named():
    Path("notes.txt").write_text("mine")
    Path("photos").mkdir()
    assert faults("nowhere", "notes.txt", "photos") == [
        "nowhere: no such file or folder",
        "notes.txt: not an artifact of the pipeline",
        "photos: not an artifact of the pipeline",
    ]


def test_a_folder_stands_for_the_artifacts_in_it():
    assert verify("features", "captions").output == "4 artifacts verified, no faults\n"
    store(value=np.nan)
    assert any("has nan in layer 'conv'" in line for line in faults("features"))


def test_an_artifact_is_known_however_its_path_is_typed(project):
    PAGE.write_text("")
    for typed in (project / PAGE, "report/../report/index.html"):
        assert faults(typed) == [
            "report/index.html: not a whole HTML page; remove it and run `dvc repro report`"
        ]


def test_a_shard_that_is_a_folder_is_named():
    shard = ACTIVATIONS / "shard-0000.h5"
    shard.unlink()
    shard.mkdir()
    assert faults(ACTIVATIONS)[0].startswith(f"{shard}: cannot be read (Is a directory); ")


def test_a_manifest_that_was_changed_and_sealed_again_is_not_what_the_lock_file_names():
    lock = {"stages": {"extract": {"outs": [{"path": str(ACTIVATIONS), "md5": content_md5(ACTIVATIONS)}]}}}
    Path("dvc.lock").write_text(json.dumps(lock))
    assert verify(ACTIVATIONS).exit_code == 0
    change_manifest(ACTIVATIONS, layers=[["conv", 1], ["fc7", 2]])
    (line,) = faults(ACTIVATIONS)
    assert line.startswith(f"{ACTIVATIONS}: is not what dvc.lock names: expected md5 ")


def test_without_a_project_artifacts_must_be_named():
    Path("dvc.yaml").unlink()
    result = verify()
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: dvc.yaml: no such file; run this in the project's folder, or name the artifacts\n",
    )
