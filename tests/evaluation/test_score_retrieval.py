import json
from math import comb
from pathlib import Path

import numpy as np
import pytest
import torch

from fne.evaluation.score_retrieval import evaluate
from fne.matching.similarities import SIMILARITIES, cosine
from fne.store.catalog import Captioned
from fne.store.layout import Layer
from fne.store.rows import Rows, write_rows
from tests.support.refusals import refused

CPU = torch.device("cpu")
# On the unit circle, by angle: each image near its own captions but for b#0, which is nearest to a.
ANGLES = {"a": 0, "b": 90, "c": 180}
CAPTION_ANGLES = {"a#0": 10, "b#0": 30, "b#1": 95, "c#0": 170, "c#1": 185, "c#2": 260}
CAPTIONED = [
    Captioned("a", "test", ("",), ()),
    Captioned("b", "test", ("", ""), ()),
    Captioned("c", "test", ("", "", ""), ()),
]


def store(path: Path, vectors: dict[str, np.ndarray]) -> Rows:
    rows = np.stack(list(vectors.values())).astype(np.float32)
    layers = [Layer("joint", rows.shape[1])]
    write_rows(path, "vectors", layers, "float32", [(0, list(vectors), rows)], {}, {})
    return Rows.open(path)


def circle(path: Path, angles: dict[str, float]) -> Rows:
    radians = {name: np.radians(angle) for name, angle in angles.items()}
    return store(path, {name: np.array([np.cos(each), np.sin(each)]) for name, each in radians.items()})


def test_a_hand_made_split_gives_hand_made_ranks(tmp_path):
    images, captions = circle(tmp_path / "i", ANGLES), circle(tmp_path / "c", CAPTION_ANGLES)
    evaluation = evaluate([CAPTIONED], images, captions, cosine, 2, CPU)
    arrays = evaluation.arrays()
    assert arrays["image_ranks"].tolist() == [1, 1, 1]
    assert arrays["caption_ranks"].tolist() == [1, 2, 1, 1, 1, 1]
    assert arrays["image_best"][1].tolist() == [2, 1]  # b's captions at 95 and 30 degrees
    metrics = evaluation.metrics([1, 5, 10])
    assert metrics["image_to_text"]["R@1"] == 100
    assert metrics["text_to_image"]["R@1"] == pytest.approx(500 / 6)
    assert metrics["rsum"] == pytest.approx(500 + 500 / 6)
    assert (metrics["images"], metrics["captions"]) == (3, 6)


def test_folds_are_ranked_separately_and_positions_count_from_the_first_fold(tmp_path):
    images, captions = circle(tmp_path / "i", ANGLES), circle(tmp_path / "c", CAPTION_ANGLES)
    evaluation = evaluate([CAPTIONED[:1], CAPTIONED[1:]], images, captions, cosine, 1, CPU)
    arrays = evaluation.arrays()
    assert arrays["folds"].tolist() == [0, 1, 1]
    assert arrays["caption_ranks"].tolist() == [1, 1, 1, 1, 1, 1]  # a, which was nearer to b#0, is elsewhere
    assert arrays["image_best"].tolist() == [[0], [2], [4]]
    assert arrays["caption_best"].tolist() == [[0], [1], [1], [2], [2], [2]]
    assert evaluation.metrics([1])["rsum"] == 200


def test_queries_with_ties_are_counted(tmp_path):
    images = circle(tmp_path / "i", {"a": 0, "b": 0, "c": 180})
    captions = circle(tmp_path / "c", CAPTION_ANGLES)
    metrics = evaluate([CAPTIONED], images, captions, cosine, 1, CPU).metrics([1])
    assert metrics["ties"] == {"image_to_text": 0, "text_to_image": 3}


def test_vectors_with_nan_are_refused(tmp_path):
    images = circle(tmp_path / "i", ANGLES | {"c": float("nan")})
    captions = circle(tmp_path / "c", CAPTION_ANGLES)
    with refused(
        f"{tmp_path / 'i'}, {tmp_path / 'c'}: 6 scores of images 0 and following are NaN; train again"
    ):
        evaluate([CAPTIONED], images, captions, cosine, 1, CPU)


MICRO_FOLDS = [range(7), range(7, 12)]


