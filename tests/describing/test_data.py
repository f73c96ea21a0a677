from dataclasses import replace

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.describing.model import row_moments
from fne.store.catalog import Captioned, read_captions, write_captions
from fne.store.rows import Rows
from fne.text.caption_vocabulary import END, UNKNOWN
from fne.training.row_source import StoreRows
from tests.support.captions import CAPTIONS, COLORS, EMBEDDINGS, SHAPES, inputs, write_world


def test_captions_become_numbers_that_end(read):
    sequences = read.training.sequences[0]
    references = read.training.references[read.training.ids[0]]
    assert [read.vocabulary.words.decode(each) for each in sequences] == references
    assert {each[-1] for each in sequences} == {END}


def test_rare_words_are_left_out_and_unknown(world):
    frequent = inputs(world, min_count=40)
    assert frequent.vocabulary.words.words == ["a", "is", "it", "there"]
    assert any(UNKNOWN in each for own in frequent.training.sequences for each in own)


def test_an_image_has_the_concepts_of_any_of_its_captions(read):
    names = np.array(read.vocabulary.concepts.names)
    for labels, references in zip(read.training.labels, read.training.references.values(), strict=True):
        assert set(names[labels]) == {word for each in references for word in each.split()}


def test_concepts_may_be_the_tags_of_the_data_set(world):
    read = inputs(world, concepts="tags")
    assert set(read.vocabulary.concepts.names) == {*COLORS, *SHAPES}
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
    drawn = [each.numbers[np.argsort(each.images)] for each in (first, second)]
    assert not np.array_equal(*drawn)


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
    few = "Warning: 48 training images are few for a captioner: 2.4 captions per word, less than 3"
    assert inputs(tmp_path).notes[1].startswith(few)


def test_captions_that_are_all_too_long_are_refused(world):
    with pytest.raises(InputError, match=r"captions.jsonl: all 96 .* raise train_captioner.max_length"):
        inputs(world, max_length=2)


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_split_that_is_too_small_is_refused(tmp_path, split):
    write_world(tmp_path)
    captioned, _ = read_captions(tmp_path / CAPTIONS)
    own = [record for record in captioned if record.split == split]
    changed = [record for record in captioned if record not in own[1:]]
    changed += [Captioned(each.id, "gallery", (), ()) for each in own[1:]]
    write_captions(tmp_path / CAPTIONS, changed)
    place = f"1 captioned images in split '{split}'"
    with pytest.raises(InputError, match=f"{place}; .* needs at least 2; see `catalog` in params.yaml"):
        inputs(tmp_path)
