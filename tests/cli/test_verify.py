"""A project of all kinds of artifacts, damaged in one way at a time."""

import json
import re
import shutil
from html import escape
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from fne.core import stat_cache
from fne.core.dvc import content_md5
from fne.core.files import file_digest
from fne.core.stat_cache import FileState
from fne.datasets.rejects import Reject, write_rejects
from fne.extraction.settings import TORCHVISION
from fne.extraction.weights import load_weights
from fne.matching.classifier_file import FORMAT, read_classifier, write_classifier
from fne.matching.instance_loss import Classes, new_instance
from fne.matching.model import Shape, new_matcher
from fne.matching.model_file import write_model
from fne.matching.settings import InstanceLoss
from fne.report.record import page_record
from fne.store.arrays import write_arrays
from fne.store.artifact import Artifact, merge
from fne.store.catalog import (
    Captioned,
    Image,
    read_captions,
    read_images,
    split_artifact,
    write_captions,
    write_images,
    write_record,
)
from fne.store.checksums import seal_text, write_metrics
from fne.store.history import seal_history
from fne.store.layout import Layer
from fne.store.rows import Rows, write_without_rows
from fne.store.tensors import write_sealed
from fne.text.tokens import write_tokens
from fne.text.vocabulary import read_vocabulary, write_vocabulary
from fne.text.word_vectors import load_vectors, write_word_vectors
from tests.support.commands import fne, refused
from tests.support.features import write_store
from tests.support.imports import ROOT

IDS = ["a", "b", "c", "d"]
IMAGES, CAPTIONS, RECORD = Path("data/images.jsonl"), Path("data/captions.jsonl"), Path("data/catalog.json")
ACTIVATIONS, STATISTICS = Path("features/activations"), Path("features/statistics.h5")
VOCABULARY, TOKENS = Path("captions/vocabulary.json"), Path("captions/tokens.h5")
MODEL, CLASSIFIER = Path("models/matching/model.safetensors"), Path("models/matching/classifier.safetensors")
HISTORY, METRICS = Path("models/history"), Path("metrics/retrieval.json")
REJECTS, PAGE = Path("data/rejects.csv"), Path("report/index.html")


def store(path=ACTIVATIONS, ids=IDS, value=0.0, lineage=None, name="activations") -> None:
    rows = dict.fromkeys(ids, np.full(3, value))
    lineage = merge(read_images(IMAGES)[1]) if lineage is None else lineage
    write_store(path, name, [Layer("conv", 1), Layer("fc", 2)], rows, shards=2, lineage=lineage)


def statistics(**arrays) -> None:
    captioned, _ = read_captions(CAPTIONS)
    lineage = merge(Rows.open(ACTIVATIONS).artifact, split_artifact(CAPTIONS, captioned, "train"))
    arrays = {"mean": np.zeros(3), "deviation": np.ones(3)} | arrays
    write_arrays(STATISTICS, "statistics", arrays, {}, lineage)


def tokens(captions=None) -> None:
    lineage = merge(read_captions(CAPTIONS)[1], read_vocabulary(VOCABULARY).artifact)
    write_tokens(TOKENS, captions or {f"{each}#0": [1] for each in IDS}, {"words": 2}, lineage)


def catalog(ids=IDS, word="x") -> None:
    write_images(IMAGES, [Image(each, each, "0", 1, 2, 3) for each in ids])
    write_captions(CAPTIONS, [Captioned(each, "train", (word,), ()) for each in ids])


def model(settings) -> str:
    text = {"initial": "torch"}
    shape = Shape("linear", "gru", "cosine", False, 4, 3, 2, 2, text_encoder_settings=text)
    return write_model(MODEL, new_matcher(shape, seed=0), settings, {})


def classifier(digest) -> None:
    settings = InstanceLoss(classes=0, dropout=0.5, bias=False, bias_rate=2.0)
    classes = Classes(new_instance(4, 2, settings, seed=0), {each: place for place, each in enumerate(IDS)})
    write_classifier(CLASSIFIER, classes, {}, Artifact(MODEL, "model", digest))


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
    digest = model({})
    classifier(digest)
    (HISTORY / "plots/metrics/train/loss.tsv").write_text("step\tloss\n0\t1.5\n")
    (HISTORY / "metrics.json").write_text("{}")
    seal_history(HISTORY, 1, digest)
    write_metrics(METRICS, {})
    PAGE.write_text("<!DOCTYPE html><html></html>")
    return tmp_path


