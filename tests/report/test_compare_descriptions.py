from dataclasses import replace

import numpy as np
import pytest

from fne.core.files import text_digest
from fne.describing.annotations import Tagged, Written, WrittenSentence, write_tagged, write_written
from fne.describing.concepts import Concepts
from fne.report.compare_descriptions import KINDS, Change, compare_descriptions
from fne.report.compare_page import compare_runs, grids, render
from fne.store.catalog import Captioned, read_captions, write_captions
from fne.store.checksums import write_metrics
from tests.stages.test_report import HOSTILE, Tags
from tests.support.comparison import write_project

IDS = [f"image-{number:02}" for number in range(4)]
TRUE = [("dog", "red"), ("cat",), ("bird", "blue"), ("fish",)]
SAID = {
    "a": [["dog", "red"], ["dog"], ["bird"], ["fish", "cat"]],
    "b": [["dog"], ["cat"], ["bird"], ["dog"]],
}
TAGGER = {"digest": text_digest("tagger"), "settings": {"concepts": "tags", "tags": {}}}


@pytest.fixture
def project(tmp_path):
    """Two runs with tags and captions."""
    found = write_project(tmp_path)
    captioned = [Captioned(each, "test", (f"a {tags[0]} sits", f"one {tags[0]}"), tags) for each, tags in zip(IDS, TRUE, strict=True)]  # fmt: skip
    write_captions(tmp_path / "captions.jsonl", captioned)
    concepts = Concepts(["dog", "red", "cat", "bird", "blue", "fish"], [1] * 6, 6, 1.0, [])
    for name, said in SAID.items():
        files = [tmp_path / name / kind.file for kind in KINDS]
        files[0].parent.mkdir(parents=True)
        tagged = [Tagged(each, tags, None, None) for each, tags in zip(IDS, said, strict=True)]
        write_tagged(files[0], tagged, concepts, {}, {"tagger": TAGGER})
        written = [
            Written(each, (WrittenSentence(f"a {tags[0]} sits", -1.0, -1.0, True),), {})
            for each, tags in zip(IDS, said, strict=True)
        ]
        write_written(files[1], written, {}, {})
        run = found.named[name]
        hashes = {kind.file: name for kind in KINDS}
        found.named[name] = replace(run, hashes=run.hashes | hashes)
    return found


def test_images_whose_tags_differ_most_come_first_with_what_is_right_wrong_and_missed(project):
    tags, _ = compare_descriptions(project, project.run("a"), project.run("b"), 5)
    assert tags.images == 4
    f1 = {"a": [100, 0, 200 / 3, 200 / 3], "b": [200 / 3, 100, 200 / 3, 0]}
    assert [pair.id for pair in tags.pairs] == ["image-01", "image-03", "image-00"]
    for pair in tags.pairs:
        place = IDS.index(pair.id)
        for side, name in zip(pair.sides, "ab", strict=True):
            assert side.score == pytest.approx(f1[name][place])
            assert side.parts == [(each, each in TRUE[place]) for each in SAID[name][place]]
            assert side.missed == sorted({*TRUE[place]} - {*SAID[name][place]})
    found = tags.difference
    assert (found.a, found.b) == pytest.approx((np.mean(f1["a"]), np.mean(f1["b"])))
    assert found.low < found.b - found.a < found.high
    assert found.verdict == "seed variance unknown"


def test_captions_have_their_references_and_words_that_nobody_wrote(project):
    _, captions = compare_descriptions(project, project.run("a"), project.run("b"), 1)
    [pair] = captions.pairs
    assert pair.id in ("image-01", "image-03")
    right = {name: SAID[name][IDS.index(pair.id)][0] in TRUE[IDS.index(pair.id)] for name in "ab"}
    for side, name in zip(pair.sides, "ab", strict=True):
        assert [known for _, known in side.parts] == [True, right[name], True]
        assert (side.score > 1) == right[name]
    assert len(pair.references) == 2


def test_runs_with_the_same_files_or_another_catalog_are_not_compared(project):
    a, b = project.run("a"), project.run("b")
    assert compare_descriptions(project, a, replace(b, hashes=a.hashes), 5) == []
    assert (
        compare_descriptions(project, a, replace(b, hashes=b.hashes | {"data/captions.jsonl": "x"}), 5) == []
    )
    assert [each.kind for each in compare_descriptions(project, a, b, 5)] == ["tags", "captions"]
    (project.root / "a/annotations/tags.jsonl").unlink()
    assert [each.kind for each in compare_descriptions(project, a, b, 5)] == ["captions"]


