from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.store.lineage import Artifact, merge

ACTIVATIONS = Artifact(Path("features/activations"), "activations", "a" * 64, {"crops": "ten"})


def statistics(of: str) -> Artifact:
    made_from = {"activations": {"digest": of, "settings": {}}}
    return Artifact(Path("features/statistics.h5"), "statistics", "b" * 64, {}, made_from)


def test_a_lineage_holds_every_ancestor_with_its_settings():
    lineage = merge(ACTIVATIONS, statistics(of="a" * 64))
    assert list(lineage) == ["activations", "statistics"]
    assert lineage["activations"]["digest"] == "a" * 64


def test_an_artifact_made_from_another_version_is_refused_with_both_digests():
    with pytest.raises(InputError) as caught:
        merge(ACTIVATIONS, statistics(of="c" * 64))
    assert caught.value.message == (
        "features/activations holds activations aaaaaaaaaaaa…, but features/statistics.h5 was made from "
        "activations cccccccccccc…; run `dvc repro`"
    )


def test_two_artifacts_of_different_ancestors_are_refused():
    other = Artifact(Path("m"), "model", "d" * 64, {}, {"activations": {"digest": "e" * 64, "settings": {}}})
    with pytest.raises(
        InputError, match="features/statistics.h5 was made from activations cccccccccccc…, but m was"
    ):
        merge(statistics(of="c" * 64), other)


@pytest.mark.parametrize(
    "lineage", [{"images": {}}, {"images": {"digest": 3}}, {"images": "abc"}, ["images"]]
)
def test_a_lineage_without_digests_is_refused(lineage):
    with pytest.raises(InputError) as caught:
        Artifact(Path("features/embeddings"), "embeddings", "d", {}, lineage)
    assert caught.value.message == (
        "features/embeddings: damaged (its lineage names no digests); see `fne verify features/embeddings`"
    )
