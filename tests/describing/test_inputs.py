from dataclasses import replace

import numpy as np
import pytest

from fne.core.errors import InputError
from tests.support.tagging import inputs, scenes, settings, write_world

WORLD = scenes(40)


def opened(folder, records, **changes):
    write_world(folder, records)
    return inputs(folder, settings(**changes))


def changed(split=None, **fields):
    """The world with other fields in a split, or everywhere."""
    return [replace(each, **fields) if split in (None, each.split) else each for each in WORLD]


def test_sequences_are_the_tags_of_an_image_rare_first_and_end(tmp_path):
    found = opened(tmp_path, WORLD)
    training = found.training
    for (sequence,), labels in zip(training.sequences, training.labels, strict=True):
        assert sequence[-1] == 0
        numbers = [number - 1 for number in sequence[:-1]]
        assert sorted(numbers) == np.flatnonzero(labels).tolist()
        concepts = found.vocabulary.concepts
        keys = [(concepts.counts[number], concepts.names[number]) for number in numbers]
        assert keys == sorted(keys)


def test_frequent_tags_can_come_first(tmp_path):
    found = opened(tmp_path, WORLD, order="frequent_first")
    counts = np.array(found.vocabulary.concepts.counts)
    for (sequence,) in found.training.sequences:
        assert (np.diff(counts[np.array(sequence[:-1], int) - 1]) <= 0).all()


def test_an_image_without_tags_teaches_to_write_none(tmp_path):
    records = [replace(WORLD[0], split="train", tags=()), *WORLD[1:]]
    training = opened(tmp_path, records).training
    assert training.sequences[training.ids.index(WORLD[0].id)] == [[0]]


def test_with_words_only_images_with_captions_count(tmp_path):
    silent = [replace(record, captions=()) if number % 2 else record for number, record in enumerate(WORLD)]
    found = opened(tmp_path, silent, concepts="words", words__count=5)
    assert set(found.training.ids) == {r.id for r in silent if r.captions and r.split == "train"}
    assert found.vocabulary.concepts.names[0] == "purple"
    assert len(found.vocabulary.concepts.names) == 5


def test_a_data_set_without_captions_is_tagged_by_its_tags(tmp_path):
    found = opened(tmp_path, changed(captions=()))
    assert len(found.training) == sum(record.split == "train" for record in WORLD)


@pytest.mark.parametrize(
    ("records", "changes", "message"),
    [
        (changed(tags=()), {}, "captions.jsonl: concepts: no training image has tags; .* train_tagger.concepts to words"),
        ([each for each in WORLD if each.split != "val"], {}, "no images to tag in split 'val'; .* see `catalog` in params"),
        (changed("val", tags=("unseen",)), {}, "captions.jsonl: no image of split 'val' has any of the 21 concepts"),
        (changed(user_tags=()), {"user_tags": "user"}, "no training image has user tags; .*train_tagger.user_tags=none"),
        (WORLD, {"tags__min_images": 1000}, "captions.jsonl: concepts: no tag has 1000 training images"),
    ],
)  # fmt: skip
def test_what_a_tagger_cannot_learn_from_is_refused(tmp_path, records, changes, message):
    with pytest.raises(InputError, match=message):
        opened(tmp_path, records, **changes)


def test_the_most_frequent_user_tags_of_training_images_are_read(tmp_path):
    found = opened(tmp_path, WORLD, user_tags="user", user__count=2)
    counts = {}
    for record in WORLD:
        for tag in record.user_tags if record.split == "train" else ():
            counts[tag] = counts.get(tag, 0) + 1
    assert found.vocabulary.user_tags == sorted(counts, key=lambda tag: (-counts[tag], tag))[:2]
    first = next(record for record in WORLD if record.id == found.validation.ids[0])
    expected = [tag in first.user_tags for tag in found.vocabulary.user_tags]
    assert found.validation.user_tags[0].tolist() == expected
    assert opened(tmp_path, WORLD).training.user_tags is None


def test_tags_of_too_few_images_are_left_out_and_counted(tmp_path):
    found = opened(tmp_path, WORLD, tags__min_images=6)
    assert len(found.vocabulary.concepts.names) < 22
    assert found.notes[-1].endswith("tags of fewer training images than min_images are left out")


def test_a_tag_that_all_images_have_is_learned_with_a_warning(tmp_path):
    found = opened(tmp_path, [replace(record, tags=(*record.tags, "picture")) for record in WORLD])
    assert "every training image has 'picture', which cannot tell images apart" in found.notes
