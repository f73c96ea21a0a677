"""Settings of artifacts against those of the lock file, on a lock file made by hand."""

import json
from pathlib import Path

import pytest

from fne.core.dvc import content_md5
from fne.store.artifact import Artifact
from fne.store.catalog import Captioned, read_captions, write_captions, write_record
from fne.store.checksums import write_metrics
from fne.store.lineage import recorded_lineage
from tests.support.refusals import refused

CAPTIONS, RECORD = Path("captions.jsonl"), Path("catalog.json")
MODEL, VECTORS, RANKS = Path("model"), Path("vectors"), Path("ranks")
CHECKED, SETTINGS = Path("checked"), Path("metrics/settings.json")
TRAIN = {"margin": 0.2, "loss": "sum_hinge", "max_hinge": {"hardest": "query"}}
MADE = {"margin": [0.2], "loss": ["sum_hinge"], "best_epoch": 3}


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (MODEL, VECTORS, RANKS):
        path.write_text(path.name)


def entry(path):
    return {"path": str(path), "md5": content_md5(path)}


def lock(train=TRAIN, **other):
    stages = {
        "train": {"params": {"params.yaml": {"train": train}}, "outs": [entry(MODEL)]},
        "encode": {"deps": [entry(MODEL)], "outs": [entry(VECTORS)]},
        "evaluate": {"deps": [entry(VECTORS)], "outs": [entry(RANKS)]},
    }
    Path("dvc.lock").write_text(json.dumps({"stages": stages | other}))
    declare(standardize="${embed.source}", encode="models", extract="images.jsonl")


def declare(**dependencies):
    stages = {name: {"cmd": "x", "deps": [dependency]} for name, dependency in dependencies.items()}
    Path("dvc.yaml").write_text(json.dumps({"stages": stages}))


def model(settings=MADE, given=()):
    return Artifact(MODEL, "model", "ab", settings, sections={"train": dict(given)})


def ranks(settings=MADE):
    entry = {"digest": "ab", "settings": settings, "sections": {"train": {}}}
    return Artifact(RANKS, "ranks", "cd", {}, {"model": entry})


def faulty(artifact, *parts):
    """Check that a lineage is refused with these parts of a message."""
    with refused(*parts):
        recorded_lineage(artifact)


def test_a_list_of_one_equals_its_value_in_settings():
    lock()
    assert list(recorded_lineage(model())) == ["model"]
    assert list(recorded_lineage(ranks())) == ["model", "ranks"]


def test_other_settings_of_an_artifact_or_an_ancestor_are_refused_with_both_values_and_the_stage():
    lock(TRAIN | {"margin": 0.4})
    said = "was made with train.margin = [0.2], but dvc.lock records 0.4; run `dvc repro --force train`"
    for artifact in (model(), ranks()):
        faulty(artifact, f"{artifact.path} {said}")


def test_the_block_of_a_variant_that_is_not_chosen_does_not_count():
    lock(TRAIN | {"max_hinge": {"hardest": "candidate"}})
    recorded_lineage(model())


def test_a_value_that_settings_have_in_another_form_is_compared_as_it_was_given():
    train = {"start": "auto", "embed_dim": 256, "cca": {"dim": 512}}
    made = train | {"start": "cca", "cca": {"dim": 256}}
    given = {"start": "auto", "cca.dim": None}
    lock(train)
    recorded_lineage(model(made, given))
    lock(train | {"start": "random"})
    faulty(model(made, given), "train.start = 'auto', but dvc.lock records 'random'")
    lock(train | {"cca": {"dim": 64}})
    recorded_lineage(model(made, given))  # it has no effect


def test_what_was_made_by_hand_and_what_no_lock_file_records_is_not_compared():
    recorded_lineage(model({"margin": [0.9]}))
    lock(TRAIN | {"margin": 0.4})
    MODEL.write_text("made by hand")
    recorded_lineage(model())


