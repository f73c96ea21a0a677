import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from fne.core.errors import InputError
from fne.describing.annotations import Written, WrittenSentence
from fne.evaluation import caption_baselines
from fne.evaluation import score_captions as module
from fne.evaluation.metrics.caption_metrics import cider_d
from fne.evaluation.metrics.meteor import Program
from fne.evaluation.protocols import ScoreCaptions
from fne.evaluation.score_captions import (
    CAPTIONER,
    CONSENSUS,
    CONSTANT,
    NEAREST,
    consensus_captions,
    constant_caption,
    meteor_scores,
    nearest_captions,
    nearest_training_images,
    read_caption_scores,
    reference_sentences,
    score_captions,
    score_written,
    validation_levels,
    write_caption_scores,
)
from fne.store.artifact import Artifact
from fne.store.catalog import Captioned, read_captions
from fne.store.rows import Rows
from tests.support.captions import CAPTIONS, EMBEDDINGS, write_world
from tests.support.refusals import refused

LINEAGE = {"captioner": {"digest": "c", "settings": {"validation_images": 0}}}
ARTIFACT = Artifact(Path("annotations/captions.jsonl"), "written_captions", "ab", {"images": "all"}, LINEAGE)
SETTINGS = ScoreCaptions(split="test", meteor="never", neighbors=3)


@pytest.fixture
def world(tmp_path):
    write_world(tmp_path)
    return tmp_path


@pytest.fixture
def rows(world):
    return Rows.open(world / EMBEDDINGS)


@pytest.fixture
def captioned(world):
    return read_captions(world / CAPTIONS)[0]


def scores_of(captioned, rows, text="a red circle"):
    written = {each: Written(each, (WrittenSentence(text, -1.0, -1.0, True),), {}) for each in rows.ids}
    return score_written(written, ARTIFACT, captioned, rows, SETTINGS)


def test_neighbors_found_in_blocks_are_those_of_the_whole(rows, monkeypatch):
    ids = rows.ids
    by_cosine = NearestNeighbors(n_neighbors=7, metric="cosine", algorithm="brute").fit(rows.read(ids[9:]))
    expected = by_cosine.kneighbors(rows.read(ids[:9]), return_distance=False)
    for block in (1, 5, 1024):
        monkeypatch.setattr(caption_baselines, "BLOCK", block)
        np.testing.assert_array_equal(nearest_training_images(rows, ids[:9], ids[9:], 7), expected)


def test_references_are_cut_as_published_scores_expect_them():
    record = Captioned("1", "test", ("A dog's ball, (red).",), ())
    assert reference_sentences([record, Captioned("2", "gallery", (), ())]) == {
        "1": ["a dog 's ball -lrb- red -rrb-"]
    }


def test_nothing_to_score_is_refused(captioned, rows):
    train = [record for record in captioned if record.split == "train"]
    with refused(
        "params.yaml: score_captions.split is 'test', but the catalog has captions only in train; "
        "see `catalog` in params.yaml"
    ):
        scores_of(train, rows)


def test_images_without_rows_and_images_without_captions_are_refused(captioned, rows):
    unknown = replace(next(each for each in captioned if each.split == "test"), id="unknown")
    with pytest.raises(InputError, match="has no row for 1 of 9 ids, the first is 'unknown'"):
        scores_of([*captioned, unknown], rows)
    with pytest.raises(InputError) as error:
        score_written({}, ARTIFACT, captioned, rows, SETTINGS)
    assert error.value.message.startswith("annotations/captions.jsonl lacks 8 of 8 images, the first is '")
    assert error.value.message.endswith("': the embeddings have no rows of them; run `dvc repro`")


