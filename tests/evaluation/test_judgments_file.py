from fne.evaluation.judgments import RightSets
from fne.evaluation.judgments_file import BASELINE, DIFFERENCE, KIND, MODEL, write_judgments
from tests.support.refusals import refused


def figure(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.1, "high": value + 0.1}


def write(folder, **changes):
    figures = {"image_to_text": {"map_at_r": figure(0.5)}, "text_to_image": {"map_at_r": figure(0.25)}}
    found = {
        "judged_by": "eccv",
        "queries": {"image_to_text": 1261, "text_to_image": 1332},
        "left_out": 7,
        MODEL: figures | {"text_to_image": {"map_at_r": figure(0.25), "R@1": figure(0.75)}},
        BASELINE: figures,
        DIFFERENCE: {group: {"map_at_r": figure(0.0)} for group in figures},
    }
    path = folder / "judgments.json"
    write_judgments(
        path, folder / "pairs.csv", "test_coco_5k", found | changes, RightSets("eccv", {}, {}), {}, {}
    )
    return path


def test_sets_of_right_answers_come_as_a_table_with_intervals_beside_the_baseline(tmp_path):
    path = write(tmp_path)
    head, _, *lines = KIND.describe(path)
    assert head == (
        f"{path}: test_coco_5k, 2,593 queries judged by ECCV Caption, 7 left out; 95 % intervals over images"
    )
    same = "0.250 (0.150 to 0.350)"
    assert [" ".join(line.split()) for line in lines] == [
        "image → sentences, mAP@R 0.500 (0.400 to 0.600) 0.500 (0.400 to 0.600) +0.000 (-0.100 to +0.100) —",
        f"sentence → images, mAP@R {same} {same} +0.000 (-0.100 to +0.100) —",
        "sentence → images, R@1 0.750 (0.650 to 0.850) — — —",
    ]


def test_figures_of_an_unknown_kind_are_refused(tmp_path):
    with refused("judgments.json: damaged (", "run `dvc repro pipelines/judgments/dvc.yaml`"):
        KIND.describe(write(tmp_path, judged_by="nobody"))
