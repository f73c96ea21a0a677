from dataclasses import replace

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.core.settings import load_params
from fne.evaluation.metrics.recall import sum_of_recalls, summarize
from fne.experiments.study_file import load_study
from fne.experiments.study_results import (
    StudyResult,
    collect,
    find_result,
    grids,
    keep_result,
    require_one_state,
)
from fne.experiments.study_run import settings_of
from tests.support.imports import ROOT
from tests.support.refusals import refused
from tests.support.studies import write_file

IMAGES = 30
KEY = {"embed": {"kind": "fne"}}
RESULT = StudyResult(
    image_ids=["a", "b"],
    caption_image=np.array([0, 0, 1]),
    image_ranks=np.array([1, 2]),
    caption_ranks=np.array([1, 6, 11]),
    validation=50.0,
    features=7,
    size=2,
    trials=[{"draw": {}, "validation": 50.0, "chosen": {"power": 1.0}}],
)


def result(ranks: int, fold: int, names: str = "r") -> StudyResult:
    """Return a result whose queries all have nearly the same rank."""
    generator = np.random.default_rng(fold)
    return StudyResult(
        image_ids=[f"{names}{fold}-{number}" for number in range(IMAGES)],
        caption_image=np.repeat(np.arange(IMAGES), 2),
        image_ranks=ranks + generator.integers(0, 3, size=IMAGES),
        caption_ranks=ranks + generator.integers(0, 3, size=2 * IMAGES),
        validation=100.0 - ranks,
        features=7,
        size=2,
        trials=[],
    )


@pytest.fixture
def study(tmp_path):
    return load_study(write_file(tmp_path / "s.yaml", folds=5))


def keep(study, folder, ranks, folds=range(5), key=None, seeds=range(1)):
    for cell in study.cells:
        if cell.name in ranks:
            for fold in folds:
                for seed in seeds:
                    keep_result(folder, cell, fold, seed, key or {}, result(ranks[cell.name], fold))


def test_a_difference_in_all_folds_is_shown_and_equal_cells_are_not(study, tmp_path):
    keep(study, tmp_path, {"small/last/z": 9, "small/all/z": 1, "small/all/ternary": 1})
    found = collect(study, tmp_path, samples=400)
    layers, bits = found.hypotheses
    assert (layers.verdict, layers.agreeing, layers.folds) == ("shown", 5, 5)
    assert layers.difference.low > 0
    assert bits.verdict == "no difference shown"
    assert bits.difference.b == bits.difference.a
    # The smallest p of 400 samples, twice for both tails, times two hypotheses.
    assert layers.p == pytest.approx(2 * 2 / 401)


def test_cells_have_the_mean_of_their_folds(study, tmp_path):
    keep(study, tmp_path, {"small/all/z": 4})
    (cell,) = collect(study, tmp_path, samples=100).cells
    expected = [
        sum_of_recalls(summarize(result(4, fold).image_ranks), summarize(result(4, fold).caption_ranks))
        for fold in range(5)
    ]
    assert cell.folds == pytest.approx(expected)
    assert cell.rsum == pytest.approx(np.mean(expected))
    assert cell.interval[0] <= cell.rsum <= cell.interval[1]
    assert (cell.started, cell.training_runs) == (5, 5)


def test_training_runs_at_chance_have_not_started(study, tmp_path):
    keep(study, tmp_path, {"small/all/z": 50})
    (cell,) = collect(study, tmp_path, samples=100).cells
    assert (cell.started, cell.training_runs) == (0, 5)


def test_with_fewer_than_five_folds_and_seeds_nothing_is_shown(tmp_path):
    study = load_study(write_file(tmp_path / "s.yaml", folds=3))
    keep(study, tmp_path, {"small/last/z": 9, "small/all/z": 1}, range(3))
    assert collect(study, tmp_path, samples=100).hypotheses[0].verdict == "seed variance unknown"