def verify(*paths):
    return fne("verify", *paths)


def faults(*paths) -> list[str]:
    return refused("verify", *paths).splitlines()


def fault(*paths) -> str:
    (line,) = faults(*paths)
    return line


def lock(stage: str, out: Path, dependencies=(), **record) -> None:
    """Write a lock file that records one stage with one output."""
    deps = [{"path": str(each), "md5": content_md5(Path(each))} for each in dependencies]
    outs = [{"path": str(out), "md5": content_md5(out) if out.exists() else "0" * 32}]
    stages = {stage: {"deps": deps, "outs": outs} | record}
    Path("dvc.lock").write_text(json.dumps({"stages": stages}))


def change_manifest(path: Path, **changes) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["sha256"]
    (path / "manifest.json").write_text(seal_text(json.dumps(manifest | changes)))


def test_an_intact_project_has_no_faults():
    result = verify()
    assert (result.exit_code, result.output) == (0, "12 artifacts verified, no faults\n")


def test_all_faults_are_found_and_not_only_the_first():
    shard = ACTIVATIONS / "shard-0001.h5"
    shard.write_bytes(shard.read_bytes()[:-1])
    (ACTIVATIONS / "notes.txt").write_text("mine")
    METRICS.write_text("{")
    first, second, third = faults()
    assert first.startswith(f"{shard}: damaged: expected ")
    assert second.startswith(
        "features/activations: 'notes.txt' does not belong to the store, move it elsewhere; "
    )
    assert third.startswith("metrics/retrieval.json: damaged (")


def test_verification_uses_no_records_of_verified_files(project, monkeypatch):
    monkeypatch.setattr("fne.store.rows.file_state", lambda path: FileState(path.name, settled=True))
    stat_cache.use(project / "scratch")
    Rows.open(ACTIVATIONS).read(IDS)
    shard = next(ACTIVATIONS.glob("*.h5"))
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    Rows.open(ACTIVATIONS).read(IDS)  # as if the file had not changed
    assert faults(ACTIVATIONS)[0].startswith(f"{shard}: damaged: expected ")


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
    lacks, more = faults(ACTIVATIONS)
    said = "lacks 2 of the 4 ids of data/images.jsonl, the first is 'c'; run `dvc repro`"
    assert lacks == f"features/activations: {said}"
    assert "has 1 ids that data/images.jsonl does not have, the first is 'e'; run `dvc repro`" in more


def test_an_imported_store_may_have_more_rows_than_the_catalog_but_not_fewer():
    imported = Path("features/imported")
    store(imported, ids=[*IDS, "e"], lineage={})
    assert verify(imported).exit_code == 0
    store(imported, ids=IDS[:3], lineage={})
    said = "lacks 1 of the 4 ids of data/captions.jsonl, the first is 'd'; copy it again, or import it"
    assert said in fault(imported)


def test_tokens_must_be_of_the_captions_and_within_the_vocabulary():
    tokens({"a#0": [2], "b#0": [1], "c#0": []})
    beyond, lacks = faults(TOKENS)
    assert "has words beyond the 2 of its vocabulary; remove it and run `dvc repro tokenize`" in beyond
    assert "lacks 1 of the 4 ids of data/captions.jsonl, the first is 'd#0'; run `dvc repro`" in lacks


def test_artifacts_made_from_other_versions_are_named_with_both_digests():
    before = Rows.open(ACTIVATIONS).artifact.digest
    store(value=1.0)
    after = Rows.open(ACTIVATIONS).artifact.digest
    assert fault() == (
        f"features/statistics.h5 was made from activations {before[:12]}…, but "
        f"features/activations holds activations {after[:12]}…; run `dvc repro`"
    )


