from pathlib import Path

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.ranking.similarities import cosine
from fne.retrieval.evaluation import evaluate
from fne.store.catalog import Captioned
from fne.store.layout import Layer
from fne.store.rows import Rows
from fne.store.writer import write_rows

# On the unit circle, by angle: each image near its own captions but for b#0, which is nearest to a.
ANGLES = {"a": 0, "b": 90, "c": 180}
CAPTION_ANGLES = {"a#0": 10, "b#0": 30, "b#1": 95, "c#0": 170, "c#1": 185, "c#2": 260}
CAPTIONED = [
    Captioned("a", "test", ("",), ()),
    Captioned("b", "test", ("", ""), ()),
    Captioned("c", "test", ("", "", ""), ()),
]


def store(path: Path, angles: dict[str, float]) -> Rows:
    radians = np.radians(list(angles.values()))
    rows = np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)
    write_rows(path, "vectors", [Layer("joint", 2)], "float32", [(0, list(angles), rows)], {}, {})
    return Rows.open(path)


def test_a_hand_made_split_gives_hand_made_ranks(tmp_path):
    images, captions = store(tmp_path / "i", ANGLES), store(tmp_path / "c", CAPTION_ANGLES)
    evaluation = evaluate(CAPTIONED, images, captions, cosine, top=2)
    assert evaluation.ranking.image_ranks.tolist() == [1, 1, 1]
    assert evaluation.ranking.caption_ranks.tolist() == [1, 2, 1, 1, 1, 1]
    assert evaluation.ranking.image_best[1].tolist() == [2, 1]  # b's captions at 95 and 30 degrees
    metrics = evaluation.metrics()
    assert metrics["image_to_text"]["R@1"] == 100
    assert metrics["text_to_image"]["R@1"] == pytest.approx(500 / 6)
    assert metrics["rsum"] == pytest.approx(500 + 500 / 6)


def test_vectors_with_nan_are_refused(tmp_path):
    images = store(tmp_path / "i", ANGLES | {"c": float("nan")})
    captions = store(tmp_path / "c", CAPTION_ANGLES)
    with pytest.raises(InputError, match="6 scores of images 0 and following are NaN; train again"):
        evaluate(CAPTIONED, images, captions, cosine, top=1)
