from dataclasses import replace

import numpy as np
import pytest
import torch

from fne.describing import write
from fne.describing.run import start_describing_model
from fne.describing.settings import Writing
from fne.describing.write import Writer, caption_search, written_mask
from fne.store.rows import Rows
from fne.training.row_source import StoreRows
from tests.support import tagging
from tests.support.captions import EMBEDDINGS, settings


def drawn_captioner(read, tmp_path, inject):
    made = start_describing_model(settings(tmp_path, inject=inject), read).eval()
    generator = torch.Generator().manual_seed(0)
    for weight in (made.decoder.output.weight, made.concept_head.concepts.weight):
        torch.nn.init.uniform_(weight, -3, 3, generator)
    return made


@pytest.fixture
def captioner(read, tmp_path):
    return drawn_captioner(read, tmp_path, "state")


def written(captioner, read, world, ids, **choices):
    rows = Rows.open(world / EMBEDDINGS)
    top = choices.pop("top", 10)
    how = caption_search(Writing(**{"beam": 3, "max_length": 8} | choices))
    return Writer(captioner, read.vocabulary).caption_store(StoreRows(rows), ids, how, top)


def test_a_caption_does_not_depend_on_the_other_images(captioner, read, world):
    ids = read.training.ids
    together = written(captioner, read, world, ids)
    alone = [written(captioner, read, world, [each])[0] for each in ids]
    assert together == alone
    assert len({each.caption for each in together}) > 5


def test_drawn_captions_depend_on_the_seed_and_not_on_the_other_images(captioner, read, world):
    ids = read.training.ids
    together, other = (
        written(captioner, read, world, ids, words="sampled", sampled={"seed": seed}) for seed in (0, 1)
    )
    assert together == [
        written(captioner, read, world, [each], words="sampled", sampled={"seed": 0})[0] for each in ids
    ]
    assert together != other
    assert all(
        list(each.sentences) == sorted(each.sentences, key=lambda one: -one.score) for each in together
    )


def test_scores_with_the_default_injection_do_not_depend_on_the_other_images(read, world, tmp_path):
    captioner, ids = drawn_captioner(read, tmp_path, "every"), read.training.ids
    together = written(captioner, read, world, ids)
    assert together == [written(captioner, read, world, [each])[0] for each in ids]
    assert len({each.sentences[0].score for each in together}) > 5


def test_an_image_with_several_views_is_described_by_their_mean(captioner, read, world):
    rows = Rows.open(world / EMBEDDINGS)
    one = rows.read(rows.ids[:5]).astype(np.float32)
    several = np.concatenate([one + 1, one - 1, one], axis=1).astype(np.float16)
    how, writer = caption_search(Writing(beam=3, max_length=8)), Writer(captioner, read.vocabulary)
    mean = several.astype(np.float32).reshape(5, 3, -1).mean(axis=1)
    assert writer.caption(rows.ids[:5], several, how, 4) == writer.caption(rows.ids[:5], mean, how, 4)


def test_the_beam_is_sorted_and_has_no_unknown_words(captioner, read, world):
    for each in written(captioner, read, world, read.training.ids, beam=5):
        scores = [sentence.score for sentence in each.sentences]
        assert scores == sorted(scores, reverse=True)
        assert len({sentence.text for sentence in each.sentences}) == len(scores) == 5
        assert all(
            word in read.vocabulary.words.numbers
            for sentence in each.sentences
            for word in sentence.text.split()
        )


def test_the_likeliest_concepts_come_first(captioner, read, world):
    each = written(captioner, read, world, read.training.ids[:1], top=4)[0]
    values = list(each.concepts.values())
    assert len(values) == 4
    assert values == sorted(values, reverse=True)


def test_a_captioner_without_a_concept_head_names_no_concepts(read, world, tmp_path):
    made = start_describing_model(
        settings(tmp_path, condition="embedding", concept_loss="none", learns="jointly"), read
    ).eval()
    rows = np.zeros((2, 8), dtype=np.float64)
    found = Writer(made, read.vocabulary).caption(
        ["a", "b"], rows, caption_search(Writing(beam=1, max_length=3)), top=10
    )
    assert [each.concepts for each in found] == [{}, {}]