def test_another_catalog_is_detected_in_all_that_was_made_from_it():
    def digests():
        return [
            read(path)[1].digest[:12] for read, path in ((read_images, IMAGES), (read_captions, CAPTIONS))
        ]

    old = digests()
    catalog(IDS[:3], word="y")
    said = "\n".join(faults(ACTIVATIONS, TOKENS))
    made = (("features/activations", "images"), ("captions/tokens.h5", "captions"))
    for (path, name), before, after in zip(made, old, digests(), strict=True):
        place = f"data/{name}.jsonl"
        assert (
            f"{path} was made from {name} {before}…, but {place} holds {name} {after}…; run `dvc repro`"
            in said
        )


def test_extracted_and_imported_activations_can_be_joined():
    store(Path("features/imported"), value=5.0, lineage={})
    lineage = merge(Rows.open(Path("features/imported")).artifact)
    store(Path("features/embeddings"), lineage=lineage, name="embeddings")
    assert verify("features/embeddings", "features/imported").exit_code == 0


def test_statistics_that_make_no_sense_are_named():
    statistics(deviation=-np.ones(3))
    assert faults(STATISTICS)[0].startswith("features/statistics.h5: has negative deviations; ")
    statistics(deviation=np.ones(2))
    assert "h5: not an artifact of fne ('mean' has 3 features, " in faults(STATISTICS)[0]


def shards_of_manifest() -> list:
    return json.loads((ACTIVATIONS / "manifest.json").read_text())["shards"]


def test_a_store_that_reaches_out_of_itself_is_refused():
    shard = ACTIVATIONS / "shard-0000.h5"
    with h5py.File(shard, "a") as file:
        file["more"] = h5py.ExternalLink("/etc/passwd", "/")
    shards = shards_of_manifest()
    shards[0]["sha256"] = file_digest(shard)
    change_manifest(ACTIVATIONS, shards=shards)
    said = f"{shard}: 'more' is a link out of the file; such files are refused; "
    assert faults(ACTIVATIONS)[0].startswith(said)


def test_ids_and_shards_that_come_twice_are_named():
    shards = shards_of_manifest()
    change_manifest(ACTIVATIONS, shards=[*shards, shards[0]])
    assert f"'{shards[0]['file']}' is listed twice" in faults(ACTIVATIONS)[0]
    shards[0]["ids"] = [shards[1]["ids"][0], *shards[0]["ids"][1:]]
    change_manifest(ACTIVATIONS, shards=shards)
    assert any(": repeats 1 ids, the first is " in line for line in faults(ACTIVATIONS))


def test_a_newer_format_is_refused_naming_the_version_it_needs():
    change_manifest(ACTIVATIONS, version=3)
    said = "manifest.json: needs a version of fne that reads fne-rows 3; this one reads fne-rows up to 2; "
    assert said in faults(ACTIVATIONS)[0]


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        (REJECTS, b"id,path\n", "expected the columns id, path, caption, reason"),
        (REJECTS, b"", "expected the columns id, path, caption, reason"),
        (REJECTS, b"\xff", "not a table of rejects"),
        (METRICS, b'{"R@1": NaN}', "damaged (NaN is not a number)"),
        (METRICS, b'{"R@1": 1.0, "sha256": ["0"]}', "damaged (its content does not match its seal)"),
        (METRICS, b'{"R@1": 1.0}', "damaged (it has no seal)"),
        (HISTORY / "plots/metrics/train/loss.tsv", b"step\tloss\n0\tx\n", "expected numbers in columns"),
        (HISTORY / "metrics.json", b"", "damaged: expected "),
        (VOCABULARY, b"{}", "damaged (KeyError('format'))"),
        (CAPTIONS, b"", "not a catalog file (it is empty)"),
        (MODEL, b"", "damaged, or not a model of fne"),
    ],
)
def test_what_cannot_be_parsed_is_named(path, content, said):
    path.write_bytes(content)
    (line,) = [line for line in faults() if line.startswith(f"{path}: {said}")]
    assert "; remove it and run `dvc repro " in line


def test_what_differs_from_the_lock_file_is_named_with_both_digests():
    lock("report", PAGE, outs=[{"path": str(PAGE), "md5": "0" * 32}])
    assert fault().startswith(f"{PAGE}: is not what dvc.lock records: expected md5 000000000000…, found ")