def test_an_ancestor_of_another_project_is_not_compared():
    imported = {"params": {"params.yaml": {"train": TRAIN | {"margin": 0.4}}}, "outs": [entry(MODEL)]}
    lock(train={}, encode={"outs": [entry(VECTORS)]}, other=imported)
    recorded_lineage(ranks())


@pytest.fixture
def catalog():
    """A catalog of a data set of two photos, as its stage leaves it."""
    for name in ("a", "b"):
        Path("photos").mkdir(exist_ok=True)
        Path("photos", name).write_text(name)
    write_captions(CAPTIONS, [Captioned("a", "train", ("a dog",), ())])
    artifact = read_captions(CAPTIONS)[1]
    files = {"photos": content_md5(Path("photos"))}
    write_record(RECORD, {"captions": artifact.digest}, {"root": "photos", "seed": 0}, files)
    return artifact


def lock_catalog(root="photos", seed=0, dependency="photos"):
    stage = {
        "params": {"params.yaml": {"catalog": {"root": root, "seed": seed}}},
        "deps": [{"path": dependency, "md5": content_md5(Path(dependency))}],
        "outs": [entry(CAPTIONS), entry(RECORD)],
    }
    Path("dvc.lock").write_text(json.dumps({"stages": {"catalog": stage}}))
    declare(catalog="${catalog.root}")


def test_the_record_beside_a_catalog_file_has_its_settings(catalog):
    lock_catalog()
    assert list(recorded_lineage(catalog)) == ["captions"]
    lock_catalog(seed=1)
    said = (
        "catalog.json was made with catalog.seed = 0, but dvc.lock records 1; run `dvc repro --force catalog`"
    )
    faulty(catalog, said)
    write_captions(CAPTIONS, [Captioned("a", "train", ("a cat",), ())])
    lock_catalog(seed=1)  # a record of another catalog file says nothing
    recorded_lineage(read_captions(CAPTIONS)[1])


def test_photos_that_are_swapped_after_the_catalog_and_before_the_record_are_refused(catalog):
    made = content_md5(Path("photos"))[:12]
    Path("photos/a").rename("photos/c")
    Path("photos/b").rename("photos/a")
    Path("photos/c").rename("photos/b")
    lock_catalog()
    found = content_md5(Path("photos"))[:12]
    said = f"catalog.json was made from photos {made}…, but dvc.lock records {found}…; "
    faulty(catalog, said, "run `dvc repro --force catalog`")


def test_a_data_set_that_changes_after_the_record_is_left_to_dvc(catalog):
    lock_catalog()
    Path("photos/a").write_text("new")
    recorded_lineage(catalog)


def test_a_folder_that_dvc_hashes_in_another_way_is_not_refused(catalog):
    lock_catalog()
    content = json.loads(Path("dvc.lock").read_text())
    content["stages"]["catalog"]["deps"][0]["md5"] = f"{'0' * 32}.dir"  # as with a `.dvcignore`
    Path("dvc.lock").write_text(json.dumps(content))
    recorded_lineage(catalog)


def test_a_path_that_changes_after_the_stage_is_no_dependency_of_it(catalog):
    Path("others").mkdir()
    lock_catalog(root="others")
    said = "captions.jsonl was made with another catalog.root than 'others', which dvc.lock records; run `dvc repro"
    faulty(catalog, said, "--force catalog`")
    lock_catalog(root="./photos/")
    recorded_lineage(catalog)


def reads(source: str, dependency: str, out: Path) -> dict[str, object]:
    """A stage in the lock file whose embeddings come from a source."""
    params, deps = {"params.yaml": {"embed.source": source}}, [{"path": dependency, "md5": "0" * 32}]
    return {"params": params, "deps": deps, "outs": [entry(out)]}


