import numpy as np
import pytest
import torch

from fne.describing.captioning.train import start_captioner
from fne.describing.write import write_sentences, write_store
from fne.store.rows import Rows
from tests.support.captions import EMBEDDINGS, settings


def drawn_captioner(read, tmp_path, inject):
    made = start_captioner(settings(tmp_path, inject=inject), read).eval()
    generator = torch.Generator().manual_seed(0)
    for weight in (made.decoder.output.weight, made.recognizer.concepts.weight):
        torch.nn.init.uniform_(weight, -3, 3, generator)
    return made


@pytest.fixture
def captioner(read, tmp_path):
    return drawn_captioner(read, tmp_path, "state")


def written(captioner, read, world, ids, **choices):
    rows = Rows.open(world / EMBEDDINGS)
    usual = {"beam": 3, "max_length": 8}
    return list(write_store(captioner, read.words, read.concepts.names, rows, ids, **(usual | choices)))


def test_a_caption_does_not_depend_on_the_other_images(captioner, read, world):
    ids = read.training.ids
    together = written(captioner, read, world, ids)
    alone = [written(captioner, read, world, [each])[0] for each in ids]
    assert together == alone
    assert len({each.caption for each in together}) > 5


def test_scores_with_the_default_injection_do_not_depend_on_the_other_images(read, world, tmp_path):
    captioner, ids = drawn_captioner(read, tmp_path, "every"), read.training.ids
    together = written(captioner, read, world, ids)
    assert together == [written(captioner, read, world, [each])[0] for each in ids]
    assert len({each.sentences[0].score for each in together}) > 5


def test_the_beam_is_sorted_and_has_no_unknown_words(captioner, read, world):
    for each in written(captioner, read, world, read.training.ids, beam=5):
        scores = [sentence.score for sentence in each.sentences]
        assert scores == sorted(scores, reverse=True)
        assert len({sentence.text for sentence in each.sentences}) == len(scores) == 5
        assert all(
            word in read.words.numbers for sentence in each.sentences for word in sentence.text.split()
        )


def test_the_likeliest_concepts_come_first(captioner, read, world):
    each = written(captioner, read, world, read.training.ids[:1], top=4)[0]
    values = list(each.concepts.values())
    assert len(values) == 4
    assert values == sorted(values, reverse=True)


def test_a_captioner_without_a_recognizer_names_no_concepts(read, world, tmp_path):
    made = start_captioner(
        settings(tmp_path, condition="embedding", concept_loss="none", learns="joint"), read
    ).eval()
    rows = np.zeros((2, 8), dtype=np.float64)
    found = write_sentences(made, read.words, read.concepts.names, ["a", "b"], rows, beam=1, max_length=3)
    assert [each.concepts for each in found] == [{}, {}]