def test_both_are_on_the_page_and_in_the_tables_and_hostile_tags_are_text(project):
    found = compare_runs(project, "a", "b", pictures=True)
    titles = [each.title for each in grids(found)]
    assert {f"{kind} of 4 images of the split test" for kind in ("Tags", "Captions")} <= {*titles}
    page = render(found)
    assert '<h2 id="tags">Tags: where they differ most</h2>' in page
    assert "image-01" in found.pictures
    plain = len(Tags(page).tags)
    said = found.described[0].pairs[0]
    hostile = replace(said.sides[0], parts=[(HOSTILE[0], True)] * len(said.sides[0].parts))
    evil = replace(
        found.described[0],
        pairs=[replace(said, sides=(hostile, said.sides[1])), *found.described[0].pairs[1:]],
    )
    assert len(Tags(render(replace(found, described=[evil, found.described[1]]))).tags) == plain


def test_settings_that_trained_or_wrote_differ_without_results(project):
    tags, captions = compare_descriptions(project, project.run("a"), project.run("b"), 5)
    assert (tags.changes, captions.changes) == ([], [])
    for name, beam, units in (("a", 3, 128), ("b", 1, 128), ("c", 1, 32)):
        settings = {"units": units, "lstm": {"forget_bias": 1.0}, "best_epoch": beam}
        captioner = {"captioner": {"digest": text_digest(name), "settings": settings}}
        path = project.root / name / "annotations/captions.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        written = [Written(each, (WrittenSentence(name, -1.0, -1.0, True),), {}) for each in IDS]
        write_written(path, written, {"beam": beam}, captioner)
    runs = [project.run("a"), project.run("b"), replace(project.run("b"), name="c")]
    _, beams = compare_descriptions(project, *runs[:2], 5)
    assert beams.changes == [Change("write_captions.beam", "3", "1")]
    [both] = compare_descriptions(project, runs[0], runs[2], 5)
    assert both.changes == [
        Change("train_captioner.units", "128", "32"),
        Change("write_captions.beam", "3", "1"),
    ]


def test_a_tuned_run_says_what_its_tuned_models_wrote(project):
    """Of the run `b`, the files before the fine-tuning stay, and are not what it says."""
    kind, name = KINDS[1], "b:tuned"
    place = project.root / name / "annotations/tuned_captions.jsonl"
    place.parent.mkdir(parents=True)
    written = [Written(each, (WrittenSentence("a whale", -1.0, -1.0, True),), {}) for each in IDS]
    before = {"digest": text_digest("before"), "settings": {"units": 128, "seed": 3}}
    tuned = {"digest": text_digest("tuned"), "settings": {"units": 128, "seed": 7, "crop_share": 0.5}}
    write_written(place, written, {}, {"captioner": tuned, "captioner_before": before})
    b = project.run("b")
    project.named[name] = replace(b, name=name, hashes=b.hashes | {"annotations/tuned_captions.jsonl": "t"})
    write_metrics(
        project.root / name / "metrics/tuned_caption_intervals.json", {"made_with": {"split": "test"}}
    )
    [found] = compare_descriptions(project, project.run(name), b, 5)
    assert (found.kind, found.split, found.difference.a) == (kind.name, "test", 0)
    assert {each.key: each.a for each in found.changes} == {
        "train_captioner.units": "128",
        "train_captioner.seed": "3",
        "tune_captioner.seed": "7",
        "tune_captioner.crop_share": "0.5",
    }
    tables = [each.title for each in grids(compare_runs(project, name, "b"))]
    assert tables == ["Settings that differ", "Captions of 4 images of the split test"]


def test_only_images_of_the_scored_split_count(project):
    records = read_captions(project.root / "captions.jsonl")[0]
    moved = [replace(each, split="val" if each.id < IDS[2] else "test") for each in records]
    write_captions(project.root / "captions.jsonl", moved)
    found = compare_descriptions(project, project.run("a"), project.run("b"), 5)
    assert [(each.split, each.images) for each in found] == [("test", 2), ("test", 2)]
    write_metrics(project.root / "a/metrics/tag_intervals.json", {"made_with": {"split": "val"}})
    tags, _ = compare_descriptions(project, project.run("a"), project.run("b"), 5)
    assert (tags.split, {each.id for each in tags.pairs}) == ("val", {*IDS[:2]})


def test_runs_of_one_matching_model_show_only_what_they_say(project):
    a = project.run("a")
    same = replace(a, name="b", hashes=a.hashes | {kind.file: "other" for kind in KINDS})
    project.named["b"] = same
    found = compare_runs(project, "a", "b", pictures=True)
    page, tables = render(found), [each.title for each in grids(found)]
    assert 'id="metrics"' not in page
    assert 'id="image_to_text"' not in page
    assert '<h2 id="tags">' in page
    assert tables == [
        "Settings that differ",
        *(f"{kind} of 4 images of the split test" for kind in ("Tags", "Captions")),
    ]