def test_a_path_of_an_ancestor_that_changes_after_its_stage_is_refused():
    lock(train={}, standardize=reads("features/other", "features/activations", MODEL))
    said = "vectors was made with another embed.source than 'features/other', which dvc.lock records; run `dvc repro"
    faulty(Artifact(VECTORS, "image_vectors", "ab"), said, "--force standardize`")


def test_a_file_that_the_pipeline_names_without_its_key_is_no_setting():
    weights = Path("weights.yaml")
    weights.write_text("x")
    params = {"params.yaml": {"extract": {"weights": "weights.yaml", "crops": "ten"}}}
    lock(extract={"params": params, "deps": [entry(weights)], "outs": [entry(VECTORS)]})
    made = Artifact(
        VECTORS, "activations", "ab", {"weights": "12" * 32, "crops": "ten"}, sections={"extract": {}}
    )
    for written in ("weights.yaml", "${extract.weights}"):
        declare(extract=written)
        assert list(recorded_lineage(made)) == ["activations"]
    Path("dvc.yaml").unlink()
    assert list(recorded_lineage(made)) == ["activations"]


def test_a_stage_that_reads_only_the_name_of_a_path_does_not_depend_on_it():
    lock(train={}, encode={}, extract=reads("features/imported", "images.jsonl", VECTORS))
    assert list(recorded_lineage(Artifact(VECTORS, "activations", "ab"))) == ["activations"]


def test_a_damaged_record_of_a_catalog_is_one_line(catalog):
    RECORD.write_text(RECORD.read_text().replace("photos", "photoz"))
    said = "catalog.json: damaged (its content does not match its seal); run `fne verify catalog.json`"
    faulty(catalog, said)


def test_a_path_starts_at_the_folder_of_its_stage(catalog):
    lock_catalog()
    below = Path("below")
    below.mkdir()
    for each in ("photos", "captions.jsonl", "catalog.json", "dvc.lock"):
        Path(each).rename(below / each)
    Path("dvc.lock").write_text("stages: {}")
    (below / "dvc.yaml").write_text("stages: {catalog: {cmd: x, outs: [captions.jsonl, catalog.json]}}")
    recorded_lineage(read_captions(below / "captions.jsonl")[1])


def test_a_single_key_that_changes_after_the_stage_is_refused():
    page = {"params": {"params.yaml": {"report": {"seed": 0}, "catalog.root": "b"}}, "outs": [entry(RANKS)]}
    lock(report=page, evaluate={})
    page = Artifact(RANKS, "report", "ab", {"seed": 0, "root": "a"}, sections={"catalog.root": {}})
    said = "ranks was made with catalog.root = 'a', but dvc.lock records 'b'; run `dvc repro --force report`"
    faulty(page, said)


def write_settings(**defaults):
    SETTINGS.parent.mkdir(exist_ok=True)
    write_metrics(SETTINGS, {"default": {f"train.{key}": value for key, value in defaults.items()}})


def lock_checked(**defaults):
    """A lock file of a stage `train` behind a stage `check`, which recorded these effective settings."""
    CHECKED.write_text("valid")
    write_settings(**defaults)
    lock(check={"params": {"params.yaml": {"train": TRAIN}}, "outs": [entry(SETTINGS), entry(CHECKED)]})
    record = json.loads(Path("dvc.lock").read_text())
    record["stages"]["train"]["deps"] = [entry(CHECKED)]
    Path("dvc.lock").write_text(json.dumps(record))


def test_a_default_that_differs_is_refused_with_the_file_that_records_it():
    lock_checked(clip=2.0)
    recorded_lineage(model(MADE | {"clip": 2.0}))
    said = (
        "model was made with train.clip = 5.0, but metrics/settings.json records 2.0; run `dvc repro --force"
    )
    faulty(model(MADE | {"clip": 5.0}), said)


def test_a_file_of_settings_that_is_not_the_recorded_one_is_not_compared():
    lock_checked(clip=2.0)
    write_settings(clip=7.0)
    recorded_lineage(model(MADE | {"clip": 2.0}))