def test_training_runs_by_steps_need_five_seeds_for_a_verdict_beyond_them(tmp_path):
    """Folds of closed forms differ by their images only, training by steps also varies by chance."""
    ranks = {"small/last/z": 9, "small/all/z": 1}
    for seeds, verdict in ((1, "shown for these training runs"), (5, "shown")):
        study = load_study(write_file(tmp_path / "s.yaml", folds=5, seeds=seeds))
        keep(study, tmp_path / str(seeds), ranks, key={"train": [{"method": "steps"}]}, seeds=range(seeds))
        found = collect(study, tmp_path / str(seeds), samples=200)
        assert found.hypotheses[0].verdict == verdict
        assert ("images and of the seeds, paired" in grids(found)[0].legend) == (seeds == 5)


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ({"version": 1}, {"version": 2}, "was run with study version 1, small/last/z with 2"),
        ({"embed": {"low": -0.25}}, {"embed": {"low": 0.0}}, "was run with embed.low -0.25, small/last/z with 0.0"),
        ({"train": [{"seed": 0}]}, {"train": [{"seed": 1}]}, None),
        ({"train": [{"method": "cca"}]}, {"train": [{"method": "ridge"}]}, None),  # the file sets it
        (
            {"train": [{"method": "steps", "start": "cca", "clip": 1}]},
            {"train": [{"method": "steps", "start": "random", "clip": 2}]},
            "was run with train.clip 1, small/last/z with 2",
        ),
        (
            {"activations": "a" * 64}, {"activations": "b" * 64},
            f"was run with the features features/small {'a' * 12}…, small/last/z with {'b' * 12}…",
        ),
        ({"captions": "c"}, {"captions": "d"}, "was run with the captions of fold 0 (catalog.root data/small"),
    ],
)  # fmt: skip
def test_results_of_different_states_are_not_shown_together(study, tmp_path, before, after, fault):
    keep(study, tmp_path, {"small/all/z": 1}, key=before)
    keep(study, tmp_path, {"small/last/z": 9}, key=after)
    if fault is None:
        assert len(collect(study, tmp_path, samples=10).cells) == 2
        return
    with refused(f"small/all/z {fault}", "; the same `fne study run` again repeats what has changed"):
        collect(study, tmp_path, samples=10)


