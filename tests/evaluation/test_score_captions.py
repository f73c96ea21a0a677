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
from fne.evaluation.score_captions import (
    CAPTIONER,
    CONSENSUS,
    CONSTANT,
    NEAREST,
    evaluate_captions,
    images_to_caption,
    mean_with_interval,
    meteor_scores,
    nearest_training_images,
    reference_sentences,
    score_captions,
    write_scores,
)
from fne.store.catalog import Captioned, read_captions
from fne.store.rows import Rows
from tests.support.captions import CAPTIONS, EMBEDDINGS, write_world


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
    return evaluate_captions(written, captioned, rows, "test", 3)


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


def test_all_images_of_the_catalog_or_those_of_the_split_get_captions(captioned, rows):
    assert images_to_caption(captioned, rows, "test", "all") == [record.id for record in captioned]
    scored = images_to_caption(captioned, rows, "val", "split")
    assert scored == [record.id for record in captioned if record.split == "val"]


def test_nothing_to_score_is_refused(captioned, rows):
    train = [record for record in captioned if record.split == "train"]
    with pytest.raises(InputError, match="the catalog has captions only in train"):
        images_to_caption(train, rows, "test", "all")


def test_metrics_and_intervals_are_written_with_the_baselines(captioned, rows, tmp_path):
    found = scores_of(captioned, rows)
    line = write_scores(
        found,
        tmp_path / "m.json",
        tmp_path / "i.json",
        {"beam": 3},
        {"captioner": {"digest": "ab"}},
        "no java",
    )
    metrics = json.loads((tmp_path / "m.json").read_text())["test_full"]
    intervals = json.loads((tmp_path / "i.json").read_text())
    assert list(metrics) == [
        "captioner", "constant", "nearest", "consensus", "images", "collapsed", "CIDEr-D_above_best_baseline",
    ]  # fmt: skip
    assert (metrics["images"], metrics["collapsed"]) == (8, True)
    assert "METEOR" not in metrics["captioner"]
    assert intervals["made_from"] == {"captioner": "ab"}
    low, high = intervals["test_full"]["CIDEr-D_above_best_baseline"]
    assert low <= metrics["CIDEr-D_above_best_baseline"] <= high < 0  # the neighbors know the truth
    assert line.startswith("test_full: 8 images, BLEU-4 0.")
    assert f"best baseline {metrics[found.best_baseline]['CIDEr-D']:.3f} ({found.best_baseline}; " in line
    assert ", 3 different words, 12% distinct sentences; " in line
    assert line.endswith(
        "the captioner ignores the images: 1 different caption for 8 images, most often 'a red circle'"
    )


def test_meteor_is_among_the_metrics_if_it_was_computed(captioned, rows, tmp_path):
    found = scores_of(captioned, rows)
    values = dict.fromkeys(found.metrics, 0.25)
    write_scores(found, tmp_path / "m", tmp_path / "i", {}, {"captioner": {"digest": "ab"}}, values)
    assert json.loads((tmp_path / "m").read_text())["test_full"]["consensus"]["METEOR"] == 0.25


def test_meteor_is_left_out_with_a_reason_or_demanded(captioned, rows, monkeypatch):
    found = scores_of(captioned, rows)
    assert meteor_scores("never", found) == "caption.meteor is never"
    monkeypatch.setattr(module, "find_program", lambda: "there is no `java`; install one")
    assert meteor_scores("auto", found) == "there is no `java`; install one"
    with pytest.raises(InputError) as error:
        meteor_scores("always", found)
    assert error.value.message == (
        "params.yaml: caption.meteor is 'always', but there is no `java`; install one, or set it to auto"
    )
    monkeypatch.setattr(module, "find_program", lambda: Program("java", Path("m.jar")))
    monkeypatch.setattr(module, "meteor", lambda own, references, program: len(set(own.values())))
    assert meteor_scores("auto", found)["captioner"] == 1


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


def scored(candidates=CANDIDATES, references=REFERENCES, neighbors=NEAREST_IMAGES):
    return score_captions("test_full", candidates, references, TRAINING, neighbors)


def test_the_baselines_are_shown_beside_the_captioner():
    found = scored()
    assert list(found.metrics) == [CAPTIONER, CONSTANT, NEAREST, CONSENSUS]
    assert len(set(found.candidates[CONSTANT].values())) == 1
    assert found.candidates[NEAREST] == {
        "1": TRAINING["t1"][0],
        "2": TRAINING["t2"][0],
        "3": TRAINING["t3"][0],
    }
    assert found.metrics[NEAREST]["found_in_training"] == 1.0
    assert found.metrics[CAPTIONER]["found_in_training"] == pytest.approx(1 / 3)
    for system, metrics in found.metrics.items():
        assert metrics["CIDEr-D"] == cider_d(found.candidates[system], REFERENCES).score
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
    same = scored(dict(found.candidates[best]), neighbors=np.array(neighbors))
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
    assert (found.above, found.beats_baselines, found.per_image) == (None, None, {})
    assert found.notes == [
        "CIDEr-D of a single image is 0 by definition and is left out.",
        "Images have 1 human captions; figures cannot be compared with those of five captions.",
    ]


def test_five_references_need_no_note():
    assert scored().notes == []


def test_an_interval_of_equal_values_is_one_value():
    assert mean_with_interval(np.full(7, 0.25)) == (0.25, 0.25, 0.25)
