import json
import re
from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.experiments.study_file import (
    Tuning,
    check_record,
    load_study,
    record_study,
    require_own_folder,
)
from tests.support.imports import ROOT
from tests.support.refusals import refused
from tests.support.studies import STUDY, write_file

FILES = sorted((ROOT / "studies").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_study_of_the_project_can_be_read(path):
    study = load_study(path)
    assert len({cell.name for cell in study.cells}) == len(study.cells)


def test_cells_are_all_choices_of_levels_and_those_of_hypotheses_run_first(tmp_path):
    study = load_study(write_file(tmp_path / "s.yaml"))
    assert [cell.name for cell in study.cells] == [
        "small/all/ternary",
        "small/all/z",
        "small/last/z",
        "small/last/ternary",
        "projected/pca",
    ]
    first = study.cells[0]
    assert first.overrides["embed.kind"] == "fne"
    assert first.overrides["embed.layers"] == "all"
    assert (first.panel, first.series, first.project) == ("Small", "ternary", None)
    assert not [key for key in first.overrides if key.startswith("study.")]
    assert study.cells[-1].project == "pca:2"
    assert (study.draws, list(study.folds), list(study.seeds)) == ([{}], [0, 1, 2], [0])


def test_another_seed_and_the_official_splits_replace_those_of_the_file(tmp_path):
    path = write_file(tmp_path / "s.yaml", seeds=2)
    study = load_study(path, seed=5, official=True)
    assert (study.file.seed, list(study.seeds), list(study.folds)) == (5, [5, 6], [0])
    assert study.digest == load_study(path).digest


def test_every_cell_has_the_same_draws_between_the_bounds():
    tuning = Tuning(key="train.learning_rate", draws=50, low=0.001, high=0.1)
    values = tuning.values(0)
    assert values == tuning.values(0) != tuning.values(1)
    assert all(0.001 <= value <= 0.1 for value in values)
    assert (
        15 <= sum(value < 0.01 for value in values) <= 35
    )  # half of them: the draws are uniform in logarithms


def test_a_pilot_of_the_official_images_is_refused(tmp_path):
    with refused("--images makes a pilot of the folds; leave it out with --official"):
        load_study(write_file(tmp_path / "s.yaml"), official=True, images=5)


def test_draws_are_overrides(tmp_path):
    study = load_study(write_file(tmp_path / "s.yaml", tuning=TUNING))
    assert [list(draw) for draw in study.draws] == [["train.learning_rate"]] * 2


GRIDS = STUDY["grids"]
TUNING = {"key": "train.learning_rate", "draws": 2, "low": 0.001, "high": 0.1}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"folds": 1}, "folds is 0 (the splits of the catalog) or at least 2, got 1"),
        (
            {"hypotheses": [{"says": "x", "a": "small/all/z", "b": "small/all/zz"}]},
            "hypotheses: 'small/all/zz' is not a cell of the study; the first is 'small/all/ternary'",
        ),
        ({"base": {"seed": 1}}, "base: 'seed' is not SECTION.KEY, as `-S` takes it"),
        ({"base": {"study.projekt": "pca:2"}}, "base: 'study.projekt' is not one of 'study.project', "),
        ({"base": {"study.project": "pca"}}, "base: study.project is 'pca:N' or 'random:N', got 'pca'"),
        (
            {"grids": GRIDS | {"a/b": GRIDS["small"]}},
            "'a/b' is not a name: letters, digits, spaces and _ . , + = - ",
        ),
        (
            {"seeds": 0, "folds": -1},
            "folds: Input should be greater than or equal to 0; seeds: Input should be ",
        ),
        (
            {"base": STUDY["base"] | {"train.seed": 3}},
            "small/all/ternary sets train.seed, which follows from `seed` and `seeds`; remove one of the two",
        ),
        (
            {"base": STUDY["base"] | {"train.learning_rate": 0.1}, "tuning": TUNING},
            "small/all/ternary sets train.learning_rate, which `tuning` draws; remove one of the two",
        ),
        (
            {"tuning": TUNING | {"low": 0.1, "high": 0.01}},
            "tuning: low must not be above high, got low=0.1, high=0.01",
        ),
        ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
    ],
)
def test_faults_are_named(tmp_path, changes, fault):
    path = write_file(tmp_path / "s.yaml", **changes)
    with pytest.raises(InputError, match=re.escape(fault)):
        load_study(path)


def test_a_missing_file_is_an_error_of_the_user():
    with pytest.raises(InputError, match="missing.yaml"):
        load_study(Path("missing.yaml"))


@pytest.fixture
def study(tmp_path):
    return load_study(write_file(tmp_path / "s.yaml"))


def test_a_file_that_was_changed_after_the_first_run_is_refused_with_both_digests(study, tmp_path):
    record_study(study, tmp_path / "out")
    record_study(study, tmp_path / "out")
    assert json.loads((tmp_path / "out/record.json").read_text())["hypotheses"] == 2
    changed = load_study(write_file(tmp_path / "s.yaml", hypotheses=[]))
    for check in (record_study, check_record):
        with refused(
            f"{tmp_path / 's.yaml'} was recorded as {study.digest[:12]}… before its first run, and is "
            f"{changed.digest[:12]}… now; restore the file, or run the new one in another folder with --to"
        ):
            check(changed, tmp_path / "out")


def test_another_seed_needs_another_folder(study, tmp_path):
    record_study(study, tmp_path / "out")
    with refused(
        f"{tmp_path / 'out'}: was run with seed 0, folds 3, images 0, not with seed 1, folds 3, images 0; choose "
        "another folder with --to"
    ):
        record_study(load_study(tmp_path / "s.yaml", seed=1), tmp_path / "out")


def test_nothing_was_run_yet_and_a_damaged_record_are_errors_of_the_user(study, tmp_path):
    with pytest.raises(InputError, match="nothing was run yet; use `fne study run "):
        check_record(study, tmp_path / "out")
    (tmp_path / "out").mkdir()
    for content in ("{}", '{"file": 5, "seed": 0, "folds": 3, "images": 0}'):
        (tmp_path / "out/record.json").write_text(content)
        with pytest.raises(
            InputError, match=r"record.json: damaged \('file'\); choose another folder with --to"
        ):
            check_record(study, tmp_path / "out")


@pytest.mark.parametrize("name", ["work", "thesis.txt", "results"])
def test_a_folder_of_the_user_is_refused(study, tmp_path, name):
    (tmp_path / "mine" / name).mkdir(parents=True)
    with refused(
        f"{tmp_path / 'mine'}: holds '{name}' and no record of a study; choose another folder with --to"
    ):
        require_own_folder(tmp_path / "mine")
    record_study(study, tmp_path / "mine")
    require_own_folder(tmp_path / "mine")
    require_own_folder(tmp_path / "none")
