from dataclasses import replace

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.describing.data import spread_evenly
from fne.describing.model import row_moments
from fne.store.catalog import Captioned, read_captions, write_captions
from fne.store.rows import Rows
from fne.text.caption_vocabulary import END, UNKNOWN
from fne.training.row_source import StoreRows
from tests.support.captions import CAPTIONS, EMBEDDINGS, inputs, write_world


def test_captions_become_numbers_that_end(read):
    sequences = read.training.sequences[0]
    assert [read.vocabulary.words.decode(each) for each in sequences] == read.training.references[
        read.training.ids[0]
    ]
    assert {each[-1] for each in sequences} == {END}


def test_rare_words_are_left_out(world):
    frequent = inputs(world, min_count=40)
    assert frequent.vocabulary.words.words == ["a", "is", "it", "there"]


def test_words_that_are_left_out_are_unknown(world):
    few = inputs(world, max_words=3)
    assert len(few.vocabulary.words.words) == 3
    assert any(UNKNOWN in each for own in few.training.sequences for each in own)


def test_an_image_has_the_concepts_of_any_of_its_captions(read):
    names = np.array(read.vocabulary.concepts.names)
    for labels, references in zip(read.training.labels, read.training.references.values(), strict=True):
        assert set(names[labels]) == {word for each in references for word in each.split()}


def test_concepts_may_be_the_tags_of_the_data_set(world):
    read = inputs(world, concepts="tags")
    assert sorted(read.vocabulary.concepts.names) == [
        "blue",
        "circle",
        "gray",
        "green",
        "red",
        "ring",
        "square",
        "star",
    ]
    assert read.training.labels.sum(axis=1).tolist() == [2] * 48


def test_an_epoch_has_every_caption_once_in_an_order_of_its_own(read):
    def order(seed, epoch):
        batches = read.training.batches(seed, epoch, 10, "all")
        assert len(batches) == read.training.steps(10, "all") == 10
        return [(int(i), int(c)) for each in batches for i, c in zip(each.images, each.numbers, strict=True)]

    assert sorted(order(0, 0)) == [(image, caption) for image in range(48) for caption in (0, 1)]
    assert order(0, 0) == order(0, 0)
    assert len({tuple(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_one_caption_of_each_image_is_drawn_per_epoch(read):
    batches = [read.training.batches(0, epoch, 100, "one") for epoch in (0, 1)]
    (first,), (second,) = batches
    assert sorted(first.images) == sorted(second.images) == list(range(48))
    assert read.training.steps(100, "one") == 1
    assert not np.array_equal(
        first.numbers[np.argsort(first.images)], second.numbers[np.argsort(second.images)]
    )


def test_a_batch_names_some_of_its_images(read):
    (batch,) = read.training.batches(0, 0, 100, "one")
    assert str(batch).endswith(", and 43 more")


def test_moments_are_those_of_the_training_rows(world):
    rows = Rows.open(world / EMBEDDINGS)
    mean, deviation = row_moments(StoreRows(rows), rows.ids[:9])
    values = rows.read(rows.ids[:9]).astype(np.float64)
    np.testing.assert_allclose(mean.numpy(), values.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(deviation.numpy(), values.std(axis=0), rtol=1e-6)


def test_long_captions_are_cut_and_counted(world):
    short = inputs(world, max_length=3)
    assert short.notes[1] == "48 of 96 training captions are cut after 3 words"


def test_too_few_captions_for_the_words_give_a_warning_before_training(tmp_path):
    write_world(tmp_path)
    assert not any("Warning" in each for each in inputs(tmp_path).notes)
    captioned, _ = read_captions(tmp_path / CAPTIONS)
    own = [replace(each, captions=(*each.captions, f"{each.split} {each.id}")) for each in captioned]
    write_captions(tmp_path / CAPTIONS, own)
    assert inputs(tmp_path).notes[1] == (
        "Warning: 48 training images are few for a captioner: 2.4 captions per word, less than 3; expect captions "
        "no better than those of similar images. The figures of docs/tags-and-captions.md come from 6,000 training images "
        "with 30,000 captions, 8.6 per word"
    )


def test_captions_that_are_all_too_long_are_refused(world):
    with pytest.raises(InputError) as error:
        inputs(world, max_length=2)
    assert error.value.message == (
        f"{world / CAPTIONS}: all 96 training captions have more than 2 words; raise train_captioner.max_length"
    )


@pytest.mark.parametrize(
    ("split", "kept", "message"),
    [
        ("train", 1, "the catalog has 1 captioned images in split 'train'; training of a captioner needs at least 2"),
        (
            "val", 1,
            "the catalog has 1 captioned images in split 'val'; choosing the best epoch of a captioner "
            "needs at least 2",
        ),
    ],
)  # fmt: skip
def test_a_split_that_is_too_small_is_refused(tmp_path, split, kept, message):
    write_world(tmp_path)
    captioned, _ = read_captions(tmp_path / CAPTIONS)
    own = [record for record in captioned if record.split == split]
    changed = [record for record in captioned if record not in own[kept:]]
    changed += [Captioned(each.id, "gallery", (), ()) for each in own[kept:]]
    write_captions(tmp_path / CAPTIONS, changed)
    with pytest.raises(InputError) as error:
        inputs(tmp_path)
    assert error.value.message == f"{message}; see `catalog` in params.yaml"


def test_validated_images_are_spread_evenly_and_0_means_all():
    assert spread_evenly(9, 3) == [0, 4, 8]
    assert spread_evenly(4, 0) == spread_evenly(4, 9) == [0, 1, 2, 3]
    assert spread_evenly(0, 5) == []
