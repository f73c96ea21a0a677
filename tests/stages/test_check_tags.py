from dataclasses import replace
from pathlib import Path

import pytest

from fne.store.catalog import read_captions, write_captions
from tests.support.projects import change_params
from tests.support.stages import invoke, refusal


@pytest.mark.parametrize("what", ["tagging", "captioning"])
def test_a_split_with_nothing_to_score_is_refused_before_the_training(what, request):
    request.getfixturevalue(f"{what}_project")
    word = "tags" if what == "tagging" else "captions"
    assert "images to learn from, " in invoke(f"check_{word}").stdout
    captions = Path("data/captions.jsonl")
    records = read_captions(captions)[0]
    write_captions(
        captions, [replace(each, split="train") if each.split == "test" else each for each in records]
    )
    message = refusal(f"check_{word}")
    assert f"score_{word}.split is 'test', but " in message
    assert Path(f"checked/{word}.txt").is_file()
    change_params(Path(), {f"score_{word}": {"split": "val"}})
    assert invoke(f"check_{word}").exit_code == 0


def test_tags_that_are_needed_for_training_are_looked_for(tagging_project):
    captions = Path("data/captions.jsonl")
    write_captions(captions, [replace(each, tags=()) for each in read_captions(captions)[0]])
    assert "no training image has tags" in refusal("check_tags")
