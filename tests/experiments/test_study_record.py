import json

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.experiments.study_file import load_study
from fne.experiments.study_record import (
    StudyResult,
    check_record,
    find_result,
    keep_result,
    record_study,
    require_own_folder,
)
from tests.support.studies import write_file

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
KEY = {"embed": {"kind": "fne"}}


@pytest.fixture
def study(tmp_path):
    return load_study(write_file(tmp_path / "s.yaml"))


def test_a_file_that_was_changed_after_the_first_run_is_refused_with_both_digests(study, tmp_path):
    record_study(study, tmp_path / "out")
    record_study(study, tmp_path / "out")
    assert json.loads((tmp_path / "out/record.json").read_text())["hypotheses"] == 2
    changed = load_study(write_file(tmp_path / "s.yaml", hypotheses=[]))
    for check in (record_study, check_record):
        with pytest.raises(InputError) as caught:
            check(changed, tmp_path / "out")
        assert caught.value.message == (
            f"{tmp_path / 's.yaml'} was recorded as {study.digest[:12]}… before its first run, and is "
            f"{changed.digest[:12]}… now; restore the file, or run the new one in another folder with --to"
        )


def test_another_seed_needs_another_folder(study, tmp_path):
    record_study(study, tmp_path / "out")
    with pytest.raises(InputError) as caught:
        record_study(load_study(tmp_path / "s.yaml", seed=1), tmp_path / "out")
    assert caught.value.message == (
        f"{tmp_path / 'out'}: was run with seed 0, folds 3, images 0, not with seed 1, folds 3, images 0; choose "
        "another folder with --to"
    )


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
    with pytest.raises(InputError) as caught:
        require_own_folder(tmp_path / "mine")
    assert caught.value.message == (
        f"{tmp_path / 'mine'}: holds '{name}' and no record of a study; choose another folder with --to"
    )
    record_study(study, tmp_path / "mine")
    require_own_folder(tmp_path / "mine")
    require_own_folder(tmp_path / "none")


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
        with pytest.raises(InputError) as caught:
            find_result(tmp_path, cell, 0, 0)
        assert caught.value.message.startswith(
            f"{path}: holds the result of '{other.name}', fold 0, seed 0 (key "
        )
        assert caught.value.message.endswith(
            f"…), not of '{cell.name}', fold 0, seed 0; remove the file, and `fne study run` computes it again"
        )
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
