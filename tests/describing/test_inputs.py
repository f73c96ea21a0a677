from dataclasses import replace

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.describing.data import SequenceBatch
from fne.store.catalog import Captioned
from fne.training import row_source
from tests.support.tagging import CAPTIONS, inputs, scenes, settings, write_world

WORLD = scenes(40)


def opened(folder, records, **changes):
    write_world(folder, records)
    return inputs(folder, settings(**changes))


def message(folder, records, **changes):
    with pytest.raises(InputError) as caught:
        opened(folder, records, **changes)
    return caught.value.message.replace(str(folder / CAPTIONS), "CATALOG")


def test_sequences_are_the_tags_of_an_image_rare_first_and_end(tmp_path):
    found = opened(tmp_path, WORLD)
    training = found.training
    for (sequence,), labels in zip(training.sequences, training.labels, strict=True):
        assert sequence[-1] == 0
        numbers = [number - 1 for number in sequence[:-1]]
        assert sorted(numbers) == np.flatnonzero(labels).tolist()
        keys = [
            (found.vocabulary.concepts.counts[number], found.vocabulary.concepts.names[number])
            for number in numbers
        ]
        assert keys == sorted(keys)


def test_frequent_tags_can_come_first(tmp_path):
    rare = [each for (each,) in opened(tmp_path, WORLD).training.sequences]
    assert [
        each[-2::-1] for (each,) in opened(tmp_path, WORLD, order="frequent_first").training.sequences
    ] != rare


def test_an_image_without_tags_teaches_to_write_none(tmp_path):
    records = [replace(WORLD[0], split="train", tags=()), *WORLD[1:]]
    training = opened(tmp_path, records).training
    assert training.sequences[training.ids.index(WORLD[0].id)] == [[0]]


def test_with_words_only_images_with_captions_count(tmp_path):
    silent = [replace(record, captions=()) if number % 2 else record for number, record in enumerate(WORLD)]
    found = opened(tmp_path, silent, concepts="words", concept_sources__words__count=5)
    assert set(found.training.ids) == {r.id for r in silent if r.captions and r.split == "train"}
    assert found.vocabulary.concepts.names[0] == "purple"
    assert len(found.vocabulary.concepts.names) == 5


def test_a_data_set_without_captions_is_tagged_by_its_tags(tmp_path):
    found = opened(tmp_path, [replace(record, captions=()) for record in WORLD])
    assert len(found.training) == sum(record.split == "train" for record in WORLD)


def test_a_data_set_without_tags_is_refused(tmp_path):
    assert message(tmp_path, [replace(record, tags=()) for record in WORLD]) == (
        "CATALOG: concepts: no training image has tags; tagging needs them (COCO's instances_*.json or a `tags` "
        "column), or set train_tagger.concepts to words (for a captioner: train_captioner.concepts)"
    )


def test_a_split_without_images_is_refused(tmp_path):
    assert message(tmp_path, [record for record in WORLD if record.split != "val"]) == (
        "the catalog has no images to tag in split 'val'; choosing the best epoch of a tagger needs them; "
        "see `catalog` in params.yaml"
    )


def test_validation_images_without_any_concept_are_refused(tmp_path):
    records = [replace(record, tags=("unseen",)) if record.split == "val" else record for record in WORLD]
    assert message(tmp_path, records) == (
        "CATALOG: no image of split 'val' has any of the 21 concepts, which choosing the best epoch needs; "
        "see `catalog` in params.yaml"
    )


def test_user_tags_that_are_nowhere_are_refused(tmp_path):
    assert message(tmp_path, [replace(record, user_tags=()) for record in WORLD], user_tags="user") == (
        "CATALOG: train_tagger.user_tags is 'user', but no training image has user tags; add a column `user_tags` to the "
        "table of the data set, or use -S pipelines/tagging/params.yaml:train_tagger.user_tags=none"
    )


def test_the_most_frequent_user_tags_of_training_images_are_read(tmp_path):
    found = opened(tmp_path, WORLD, user_tags="user", user_tag_readers__user__count=2)
    counts = {}
    for record in WORLD:
        for tag in record.user_tags if record.split == "train" else ():
            counts[tag] = counts.get(tag, 0) + 1
    assert found.vocabulary.user_tags == sorted(counts, key=lambda tag: (-counts[tag], tag))[:2]
    first = next(record for record in WORLD if record.id == found.validation.ids[0])
    assert found.validation.user_tags[0].tolist() == [
        tag in first.user_tags for tag in found.vocabulary.user_tags
    ]
    assert opened(tmp_path, WORLD).training.user_tags is None


def test_tags_of_too_few_images_are_left_out_and_counted(tmp_path):
    found = opened(tmp_path, WORLD, concept_sources__tags__min_images=6)
    assert len(found.vocabulary.concepts.names) < 22
    assert found.notes[-1].endswith("tags of fewer training images than min_images are left out")
    assert message(tmp_path, WORLD, concept_sources__tags__min_images=1000).startswith(
        "CATALOG: concepts: no tag has 1000 training images"
    )


def test_a_tag_that_all_images_have_is_learned_with_a_warning(tmp_path):
    found = opened(tmp_path, [replace(record, tags=(*record.tags, "picture")) for record in WORLD])
    assert "every training image has 'picture', which cannot tell images apart" in found.notes


def test_rows_are_standardized_by_the_training_images(tmp_path):
    found = opened(tmp_path, WORLD)
    rows = found.training.images(range(len(found.training))).numpy().astype(np.float64)
    np.testing.assert_allclose(found.moments[0], rows.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(found.moments[1], rows.std(axis=0), atol=1e-6)


def test_batches_depend_on_seed_and_epoch_alone_and_name_their_images(tmp_path):
    training = opened(tmp_path, WORLD).training
    first, again, other = (training.batches(*key, batch=7) for key in ((0, 0), (0, 0), (0, 1)))
    assert all(np.array_equal(a.images, b.images) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0].images, other[0].images)
    assert sorted(np.concatenate([each.images for each in first])) == list(range(len(training)))
    assert len(first) == training.steps(7)
    assert (
        str(SequenceBatch(np.array([1, 0]), np.zeros(2, int), training))
        == f"images {training.ids[1]}, {training.ids[0]}"
    )


def test_a_tag_can_have_any_text(tmp_path):
    strange = ("<script>alert(1)</script>", "END", "a,b;c\nd", "\U0001f600" * 200, "<unk>")
    found = opened(tmp_path, [*WORLD, Captioned("x.jpg", "train", (), strange)])
    assert set(strange) <= set(found.vocabulary.concepts.names)


def test_rows_are_the_same_from_memory_and_from_the_store(tmp_path, monkeypatch):
    from_memory = opened(tmp_path, WORLD).training.images([3, 0, 3])
    monkeypatch.setattr(row_source, "IN_MEMORY", 0)
    from_store = opened(tmp_path, WORLD).training.images([3, 0, 3])
    assert from_memory.equal(from_store)
    assert from_memory.dtype == from_store.dtype
