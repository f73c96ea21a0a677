import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.matching.data import DRAWS, PairBatch, PairDraw, Pairs
from fne.store.catalog import Captioned
from fne.store.layout import Layer, view_layers
from fne.store.rows import Rows, write_rows
from fne.text.tokens import read_tokens
from fne.training.row_source import StoreRows
from tests.support.pairs import draw_batches


def test_every_image_comes_once_an_epoch_with_one_of_its_own_captions(pairs):
    batches = draw_batches(pairs, seed=0, epoch=3, batch=4, captions="one")
    images = [each for batch in batches for each in batch.image_ids]
    captions = [each for batch in batches for each in batch.caption_ids]
    assert sorted(images) == sorted(record.id for record in pairs.captioned)
    assert [caption.split("#")[0] for caption in captions] == images
    assert [len(batch.image_ids) for batch in batches] == [4, 4, 2]
    assert PairDraw(pairs.captioned, 0, 4, "one").sizes() == [4, 4, 2]


def test_every_caption_comes_once_an_epoch_with_its_image(pairs):
    batches = draw_batches(pairs, seed=0, epoch=3, batch=4, captions="all")
    captions = [each for batch in batches for each in batch.caption_ids]
    assert sorted(captions) == sorted(each for record in pairs.captioned for each in record.caption_ids)
    images = [each for batch in batches for each in batch.image_ids]
    assert [each.split("#")[0] for each in captions] == images
    assert sum(PairDraw(pairs.captioned, 0, 4, "all").sizes()) == len(captions) == 19


@pytest.mark.parametrize("captions", DRAWS)
def test_the_order_is_a_matter_of_seed_and_epoch_alone(pairs, captions):
    def order(seed, epoch):
        return draw_batches(pairs, seed, epoch, batch=4, captions=captions)

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)


def test_all_captions_of_an_image_are_drawn_sooner_or_later(pairs):
    batches = [batch for epoch in range(40) for batch in draw_batches(pairs, 0, epoch, 4, "one")]
    drawn = {caption for batch in batches for caption in batch.caption_ids}
    assert drawn == {each for record in pairs.captioned for each in record.caption_ids}


@pytest.mark.parametrize(
    ("last", "batch", "sizes"),
    [
        ("keep", 3, [3, 3, 4]),  # one joins the others
        ("keep", 9, [10]),
        ("keep", 5, [5, 5]),
        ("keep", 64, [10]),
        ("drop", 4, [4, 4]),
        ("drop", 5, [5, 5]),
        ("drop", 3, [3, 3, 3]),
        ("drop", 99, [10]),  # unless alone
    ],
)
def test_a_last_batch_is_never_of_one_image_and_an_incomplete_one_can_be_dropped(pairs, last, batch, sizes):
    found = draw_batches(pairs, 0, 0, batch, "one", last)
    assert [len(each) for each in found] == sizes
    assert found[0].image_ids[:3] == draw_batches(pairs, 0, 0, batch, "one")[0].image_ids[:3]


def test_captions_of_one_image_are_no_negatives_for_each_other_unless_asked_for():
    batch = PairBatch(["b", "a", "b"], ["b#0", "a#0", "b#1"])
    assert batch.positives().tolist() == [[True, False, True], [False, True, False], [True, False, True]]
    assert batch.positives("other_pairs").equal(torch.eye(3, dtype=torch.bool))
    assert (len(batch), str(batch)) == (3, "images b, a, b")


def test_captions_are_padded_to_the_longest(pairs):
    words, lengths = pairs.captions(["2.png#2", "0.png#0"])
    assert words.tolist() == [[0, 0, 4, 1], [2, 1, 0, 0]]
    assert lengths.tolist() == [4, 2]


def test_a_caption_without_an_image_row_is_refused_before_the_first_step(pairs):
    stranger = Captioned("x.png", "train", ("x",), ())
    with pytest.raises(InputError, match="has no row for 1 of 11 ids, the first is 'x.png'"):
        Pairs([*pairs.captioned, stranger], pairs.source, pairs._tokens)


@pytest.fixture
def with_views(pairs, tmp_path):
    """The same images, with three views of two features each."""
    rows = np.arange(60, dtype=np.float32).reshape(10, 6)
    shards = [(0, sorted(pairs.image_ids), rows)]
    write_rows(tmp_path / "views", "embeddings", view_layers([Layer("fc7", 2)], 3), "float32", shards, {}, {})
    rows = StoreRows(Rows.open(tmp_path / "views"))
    return Pairs(pairs.captioned, rows, read_tokens(tmp_path / "tokens.h5"))


def test_one_view_of_an_image_is_drawn_per_epoch_and_the_mean_is_encoded(with_views):
    assert with_views.source.read(["0.png", "1.png"]).tolist() == [[2, 3], [8, 9]]
    assert with_views.source.read(["1.png", "0.png"], [2, 0]).tolist() == [[10, 11], [0, 1]]
    drawn = {
        (image, view)
        for epoch in range(20)
        for batch in draw_batches(with_views, 0, epoch, 4, "one")
        for image, view in zip(batch.image_ids, batch.views, strict=True)
    }
    assert len(drawn) == 10 * 3
    again = [draw_batches(with_views, 0, 7, 4, "one") for _ in range(2)]
    assert again[0] == again[1] != draw_batches(with_views, 0, 8, 4, "one")


def test_views_change_neither_the_order_of_images_nor_their_captions(pairs, with_views):
    for captions in ("one", "all"):
        drawn = [draw_batches(each, 3, 5, 4, captions) for each in (pairs, with_views)]
        plain, viewed = ([(each.image_ids, each.caption_ids) for each in batches] for batches in drawn)
        assert plain == viewed
        assert all(each.views is None for each in drawn[0])


def test_a_part_of_a_batch_has_its_own_views():
    part = PairBatch(["a", "b", "c"], ["a#0", "b#0", "c#0"], [5, 6, 7]).part(slice(1, 3))
    assert part == PairBatch(["b", "c"], ["b#0", "c#0"], [6, 7])