def test_metrics_and_intervals_are_written_with_the_baselines(captioned, rows, tmp_path):
    found = scores_of(captioned, rows)
    places = (tmp_path / "m.json", tmp_path / "i.json")
    line = write_caption_scores(found, *places, {"split": "test"}, ARTIFACT)
    metrics, intervals = (json.loads(path.read_text()) for path in places)
    metrics = metrics["test_full"]
    assert list(metrics) == [
        "captioner", "constant", "nearest", "consensus", "images", "collapsed", "CIDEr-D_above_best_baseline",
    ]  # fmt: skip
    assert (metrics["images"], metrics["collapsed"]) == (8, True)
    assert "METEOR" not in metrics["captioner"]
    assert intervals["made_from"]["written_captions"] == "ab"
    low, high = intervals["test_full"]["CIDEr-D_above_best_baseline"]
    assert low <= metrics["CIDEr-D_above_best_baseline"] <= high < 0  # the neighbors know the truth
    assert line.startswith("test_full: 8 images, BLEU-4 0.")
    assert f"best baseline {metrics[found.best_baseline]['CIDEr-D']:.3f} ({found.best_baseline}; " in line
    assert ", 3 different words, 12% distinct sentences; " in line
    assert line.endswith(
        "the captioner ignores the images: 1 different caption for 8 images, most often 'a red circle'"
    )
    assert read_caption_scores(*places, ARTIFACT) == found


def test_scores_of_a_single_image_are_read_as_they_were_written(tmp_path):
    found = score_captions("test_full", {"1": "a dog"}, {"1": ["a dog runs"]}, TRAINING, NEAREST_IMAGES[:1])
    places = (tmp_path / "m.json", tmp_path / "i.json")
    write_caption_scores(found, *places, {}, ARTIFACT)
    assert read_caption_scores(*places, ARTIFACT) == found


def test_meteor_is_among_the_metrics_if_it_was_computed(monkeypatch):
    monkeypatch.setattr(module, "find_program", lambda: Program("java", Path("m.jar")))
    monkeypatch.setattr(module, "meteor", lambda own, references, program: 0.25)
    found = scored(meteor_choice="auto")
    assert found.metrics[CONSENSUS]["METEOR"] == 0.25
    assert found.meteor_missing is None


def test_meteor_is_left_out_with_a_reason_or_demanded(monkeypatch):
    assert scored().meteor_missing == "score_captions.meteor is never"
    monkeypatch.setattr(module, "find_program", lambda: "there is no `java`; install one")
    found = scored(meteor_choice="auto")
    assert found.meteor_missing == "there is no `java`; install one"
    assert "METEOR" not in found.metrics[CAPTIONER]
    with refused(
        "params.yaml: score_captions.meteor is 'always', but there is no `java`; install one, or set it to auto"
    ):
        scored(meteor_choice="always")
    monkeypatch.setattr(module, "find_program", lambda: Program("java", Path("m.jar")))
    monkeypatch.setattr(module, "meteor", lambda own, references, program: len(set(own.values())))
    assert meteor_scores("auto", {CAPTIONER: CANDIDATES}, REFERENCES) == {CAPTIONER: 3}


TRAINING = {
    "t1": ["a dog runs in the snow", "a brown dog runs"],
    "t2": ["two men play soccer", "men play with a ball"],
    "t3": ["a red car on the street", "the car is red"],
    "t4": ["a dog runs on the beach", "a dog at the sea"],
}
REFERENCES = {
    "1": ["a dog runs", "the dog is running fast", "a dog", "dog in snow", "a fast dog"],
    "2": ["men play soccer in a field", "a game of soccer", "soccer", "two men", "men with a ball"],
    "3": ["a red car", "the red car is parked", "a car", "one red car", "car on street"],
}
CANDIDATES = {"1": "a dog runs", "2": "men play soccer", "3": "a red car on the street"}
NEAREST_IMAGES = np.array([[0, 3], [1, 2], [2, 1]])


def scored(candidates=CANDIDATES, references=REFERENCES, neighbors=NEAREST_IMAGES, meteor_choice="never"):
    return score_captions("test_full", candidates, references, TRAINING, neighbors, meteor_choice)