@pytest.mark.parametrize("path", sorted((ROOT / "studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_cells_of_every_study_are_of_one_state(path):
    """What follows from the settings of a cell is not mistaken for a change of the project."""
    study, params = load_study(path), load_params(ROOT / "params.yaml")
    kept = {}
    for cell in study.cells:
        settings = settings_of(params, {**cell.overrides, **study.draws[0]}, cell.name)
        decided_by = {
            "embed": settings.embed.model_dump(exclude={"source"}),
            "tokenize": settings.tokenize.model_dump(),
            "train": [settings.train.applied()],
        }
        kept[cell.name] = [[replace(result(1, 0), decided_by=decided_by)]]
    require_one_state(study, kept)


def test_on_the_splits_of_the_catalog_a_verdict_is_about_these_training_runs(tmp_path):
    study = load_study(write_file(tmp_path / "s.yaml"), official=True)
    keep(study, tmp_path, {"small/last/z": 9, "small/all/z": 1, "small/all/ternary": 1}, range(1))
    found = collect(study, tmp_path, samples=100)
    verdicts = [each.verdict for each in found.hypotheses]
    assert verdicts == ["shown for these training runs", "no difference shown"]
    assert grids(found)[0].legend.startswith(f"sums of recalls on {IMAGES} images; intervals over ")


def test_an_unfinished_cell_is_counted_and_not_shown(study, tmp_path):
    keep(study, tmp_path, {"small/all/z": 1})
    keep(study, tmp_path, {"small/last/z": 9}, range(3))
    found = collect(study, tmp_path, samples=100)
    assert [each.cell.name for each in found.cells] == ["small/all/z"]
    assert (found.training_runs, found.planned) == (8, 25)


def test_nothing_finished_and_other_images_are_errors_of_the_user(study, tmp_path):
    with pytest.raises(InputError, match="no cell is finished yet; use `fne study run "):
        collect(study, tmp_path)
    keep(study, tmp_path, {"small/all/z": 1})
    other = next(cell for cell in study.cells if cell.name == "small/last/z")
    for fold in range(5):
        keep_result(tmp_path, other, fold, 0, {}, result(2, fold, names="other"))
    with refused("small/all/z and small/last/z were tested with different images or captions; "):
        collect(study, tmp_path)
    for fold in range(5):
        captions = {"caption_image": np.arange(IMAGES), "caption_ranks": np.ones(IMAGES, dtype=int)}
        keep_result(tmp_path, other, fold, 0, {}, replace(result(1, fold), **captions))
    with refused("small/all/z and small/last/z were tested with different images or captions; "):
        collect(study, tmp_path)


def test_tables_have_a_row_for_each_hypothesis_and_each_finished_cell(study, tmp_path):
    keep(study, tmp_path, {"small/last/z": 9, "small/all/z": 1, "small/last/ternary": 5})
    first, small, projected = grids(collect(study, tmp_path, samples=100))
    assert [row[-1] for row in first.rows] == ["shown", "not run"]
    assert f"digest of the file {study.digest[:12]}…" in first.legend
    assert [row[:2] for row in small.rows] == [["all", "z"], ["last", "ternary"], ["last", "z"]]
    assert (small.title, projected.title) == ("small: 3 of 4 cells", "projected: 0 of 1 cells")


def test_a_damaged_result_says_how_to_get_it_again(study, tmp_path):
    keep_result(tmp_path, study.cells[0], 0, 0, KEY, RESULT)
    (path,) = (tmp_path / "results").rglob("*.h5")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="remove the file, and `fne study run` computes it again"):
        find_result(tmp_path, study.cells[0], 0, 0)


def test_two_results_that_changed_places_are_refused_with_both_names(study, tmp_path):
    first, second = study.cells[:2]
    places = []
    for number, cell in enumerate((first, second)):
        keep_result(tmp_path, cell, 0, 0, KEY | {"number": number}, RESULT)
        places += sorted(set((tmp_path / "results").rglob("*.h5")) - set(places))
    contents = [path.read_bytes() for path in places]
    for path, content in zip(places, reversed(contents), strict=True):
        path.write_bytes(content)
    for path, cell, other in ((places[0], first, second), (places[1], second, first)):
        holds = f"{path}: holds the result of '{other.name}', fold 0, seed 0 (key "
        with refused(holds, f"not of '{cell.name}', fold 0, seed 0; remove the file, and `fne study run`"):
            find_result(tmp_path, cell, 0, 0)
    assert find_result(tmp_path, first, 0, 0, KEY | {"number": 0}) is None  # it is computed again


def test_a_result_is_read_as_it_was_kept_and_only_for_its_own_key(study, tmp_path):
    cell = study.cells[0]
    assert find_result(tmp_path, cell, 0, 0) is None
    keep_result(tmp_path, cell, 0, 0, KEY, RESULT)
    found = find_result(tmp_path, cell, 0, 0, KEY)
    assert found.image_ids == RESULT.image_ids
    assert found.caption_ranks.tolist() == [1, 6, 11]
    assert (found.validation, found.features, found.size, found.trials) == (50.0, 7, 2, RESULT.trials)
    # Images: 50 + 100 + 100; captions: a third at 1, at 5, two thirds at 10.
    assert found.rsum == pytest.approx(250 + 100 * 4 / 3)
    assert find_result(tmp_path, cell, 0, 0, {"embed": {"kind": "sign"}}) is None
    assert find_result(tmp_path, cell, 1, 0) is None