def test_a_catalog_without_image_files_has_no_faults():
    write_images(IMAGES, [])
    store(lineage={})
    statistics()
    result = verify(IMAGES, CAPTIONS)
    assert (result.exit_code, result.output) == (0, "2 artifacts verified, no faults\n")


def test_more_features_than_a_shard_holds_are_refused_without_reading_it():
    change_manifest(ACTIVATIONS, layers=[["a", 10**15]])
    assert "damaged (layers.0.1: Input should be less than or equal to 1000000000)" in faults(ACTIVATIONS)[0]
    change_manifest(ACTIVATIONS, layers=[["a", 10**9]])
    assert re.search(r"has \d+ bytes, too few for the \d+ rows of 1000000000 numbers", faults(ACTIVATIONS)[0])


def test_settings_that_are_nested_by_the_hundred_are_one_line():
    nested: dict[str, object] = {}
    for _ in range(500):
        nested = {"a": nested}
    change_manifest(ACTIVATIONS, settings=nested)
    assert "damaged (its settings are not settings)" in faults(ACTIVATIONS)[0]


def test_a_history_of_another_model_is_named():
    classifier(model({"margin": [0.4]}))
    assert re.fullmatch(r"models/history was made from model .*…; run `dvc repro`", fault())


def test_a_model_that_was_made_with_other_settings_than_the_lock_file_records_is_named():
    digest = model({"margin": [0.2], "epochs": [3]})
    seal_history(HISTORY, 1, digest)
    classifier(digest)
    lock("train", MODEL, params={"params.yaml": {"train": {"margin": 0.4, "epochs": 3}}})
    said = "was made with train.margin = [0.2], but dvc.lock records 0.4; run `dvc repro --force train`"
    assert fault() == f"{MODEL} {said}"


@pytest.mark.parametrize(
    ("out", "file", "stage"),
    [(ACTIVATIONS, "manifest.json", "extract"), (Path("checked/splits.txt"), "", "check_splits")],
)
def test_a_file_that_cannot_be_read_is_one_line_with_the_repair(out, file, stage, monkeypatch):
    lock(stage, out, outs=[{"path": str(out), "md5": "0" * 32}])
    (out / file).parent.mkdir(exist_ok=True)
    (out / file).touch()
    opened = Path.open

    def refuse(path, *rest, **more):
        if path == out / file:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *rest, **more)

    monkeypatch.setattr(Path, "open", refuse)
    said = rf"{out / file}: cannot be read \(Permission denied\); remove it and run `dvc .*"
    assert re.fullmatch(said, fault(out))


def test_a_missing_path_and_a_foreign_file_are_named():
    Path("notes.txt").write_text("mine")
    Path("photos").mkdir()
    assert faults("nowhere", "notes.txt", "photos") == [
        "nowhere: no such file or folder",
        "notes.txt: not an artifact of the pipeline",
        "photos: not an artifact of the pipeline",
    ]


def test_a_folder_means_the_artifacts_in_it():
    assert verify("features", "captions").output == "4 artifacts verified, no faults\n"
    store(value=np.nan)
    assert any("has nan in layer 'conv'" in line for line in faults("features"))


def test_an_artifact_is_known_however_its_path_is_typed(project):
    PAGE.write_text("<!DOCTYPE html><html>")
    said = "report/index.html: not a complete HTML page; remove it and run `dvc repro report`\n"
    for typed in (PAGE, project / PAGE, "report/../report/index.html"):
        result = verify(typed)
        assert (result.stdout, result.stderr) == ("1 artifact verified, 1 fault\n", said)


def test_a_shard_that_is_a_folder_is_named():
    shard = ACTIVATIONS / "shard-0000.h5"
    shard.unlink()
    shard.mkdir()
    assert faults(ACTIVATIONS)[0].startswith(f"{shard}: cannot be read (Is a directory); ")


def test_a_manifest_that_was_changed_and_sealed_again_is_not_what_the_lock_file_names():
    lock("extract", ACTIVATIONS)
    assert verify(ACTIVATIONS).exit_code == 0
    change_manifest(ACTIVATIONS, layers=[["conv", 1], ["fc7", 2]])
    assert fault(ACTIVATIONS).startswith(f"{ACTIVATIONS}: is not what dvc.lock records: expected md5 ")