def baseline_captions(neighbors=NEAREST_IMAGES):
    captions = list(TRAINING.values())
    found = {
        CONSTANT: [constant_caption(captions)] * 3,
        NEAREST: nearest_captions(neighbors, captions),
        CONSENSUS: consensus_captions(neighbors, captions),
    }
    return {name: dict(zip(CANDIDATES, own, strict=True)) for name, own in found.items()}


def test_the_baselines_are_shown_beside_the_captioner():
    found = scored()
    assert list(found.metrics) == [CAPTIONER, CONSTANT, NEAREST, CONSENSUS]
    candidates = {CAPTIONER: CANDIDATES} | baseline_captions()
    assert candidates[NEAREST] == {
        "1": TRAINING["t1"][0],
        "2": TRAINING["t2"][0],
        "3": TRAINING["t3"][0],
    }
    assert found.metrics[NEAREST]["found_in_training"] == 1.0
    assert found.metrics[CAPTIONER]["found_in_training"] == pytest.approx(1 / 3)
    for system, metrics in found.metrics.items():
        assert metrics["CIDEr-D"] == cider_d(candidates[system], REFERENCES).score
        low, high = found.intervals[system]["CIDEr-D"]
        assert low <= metrics["CIDEr-D"] <= high


@pytest.mark.parametrize(
    ("neighbors", "best"),
    [([[0, 3], [1, 2], [2, 1]], NEAREST), ([[1, 0, 3], [0, 1, 1], [0, 2, 2]], CONSENSUS)],
)
def test_the_difference_to_the_best_baseline_is_paired(neighbors, best):
    found = scored(neighbors=np.array(neighbors))
    highest = max(found.metrics[name]["CIDEr-D"] for name in (CONSTANT, NEAREST, CONSENSUS))
    assert found.best_baseline == best
    assert found.above[0] == pytest.approx(found.metrics[CAPTIONER]["CIDEr-D"] - highest)
    own = baseline_captions(np.array(neighbors))[best]
    same = scored(own, neighbors=np.array(neighbors))
    assert same.above == (0.0, 0.0, 0.0)
    assert same.beats_baselines is False


def test_a_captioner_beats_the_baselines_if_the_whole_interval_is_above_the_best_one():
    found = scored()
    assert replace(found, above=(0.5, 0.1, 0.9)).beats_baselines is True
    assert replace(found, above=(0.5, -0.1, 1.1)).beats_baselines is False


def test_one_sentence_for_all_images_is_detected():
    assert scored().warning is None
    assert scored(dict.fromkeys(CANDIDATES, "a man")).warning == (
        "the captioner ignores the images: 1 different caption for 3 images, most often 'a man'"
    )


def test_a_single_image_has_no_cider():
    found = score_captions("test_full", {"1": "a dog"}, {"1": ["a dog runs"]}, TRAINING, NEAREST_IMAGES[:1])
    assert "CIDEr-D" not in found.metrics[CAPTIONER]
    assert (found.above, found.beats_baselines, found.per_image) == (None, None, {"1": None})
    assert found.notes == [
        "CIDEr-D of a single image is 0 by definition and is left out.",
        "Images have 1 human captions; figures cannot be compared with those of five captions.",
    ]


def test_five_references_need_no_note():
    assert scored().notes == []


def test_the_validation_of_a_captioner_is_beside_chance_and_the_best_baseline(captioned, rows):
    found = validation_levels(captioned, rows, 3, 0)
    assert found == scores_of(captioned, rows).validation
    records = {split: [each for each in captioned if each.split == split] for split in ("train", "val")}
    references, training = (reference_sentences(records[split]) for split in ("val", "train"))
    nearest = nearest_training_images(rows, list(references), list(training), 3)
    answers = (
        [constant_caption(list(training.values()))] * len(references),
        nearest_captions(nearest, list(training.values())),
        consensus_captions(nearest, list(training.values())),
    )
    scores = [cider_d(dict(zip(references, each, strict=True)), references).score for each in answers]
    assert found["baseline"]["CIDEr-D"] == max(scores)
    assert found["chance"].keys() == {"CIDEr-D", "BLEU-4"}
    assert validation_levels(records["train"], rows, 3, 0) == {}
