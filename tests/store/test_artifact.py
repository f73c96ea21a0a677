import json
from pathlib import Path

import pytest
from dvc.repo.metrics.show import _extract_metrics

from fne.core.errors import InputError
from fne.store.artifact import Artifact, Format, describe, described, merge, parse_document, require_same
from fne.store.checksums import parse_metrics, seal_bytes, seal_text, unseal_bytes, write_metrics
from tests.support.refusals import refused

ACTIVATIONS = Artifact(Path("features/activations"), "activations", "a" * 64, {"crops": "ten"})


def statistics(of: str) -> Artifact:
    made_from = {"activations": {"digest": of, "settings": {}}}
    return Artifact(Path("features/statistics.h5"), "statistics", "b" * 64, {}, made_from)


def test_a_lineage_holds_every_ancestor_with_its_settings():
    lineage = merge(ACTIVATIONS, statistics(of="a" * 64))
    assert list(lineage) == ["activations", "statistics"]
    assert lineage["activations"]["digest"] == "a" * 64


def test_a_lineage_names_the_sections_of_every_ancestor_that_has_some():
    given = {"train": {"start": "auto"}}
    header = describe("model", {"start": "random"}, merge(ACTIVATIONS), given)
    model = described(Path("model"), "model", "d" * 64, json.loads(json.dumps(header)))
    lineage = merge(model)
    assert (model.sections, lineage["model"]["sections"]) == (given, given)
    assert "sections" not in lineage["activations"]


@pytest.mark.parametrize("sections", [["train"], {"train": 3}, "train"])
def test_sections_that_are_none_are_refused(sections):
    with refused("its settings are not settings"):
        Artifact(Path("model"), "model", "d", {}, {}, sections=sections)


def test_an_artifact_made_from_another_version_is_refused_with_both_digests():
    with refused(
        "features/activations holds activations aaaaaaaaaaaa…, but features/statistics.h5 was made from "
        "activations cccccccccccc…; run `dvc repro`"
    ):
        merge(ACTIVATIONS, statistics(of="c" * 64))


def test_advice_names_the_pipeline_that_makes_the_artifact():
    made_from = {"activations": {"digest": "c" * 64, "settings": {}}}
    pipeline = "pipelines/captioning/dvc.yaml"
    captioner = Artifact(Path("c"), "captioner", "d" * 64, {}, made_from, pipeline=pipeline)
    with refused(f"; run `dvc repro {pipeline}`"):
        merge(ACTIVATIONS, captioner)


def test_two_artifacts_of_different_ancestors_are_refused():
    other = Artifact(Path("m"), "model", "d" * 64, {}, {"activations": {"digest": "e" * 64, "settings": {}}})
    with refused("features/statistics.h5 was made from activations cccccccccccc…, but m was"):
        merge(statistics(of="c" * 64), other)


@pytest.mark.parametrize(
    "lineage", [{"images": {}}, {"images": {"digest": 3}}, {"images": "abc"}, ["images"]]
)
def test_a_lineage_without_digests_is_refused(lineage):
    with refused("x: damaged (its lineage names no digests); run `fne verify x` to see how to repair it"):
        Artifact(Path("x"), "embeddings", "d", {}, lineage)


FORM = Format("fne-test", 2)


def sealed(**entries) -> bytes:
    return seal_text(json.dumps(FORM.header() | entries, indent=1)).encode()


def fault(content: bytes, path) -> str:
    with pytest.raises(InputError) as caught:
        parse_document(path, content, FORM, "make it again")
    return caught.value.message


def test_a_sealed_text_stays_json(tmp_path):
    document = parse_document(tmp_path, sealed(word="é"), FORM, "")
    assert {**document, "sha256": ""} == {"sha256": "", "format": "fne-test", "version": 2, "word": "é"}


def test_every_flipped_bit_and_truncation_of_a_sealed_text_is_refused(tmp_path):
    content = sealed(word="a")
    for place in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            assert fault(bytes(changed), tmp_path).startswith(f"{tmp_path}: ")
    assert all(fault(content[:size], tmp_path).endswith("; make it again") for size in range(len(content)))
    assert fault(b"[" * 200_000, tmp_path).startswith(f"{tmp_path}: damaged (")  # deeply nested


def test_a_newer_version_another_format_and_a_missing_seal_are_refused(tmp_path):
    for name, version in (("fne-test", 3), ("fne-other", 1)):
        content = seal_text(json.dumps({"format": name, "version": version})).encode()
        assert fault(content, tmp_path) == (
            f"{tmp_path}: needs a version of fne that reads {name} {version}; this one reads fne-test up to 2"
        )
    content = json.dumps(FORM.header()).encode()
    assert fault(content, tmp_path) == f"{tmp_path}: damaged (its seal is missing); make it again"


def test_a_seal_at_the_end_covers_all_before_it(tmp_path):
    content = seal_bytes(b"content")
    assert unseal_bytes(tmp_path, content, "") == b"content"
    for damaged in (content[:-1], content[1:], b"", b"content", content.replace(b"t", b"s", 1)):
        with pytest.raises(InputError, match="damaged, or not an artifact of fne; make it again"):
            unseal_bytes(tmp_path, damaged, "make it again")


def vectors(name, model, tuned=None):
    lineage = {"model": {"digest": model * 64, "settings": {}}}
    lineage |= {"tuned": {"digest": tuned * 64, "settings": {}}} if tuned else {}
    return Artifact(Path(name), "image_vectors", "", {}, lineage)


def test_vectors_of_a_tuned_network_are_not_mixed_with_those_of_the_model_before():
    both, tuned = ("tuned", "model"), Artifact(Path("c"), "tuned", "2" * 64)
    require_same(both, vectors("a", "1"), vectors("b", "1"), Artifact(Path("c"), "model", "1" * 64))
    require_same(both, vectors("a", "1", "2"), tuned)
    with refused(
        "a was made from tuned 222222222222…, but b was made from model 111111111111…; run `dvc repro`"
    ):
        require_same(both, vectors("a", "1", "2"), vectors("b", "1"))
    with refused("c holds tuned 222222222222…, but b was made from tuned 333333333333…; run `dvc repro`"):
        require_same(both, tuned, vectors("b", "1", "3"))


def test_metrics_with_a_flipped_digit_or_without_a_seal_are_refused(tmp_path):
    path = tmp_path / "retrieval.json"
    content = {"test_full": {"rsum": 497.2, "per": {1: 0.1}, "all": (1, 2)}}
    write_metrics(path, content)
    assert parse_metrics(path.read_bytes()) == json.loads(json.dumps(content))
    for text in (b'{"rsum": 497.2}', b"[]", b"1", path.read_bytes().replace(b"sha256", b"sha257")):
        with pytest.raises(ValueError, match="it has no seal"):
            parse_metrics(text)
    with pytest.raises(ValueError, match="its content does not match its seal"):
        parse_metrics(path.read_bytes().replace(b"497.2", b"497.3"))


def test_the_seal_of_metrics_is_no_column_of_dvc(tmp_path):
    write_metrics(tmp_path / "metrics.json", {"rsum": 1.0})
    content = json.loads((tmp_path / "metrics.json").read_bytes())
    assert list(content) == ["rsum", "sha256"]
    assert _extract_metrics(content, "metrics.json") == {"rsum": 1.0}
