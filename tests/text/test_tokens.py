import numpy as np
import pytest

from fne.store.arrays import write_arrays
from fne.text.tokens import read_tokens, write_tokens
from tests.support.refusals import refused


def test_captions_of_different_lengths_are_read_back_by_id_and_a_missing_one_is_named(tmp_path):
    write_tokens(tmp_path / "t.h5", {"a#0": [3, 1, 2], "a#1": [], "b#0": [7]}, {}, {})
    tokens = read_tokens(tmp_path / "t.h5")
    assert [tokens.read(each).tolist() for each in ("b#0", "a#1", "a#0")] == [[7], [], [3, 1, 2]]
    with refused("lacks caption 'c#0'; run `dvc repro tokenize`"):
        tokens.check_ids(["a#0", "c#0"])
    write_tokens(tmp_path / "none.h5", {}, {}, {})
    assert read_tokens(tmp_path / "none.h5").ids == []


@pytest.mark.parametrize(
    ("arrays", "settings", "fault"),
    [
        ({"offsets": np.array([0, 2])}, {"words": 9}, "its captions do not fit its words"),
        ({"offsets": np.array([0, 3, 2])}, {"words": 9}, "its captions do not fit its words"),
        ({"words": np.array([1, 9])}, {"words": 9}, "has words beyond the 9 of its vocabulary"),
        ({"words": np.array([-1, 1])}, {"words": 9}, "has words beyond the 9 of its vocabulary"),
        ({}, {"words": "9"}, "has words beyond the 9 of its vocabulary"),
    ],
)
def test_tokens_that_no_stage_writes_are_one_line(tmp_path, arrays, settings, fault):
    path = tmp_path / "tokens.h5"
    intact = {"ids": ["a#0", "b#0"], "offsets": np.array([0, 1, 2]), "words": np.array([1, 2])}
    write_arrays(path, "tokens", intact | arrays, settings, {})
    with refused(f"{path}: {fault}; run `fne verify {path}`"):
        read_tokens(path)
