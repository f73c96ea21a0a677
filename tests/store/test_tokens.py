import pytest

from fne.core.errors import InputError
from fne.store.tokens import read_tokens, write_tokens


def test_captions_of_different_lengths_come_back_by_id(tmp_path):
    write_tokens(tmp_path / "t.h5", {"a#0": [3, 1, 2], "a#1": [], "b#0": [7]}, {}, {})
    tokens = read_tokens(tmp_path / "t.h5")
    assert [tokens.read(each).tolist() for each in ("b#0", "a#1", "a#0")] == [[7], [], [3, 1, 2]]


def test_no_captions_are_no_fault(tmp_path):
    write_tokens(tmp_path / "t.h5", {}, {}, {})
    assert read_tokens(tmp_path / "t.h5").ids == []


def test_a_missing_caption_is_named(tmp_path):
    write_tokens(tmp_path / "t.h5", {"a#0": [1]}, {}, {})
    with pytest.raises(InputError, match=r"lacks caption 'b#0'; run `dvc repro tokenize`"):
        read_tokens(tmp_path / "t.h5").check_ids(["a#0", "b#0"])
