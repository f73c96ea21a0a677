import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau, spearmanr

from fne.evaluation.agreement_kernels import rank_right
from fne.evaluation.judgments import Graded, RightSets, read_judgments
from fne.evaluation.score_judgments import BASELINE, DIFFERENCE, MODEL, Scored, Space, score, score_sets
from fne.matching.similarities import SIMILARITIES
from fne.store.catalog import Captioned
from tests.support.imports import ROOT

COSINE = SIMILARITIES["cosine"]


def unit(generator, rows, dim=8):
    return torch.nn.functional.normalize(
        torch.from_numpy(generator.normal(size=(rows, dim)).astype(np.float32))
    )


def world(images=30, captions=2, seed=0):
    generator = np.random.default_rng(seed)
    records = [Captioned(f"{number}.jpg", "test", ("x",) * captions, ()) for number in range(images)]
    spaces = {
        side: Space(unit(generator, images), unit(generator, images * captions), COSINE)
        for side in (MODEL, BASELINE)
    }
    return Scored.of(records), spaces, generator


def test_graded_pairs_are_scored_as_by_hand_beside_the_baseline():
    scored, spaces, generator = world()
    images, captions = generator.integers(30, size=90), generator.integers(60, size=90)
    judges = generator.integers(1, 5, (90, 3)).astype(float)
    graded = Graded(
        "experts",
        [f"{each}.jpg" for each in images],
        [f"{each // 2}.jpg#{each % 2}" for each in captions],
        judges.mean(axis=1).round(9),
        judges,
        [("a", "b", "why")],
    )
    found, scores = score(graded, spaces, scored, 0.0, [1])
    by_hand = {
        side: np.array(
            [float(space.images[i] @ space.captions[c]) for i, c in zip(images, captions, strict=True)]
        )
        for side, space in spaces.items()
    }
    for side, values in by_hand.items():
        assert scores[side] == pytest.approx(values, abs=1e-6)
        assert found[side]["all"]["spearman"]["value"] == pytest.approx(
            spearmanr(values, graded.grades).statistic
        )
        others = captions // 2 != images
        expected = kendalltau(values[others], graded.grades[others], variant="c").statistic
        assert found[side]["without_own"]["tau_c"]["value"] == pytest.approx(expected)
    difference = found[DIFFERENCE]["all"]["auc"]
    assert difference["value"] == pytest.approx(
        found[MODEL]["all"]["auc"]["value"] - found[BASELINE]["all"]["auc"]["value"]
    )
    assert difference["low"] <= difference["value"] <= difference["high"]
    assert (found["pairs"], found["left_out"], found["acceptable"]) == (90, 1, 3.0)
    assert found["own_captions"] == int((captions // 2 == images).sum())
    assert set(found["judges"]) == {"spearman", "tau_b", "tau_c"}
    same = score(graded, dict.fromkeys((MODEL, BASELINE), spaces[MODEL]), scored, 0.0, [1])[0]
    assert same[DIFFERENCE]["within_image"]["tau_b"] == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_a_model_that_scores_all_pairs_the_same_has_no_correlation_and_is_right_half_of_the_time():
    scored, _, _ = world()
    flat = Space(torch.ones(30, 8), torch.ones(60, 8), COSINE)
    grades = np.arange(40.0)
    graded = Graded(
        "table", [f"{each % 30}.jpg" for each in range(40)], ["3.jpg#0"] * 40, grades, np.empty((40, 0))
    )
    found, _ = score(graded, {MODEL: flat}, scored, 0.0, [1])
    assert set(found[MODEL]["all"]) == {"auc"}
    assert found[MODEL]["all"]["auc"]["value"] == 0.5
    assert BASELINE not in found
    right = RightSets("eccv", {"0.jpg": ["0.jpg#0", "0.jpg#1"]}, {"0.jpg#0": ["0.jpg"]})
    sets = score_sets(right, {MODEL: flat}, scored, [1])
    assert sets[MODEL]["image_to_text"]["map_at_r"]["value"] == 0.0  # ties count against the model
    assert sets[MODEL]["text_to_image"]["R@1"]["value"] == 0.0


def test_ranks_of_right_answers_are_those_of_a_plain_loop_with_equal_wrong_ones_before():
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 6, (9, 20)).astype(np.float32)  # many are equal
    right = [generator.permutation(np.arange(-1, 20))[:5] for _ in scores]
    found = np.full(45, -7)
    rank_right(scores, np.arange(0, 50, 5), np.concatenate(right), found)
    for row, own, ranks in zip(scores, right, found.reshape(9, 5), strict=True):
        known = own[own >= 0]
        ordered = sorted(range(20), key=lambda each: (-row[each], each in known))
        assert sorted(ranks[own >= 0]) == [
            place for place, each in enumerate(ordered, start=1) if each in known
        ]
        assert all(ranks[own < 0] == -7)


@pytest.mark.parametrize("truth", ["eccv", "cxc"])
def test_figures_of_eccv_caption_are_its_own(truth):
    """Run by `pip install -e '.[judgments]'`; a catalog with COCO's 5,000 test images, and random vectors."""
    pytest.importorskip("ujson")
    package = pytest.importorskip("eccv_caption")
    data = Path(find_spec("eccv_caption").origin).parent / "data"
    owned = {
        int(key): sorted(map(int, each))
        for key, each in json.loads((data / "original_image_to_caption.json").read_text()).items()
    }
    records = [
        Captioned(f"val2014/COCO_val2014_{image:012d}.jpg", "test", ("x",) * len(own), ())
        for image, own in owned.items()
    ]
    judged, scored = (
        read_judgments(ROOT / f"pipelines/judgments/{truth}.yaml", records, records),
        Scored.of(records),
    )
    generator = np.random.default_rng(0)
    images = unit(generator, len(records), 32).double()  # no two scores are equal
    noise = unit(generator, len(scored.captions), 32).double()
    captions = torch.nn.functional.normalize(images[scored.owners] + 1.2 * noise)
    found = score_sets(judged, {MODEL: Space(images, captions, COSINE)}, scored, [1, 5, 10])[MODEL]
    numbers = [caption for own in owned.values() for caption in own]
    pictures = list(owned)
    scores = (images @ captions.T).numpy()
    queries = json.loads((data / f"{truth}_image_to_caption.json").read_text())
    sentences = json.loads((data / f"{truth}_caption_to_image.json").read_text())
    place_of, number_of = (
        {each: place for place, each in enumerate(pictures)},
        {each: place for place, each in enumerate(numbers)},
    )
    i2t = {int(q): [numbers[c] for c in np.argsort(-scores[place_of[int(q)]])[:200]] for q in queries}
    t2i = {int(q): [pictures[i] for i in np.argsort(-scores[:, number_of[int(q)]])[:200]] for q in sentences}
    metric = package.Metrics()
    retrieved = {"i2t": i2t, "t2i": t2i}
    if truth == "eccv":
        own = metric.eccv_metrics(retrieved, "all")
        names = {"eccv_map_at_r": "map_at_r", "eccv_rprecision": "r_precision", "eccv_r1": "R@1"}
        expected = {names[name]: values for name, values in own.items() if name in names}
    else:
        expected = {f"R@{k}": metric.cxc_recalls(retrieved, "all", K=k) for k in (1, 5, 10)}
    for name, values in expected.items():
        assert found["image_to_text"][name]["value"] == pytest.approx(values["i2t"], abs=1e-9), name
        assert found["text_to_image"][name]["value"] == pytest.approx(values["t2i"], abs=1e-9), name