def test_without_a_project_artifacts_must_be_named():
    Path("dvc.yaml").unlink()
    assert "dvc.yaml: no such file; run this in the project's folder, or name the artifacts" in fault()


def test_a_damaged_image_of_an_added_data_set_is_found_with_a_way_out():
    Path("photos").mkdir()
    Path("photos/a.jpg").write_bytes(b"intact")
    Path("photos.dvc").write_text(f"outs: [{{md5: {content_md5(Path('photos'))}, path: photos}}]\n")
    assert verify("photos").exit_code == 0
    Path("photos/a.jpg").write_bytes(b"broken")
    said = fault("photos")
    assert said.startswith("photos: is not what photos.dvc records: ")
    assert said.endswith("run `mv photos photos.before && dvc pull photos`")


@pytest.fixture
def photos():
    """Photos that the catalog lists, and its record."""
    Path("photos").mkdir()
    for each in IDS:
        Path("photos", each).write_text(f"photo {each}")
    images = [Image(each, each, file_digest(Path("photos", each)), 7, 2, 3) for each in IDS]
    digests = {"images": write_images(IMAGES, images), "captions": read_captions(CAPTIONS)[1].digest}
    digests["rejects"] = file_digest(REJECTS)
    write_record(RECORD, digests, {"root": "photos"}, {"photos": content_md5(Path("photos"))})
    store()
    statistics()
    assert verify().exit_code == 0, verify().output


def test_photos_that_are_not_those_of_the_catalog_are_counted_in_one_line(photos):
    swap(Path("photos/b"), Path("photos/c"))
    Path("photos/d").unlink()
    changed, missing = faults(IMAGES)
    place = "data/images.jsonl:"
    assert f"{place} 2 of 4 images are not the listed files, the first is photos/b; restore the " in changed
    assert f"{place} 1 of 4 images are missing, the first is photos/d; restore the file; if " in missing
    shutil.rmtree("photos")
    assert verify().exit_code == 0  # the data set is on another machine


def test_a_catalog_file_or_table_that_its_record_does_not_name_is_a_fault(photos):
    write_rejects(REJECTS, [Reject("x", "x", "train", "", "empty")])
    assert fault().startswith("data/catalog.json was made from rejects ")


def test_photos_that_were_swapped_before_the_record_are_named(photos):
    made = content_md5(Path("photos"))
    swap(Path("photos/b"), Path("photos/c"))
    outs = [{"path": str(path), "md5": content_md5(path)} for path in (IMAGES, CAPTIONS, REJECTS, RECORD)]
    lock("catalog", RECORD, ["photos"], outs=outs, params={"params.yaml": {"catalog": {"root": "photos"}}})
    assert fault(RECORD) == (
        f"data/catalog.json was made from photos {made[:12]}…, but dvc.lock records "
        f"{content_md5(Path('photos'))[:12]}…; run `dvc repro --force catalog`"
    )


def locked(stage, path, params, dependency):
    lock(stage, path, [dependency], params={"params.yaml": params})


def test_an_extraction_that_differs_from_the_record_is_named():
    file = Path("weights.yaml")
    file.write_text("kind: random\nseed: 0\n")
    lineage = merge(read_images(IMAGES)[1], load_weights(file, "alexnet").artifact)
    rows = dict.fromkeys(IDS, np.zeros(1))
    made_with = {"backbone": "alexnet", "input": TORCHVISION.model_dump()}
    write_store(
        ACTIVATIONS, "activations", [Layer("fc", 1)], rows, shards=2, settings=made_with, lineage=lineage
    )

    def recorded(seed=0, **changes):
        file.write_text(f"kind: random\nseed: {seed} # edited\n")
        section = {"weights": "weights.yaml", "input": "auto", "shards": 2} | changes
        locked("extract", ACTIVATIONS, {"extract": section}, "weights.yaml")
        return verify(ACTIVATIONS).stderr

    assert recorded() == recorded(input="torchvision") == ""
    said = "features/activations was not made as dvc.lock records: {}; run `dvc repro --force extract`\n"
    assert recorded(seed=1) == said.format("weights.yaml has other weights")
    assert recorded(input="caffe") == said.format("extract.input is not 'caffe'")
    assert recorded(shards=3) == said.format("extract.shards is not 3")