@pytest.fixture
def tag_world(tmp_path):
    tagging.write_world(tmp_path, tagging.scenes(40))
    return tmp_path


def tag_writer(folder, scratch=None, digest="model", **changes):
    chosen = tagging.settings(user_tags="user", **changes)
    read = tagging.inputs(folder, chosen)
    made = start_describing_model(chosen, read).eval()
    for weight in (made.decoder.output.weight, made.concept_head.concepts.weight):
        torch.nn.init.uniform_(weight, -3, 3, torch.Generator().manual_seed(0))
    return Writer(made, read.vocabulary, digest, scratch)


def same(found, expected):
    return found.written == expected.written and np.array_equal(found.probabilities, expected.probabilities)


def test_tags_do_not_depend_on_the_other_images(tag_world):
    writer, records = tag_writer(tag_world), tagging.scenes(40)
    store = Rows.open(tag_world / tagging.EMBEDDINGS)
    together = writer.tag_store(StoreRows(store), records)
    alone = [writer.tag_store(StoreRows(store), [each]) for each in records]
    assert together.written == [each.written[0] for each in alone]
    assert np.array_equal(together.probabilities, np.concatenate([each.probabilities for each in alone]))
    assert len({tuple(each) for each in together.written}) > 5


def refuse(monkeypatch):
    def write_block(*arguments, **options):
        raise AssertionError("it writes again")

    monkeypatch.setattr(write, "write_block", write_block)


def damage(folder):
    [file] = (folder / "written").iterdir()
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)


def test_captions_that_were_written_are_kept(captioner, read, world, tmp_path, monkeypatch):
    rows, ids = Rows.open(world / EMBEDDINGS), read.training.ids

    def captions(digest="model", beam=3):
        how = caption_search(Writing(beam=beam, max_length=8))
        return Writer(captioner, read.vocabulary, digest, tmp_path).caption_store(
            StoreRows(rows), ids, how, top=4
        )

    expected = captions()
    with monkeypatch.context() as patched:
        refuse(patched)
        assert captions() == expected
        for changes in ({"digest": "another"}, {"beam": 2}):
            with pytest.raises(AssertionError, match="it writes again"):
                captions(**changes)
    damage(tmp_path)
    assert captions() == expected


def test_tags_that_were_written_are_kept(tag_world, tmp_path, monkeypatch):
    store, records = Rows.open(tag_world / tagging.EMBEDDINGS), tagging.scenes(40)
    expected = tag_writer(tag_world, tmp_path).tag_store(StoreRows(store), records)
    without = [replace(each, user_tags=()) for each in records]
    with monkeypatch.context() as patched:
        refuse(patched)
        assert same(tag_writer(tag_world, tmp_path).tag_store(StoreRows(store), records), expected)
        for own in (records[1:], without):
            with pytest.raises(AssertionError, match="it writes again"):
                tag_writer(tag_world, tmp_path).tag_store(StoreRows(store), own)
    damage(tmp_path)
    assert same(tag_writer(tag_world, tmp_path).tag_store(StoreRows(store), records), expected)


def test_a_tagger_without_a_decoder_keeps_what_it_sees(tag_world, tmp_path):
    chosen = tagging.settings(learns="concept_head")
    read = tagging.inputs(tag_world, chosen)
    writer = Writer(start_describing_model(chosen, read).eval(), read.vocabulary, "model", tmp_path)
    store, records = Rows.open(tag_world / tagging.EMBEDDINGS), tagging.scenes(40)
    first, again = (writer.tag_store(StoreRows(store), records) for _ in range(2))
    assert first.written is None
    assert same(again, first)


def test_another_version_of_the_writer_writes_again(tag_world, tmp_path, monkeypatch):
    store, records = Rows.open(tag_world / tagging.EMBEDDINGS), tagging.scenes(40)
    tag_writer(tag_world, tmp_path).tag_store(StoreRows(store), records)
    monkeypatch.setattr(write, "WRITER_VERSION", 0)
    refuse(monkeypatch)
    with pytest.raises(AssertionError, match="it writes again"):
        tag_writer(tag_world, tmp_path).tag_store(StoreRows(store), records)


def test_written_numbers_become_a_mask():
    assert written_mask([[2, 0], []], 3).tolist() == [[True, False, True], [False, False, False]]