def micro(folder: Path) -> tuple[list[list[Captioned]], Rows, Rows]:
    """Twelve images with one to four captions in two folds: small whole numbers, so that every score is exact."""
    counts = [1 + number % 4 for number in range(12)]
    images = {f"{n:02d}": np.array([(7 * n + 3 * d * d) % 11 - 3 for d in range(5)]) for n in range(12)}
    captions = {
        f"{n:02d}#{k}": images[f"{n:02d}"] + np.array([(5 * n + 4 * k * d + k) % 7 - 3 for d in range(5)])
        for n in range(12)
        for k in range(counts[n])
    }
    records = [Captioned(f"{n:02d}", "test", ("",) * counts[n], ()) for n in range(12)]
    folds = [[records[n] for n in fold] for fold in MICRO_FOLDS]
    return folds, store(folder / "images", images), store(folder / "captions", captions)


@pytest.mark.parametrize("name", ["cosine", "order"])
def test_the_numbers_of_a_fixed_micro_data_set_do_not_change(name, tmp_path):
    evaluation = evaluate(*micro(tmp_path), SIMILARITIES[name], 3, CPU)
    golden = json.loads((Path(__file__).parent / "micro.json").read_text())[name]
    metrics = evaluation.metrics([1, 2, 5])
    chance = metrics.pop("chance")
    assert metrics.keys() == golden["metrics"].keys()
    # By plain loops, per fold: hits of the first K of all orders, for each query.
    assert chance == pytest.approx(np.mean([plain_chance(fold) for fold in micro(tmp_path / "again")[0]]))
    for key, value in golden["metrics"].items():
        assert metrics[key] == pytest.approx(value), key
    assert evaluation.arrays()["image_ranks"].tolist() == golden["image_ranks"]
    assert evaluation.arrays()["caption_ranks"].tolist() == golden["caption_ranks"]
    low, high = golden["rsum_interval"]
    assert evaluation.intervals([1, 2, 5])["rsum"] == pytest.approx({"low": low, "high": high})


@pytest.mark.parametrize("name", ["cosine", "order"])
def test_ranks_of_the_micro_data_set_are_those_of_plain_loops(name, tmp_path):
    folds, images, captions = micro(tmp_path)
    arrays = evaluate(folds, images, captions, SIMILARITIES[name], 3, CPU).arrays()
    image_ranks, caption_ranks, image_ties, caption_ties = [], [], [], []
    for fold in folds:
        vectors = {record.id: images.read([record.id])[0].tolist() for record in fold}
        sentences = {
            each: captions.read([each])[0].tolist() for record in fold for each in record.caption_ids
        }
        scores = {(i, c): plain_score(name, vectors[i], sentences[c]) for i in vectors for c in sentences}
        for record in fold:
            best = max(scores[record.id, own] for own in record.caption_ids)
            wrong = [scores[record.id, c] for c in sentences if c not in record.caption_ids]
            image_ranks.append(1 + sum(score >= best for score in wrong))
            image_ties.append(sum(score == best for score in wrong))
            for own in record.caption_ids:
                others = [scores[i, own] for i in vectors if i != record.id]
                caption_ranks.append(1 + sum(score >= scores[record.id, own] for score in others))
                caption_ties.append(sum(score == scores[record.id, own] for score in others))
    assert arrays["image_ranks"].tolist() == image_ranks
    assert arrays["caption_ranks"].tolist() == caption_ranks
    assert (arrays["image_ties"].tolist(), arrays["caption_ties"].tolist()) == (image_ties, caption_ties)
    assert sum(image_ties) > 0


def plain_score(name: str, image: list[float], caption: list[float]) -> float:
    if name == "cosine":
        return sum(i * c for i, c in zip(image, caption, strict=True))
    return -sum(max(0.0, c - i) ** 2 for i, c in zip(image, caption, strict=True))


def plain_chance(fold: list[Captioned]) -> float:
    """The sum of R@1, R@2 and R@5 by chance: one minus the probability to draw wrong items only."""
    captions = sum(len(record.captions) for record in fold)
    total = 0.0
    for k in (1, 2, 5):
        by_image = [1 - comb(captions - len(record.captions), k) / comb(captions, k) for record in fold]
        total += 100 * sum(by_image) / len(fold) + 100 * min(1, k / len(fold))
    return total