def test_a_store_without_rows_is_what_another_source_of_embeddings_leaves():
    write_without_rows(ACTIVATIONS, "activations", "embed.source was 'x'", merge(read_images(IMAGES)[1]))
    Path("weights.yaml").write_text("kind: random\nseed: 0\n")
    params = {"extract": {"weights": "weights.yaml"}, "embed.source": "x"}
    locked("extract", ACTIVATIONS, params, "weights.yaml")
    assert verify(ACTIVATIONS).stderr == ""
    locked("extract", ACTIVATIONS, params | {"embed.source": str(ACTIVATIONS)}, "weights.yaml")
    assert "not made as dvc.lock records: embed.source is not 'features/activations'; " in fault(ACTIVATIONS)


def test_word_vectors_that_were_replaced_before_the_record_are_named():
    path, file = Path("captions/vectors.h5"), Path("glove.txt")
    params = {"tokenize": {"vectors": "glove.txt", "without_vector": "zero"}}
    file.write_text("x 1 2\n")
    vectors = load_vectors(file, ["<unk>", "x"])
    write_word_vectors(path, read_vocabulary(VOCABULARY), vectors, "zero")
    locked("tokenize", path, params, "glove.txt")
    assert verify(path).exit_code == 0
    file.write_text("x 1 3\n")
    locked("tokenize", path, params, "glove.txt")
    assert "dvc.lock records: glove.txt has other vectors; run `dvc repro --force tokenize`" in fault(path)


def test_a_page_that_was_made_with_other_settings_than_the_lock_file_records_is_named():
    record = page_record({"seed": 0}, {"model": {"digest": file_digest(MODEL)}}, {"data": "0" * 32})
    PAGE.write_text(f'<!DOCTYPE html><html><meta name="fne-record" content="{escape(record)}"></html>')
    locked("report", PAGE, {"report": {"seed": 7}}, "metrics/retrieval.json")
    said = "was made with report.seed = 0, but dvc.lock records 7; run `dvc repro --force report`"
    assert fault(PAGE) == f"{PAGE} {said}"


def swap(first: Path, second: Path) -> None:
    first.rename("between")
    second.rename(first)
    Path("between").rename(second)


def test_a_classifier_of_another_model_is_a_fault():
    digest = model({"margin": [0.3]})
    seal_history(HISTORY, 1, digest)
    assert fault().startswith(f"{CLASSIFIER} was made from model ")
    classifier(digest)
    assert verify().exit_code == 0


def test_a_classifier_that_is_not_finite_is_a_fault():
    content = read_classifier(CLASSIFIER)
    weight = torch.from_numpy(content.weight.copy())
    weight[1, 1] = float("nan")
    header = {**FORMAT.header(), "settings": {}, "lineage": content.artifact.lineage}
    write_sealed(CLASSIFIER, header, {"weight": weight, "labels": torch.from_numpy(content.labels)})
    said = "'weight' has 1 values that are not finite; remove it and run `dvc repro train`"
    assert said in fault(CLASSIFIER)


def test_a_line_break_in_a_name_or_a_setting_forges_no_line():
    (ACTIVATIONS / "x\nfeatures: all rows were lost").write_text("")
    assert len(faults(ACTIVATIONS)) == 1
    change_manifest(ACTIVATIONS, settings={"a": "b\n  rows      0"})
    assert "    a: b\\u000a  rows      0\n" in fne("inspect", ACTIVATIONS).output


def test_names_that_are_too_long_are_one_line(photos):
    record = json.loads(RECORD.read_text())
    del record["sha256"]
    record["settings"]["root"] = "x" * 99_999
    RECORD.write_text(seal_text(json.dumps(record)))
    assert verify(IMAGES).exit_code == 0  # no such data set
    locked("extract", ACTIVATIONS, {}, "params.yaml")
    record = Path("dvc.lock").read_text()
    Path("dvc.lock").write_text(record.replace("params.yaml", "x" * 300, 2))
    assert f"dvc.lock: stage 'extract': '{'x' * 40}…' is longer than a path can be; restore the " in fault()
