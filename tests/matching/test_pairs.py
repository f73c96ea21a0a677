import pytest
import torch

from fne.core.errors import InputError
from fne.matching.pairs import DRAWS, Batch, Pairs, require_images
from fne.store.catalog import Captioned


def test_every_image_comes_once_an_epoch_with_one_of_its_own_captions(pairs):
    batches = pairs.batches(seed=0, epoch=3, batch=4, captions="one")
    images = [each for batch in batches for each in batch.image_ids]
    captions = [each for batch in batches for each in batch.caption_ids]
    assert sorted(images) == sorted(record.id for record in pairs.captioned)
    assert [caption.split("#")[0] for caption in captions] == images
    assert [len(batch.image_ids) for batch in batches] == [4, 4, 2]
    assert pairs.drawn("one") == 10


def test_every_caption_comes_once_an_epoch_with_its_image(pairs):
    batches = pairs.batches(seed=0, epoch=3, batch=4, captions="all")
    captions = [each for batch in batches for each in batch.caption_ids]
    assert sorted(captions) == sorted(each for record in pairs.captioned for each in record.caption_ids)
    assert [each.split("#")[0] for each in captions] == [
        each for batch in batches for each in batch.image_ids
    ]
    assert pairs.drawn("all") == len(captions) == 19


@pytest.mark.parametrize("captions", DRAWS)
def test_the_order_is_a_matter_of_seed_and_epoch_alone(pairs, captions):
    def order(seed, epoch):
        return pairs.batches(seed, epoch, batch=4, captions=captions)

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)


def test_all_captions_of_an_image_are_drawn_sooner_or_later(pairs):
    batches = [batch for epoch in range(40) for batch in pairs.batches(0, epoch, 4, "one")]
    drawn = {caption for batch in batches for caption in batch.caption_ids}
    assert drawn == {each for record in pairs.captioned for each in record.caption_ids}


@pytest.mark.parametrize(("batch", "sizes"), [(3, [3, 3, 4]), (9, [10]), (5, [5, 5]), (64, [10])])
def test_a_last_batch_of_one_joins_the_one_before(pairs, batch, sizes):
    assert [len(each.image_ids) for each in pairs.batches(0, 0, batch, "one")] == sizes


def test_captions_of_one_image_are_no_contrasts_for_each_other():
    batch = Batch(["b", "a", "b"], ["b#0", "a#0", "b#1"])
    assert batch.positives().tolist() == [[True, False, True], [False, True, False], [True, False, True]]


def test_captions_are_padded_to_the_longest(pairs):
    words, lengths = pairs.captions(["2.png#2", "0.png#0"])
    assert words.tolist() == [[0, 0, 4, 1], [2, 1, 0, 0]]
    assert lengths.tolist() == [4, 2]


def test_images_come_as_floats(pairs):
    rows = pairs.images(["3.png", "4.png"])
    assert (rows.dtype, tuple(rows.shape)) == (torch.float32, (2, 16))


def test_a_caption_without_an_image_row_is_refused_before_the_first_step(pairs):
    stranger = Captioned("x.png", "train", ("x",), ())
    with pytest.raises(InputError, match="has no row for 1 of 11 ids, the first is 'x.png'"):
        Pairs([*pairs.captioned, stranger], pairs._embeddings, pairs._tokens)


def test_too_few_images_are_refused_by_split(pairs):
    one = Pairs(pairs.captioned[:1], pairs._embeddings, pairs._tokens)
    with pytest.raises(InputError) as caught:
        require_images(one, "train", least=2, purpose="training")
    assert caught.value.message == (
        "the catalog has 1 captioned images in split 'train'; training needs at least 2; "
        "see `catalog` in params.yaml"
    )
