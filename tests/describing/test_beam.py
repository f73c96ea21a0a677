import itertools
import math

import pytest
import torch

from fne.core.errors import InputError
from fne.describing.beam import Hypothesis, search
from fne.describing.decoder import INJECTIONS, Decoder
from fne.describing.recurrent_cells import CELLS

END, UNKNOWN = 0, 1
FAMILY = list(itertools.product(CELLS, INJECTIONS))


def drawn_decoder(seed, outputs, cell="lstm", inject="state", dtype=torch.float64):
    torch.manual_seed(seed)
    decoder = Decoder(outputs, 3, 4, 5, cell=cell, inject=inject).to(dtype)
    for parameter in decoder.parameters():
        torch.nn.init.uniform_(parameter, -1.5, 1.5)
    return decoder


def drawn_conditions(seed, images, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(images, 3, generator=generator, dtype=torch.float64).to(dtype)


class Chain:
    """Logits that depend on the last output only: rows of a table (outputs + 1, outputs), the last for START."""

    def __init__(self, table):
        self.table = torch.tensor(table, dtype=torch.float64)

    def begin(self, conditions):
        return self.table[-1].expand(len(conditions), -1), None

    def advance(self, state, words):
        return self.table[words], None

    def select(self, state, rows):
        return None


def log_probabilities(logits):
    """As the search has them: the normalizer includes outputs that are never written."""
    return logits[0].double() - torch.logsumexp(logits, dim=1).double()


def all_sequences(model, condition, max_length, never=()):
    """Every sequence with END within `max_length` steps, and every one of `max_length` words, with its score."""
    found = []

    def extend(words, total, logits, state):
        for output, value in enumerate(log_probabilities(logits).tolist()):
            if output in never:
                continue
            if output == END:
                found.append((total + value, words))
            elif len(words) + 1 == max_length:
                found.append((total + value, (*words, output)))
            else:
                extend((*words, output), total + value, *model.advance(state, torch.tensor([output])))

    extend((), 0.0, *model.begin(condition[None]))
    return sorted(found, key=lambda each: -each[0])


def plain_search(model, condition, beam, max_length, never=(), length_power=0.0, repeats=True):
    """The rules of beam search, one image and one hypothesis after the other."""
    logits, state = model.begin(condition[None])
    going = [{"words": (), "total": 0.0, "ended": False, "logits": logits, "state": state}]
    for _ in range(max_length):
        candidates = []
        for slot, hypothesis in enumerate(going):
            if hypothesis["ended"]:
                candidates.append((hypothesis, slot, -1, hypothesis["total"]))
                continue
            for output, value in enumerate(log_probabilities(hypothesis["logits"]).tolist()):
                forbidden = output in never or (not repeats and output in hypothesis["words"])
                if not forbidden and value > -math.inf:
                    candidates.append((hypothesis, slot, output, hypothesis["total"] + value))

        def score(candidate):
            hypothesis, _, output, total = candidate
            words = len(hypothesis["words"]) + (output > END)
            return total / (words + 1) ** length_power

        candidates.sort(key=lambda each: (-score(each), each[1], each[2]))
        chosen = []
        for hypothesis, _, output, total in candidates[:beam]:
            if output == -1:
                chosen.append(hypothesis)
            elif output == END:
                chosen.append({"words": hypothesis["words"], "total": total, "ended": True})
            else:
                logits, state = model.advance(hypothesis["state"], torch.tensor([output]))
                words = (*hypothesis["words"], output)
                going = {"words": words, "total": total, "ended": False}
                chosen.append(going | {"logits": logits, "state": state})
        going = chosen
        if all(hypothesis["ended"] for hypothesis in going):
            break
    return going


def agree(found, expected, length_power=0.0):
    assert [each.words for each in found] == [each["words"] for each in expected]
    assert [each.ended for each in found] == [each["ended"] for each in expected]
    assert [each.log_probability for each in found] == pytest.approx([each["total"] for each in expected])
    scores = [each["total"] / (len(each["words"]) + 1) ** length_power for each in expected]
    assert [each.score for each in found] == pytest.approx(scores)


@pytest.mark.parametrize(("cell", "inject"), FAMILY)
def test_a_wide_beam_is_exhaustive_search(cell, inject):
    for seed in range(3):
        decoder, conditions = drawn_decoder(seed, 5, cell, inject), drawn_conditions(seed, 1)
        expected = all_sequences(decoder, conditions[0], max_length=4)
        assert len(expected) == 341
        found = search(decoder, conditions, beam=341, max_length=4)[0]
        assert [each.words for each in found[:20]] == [words for _, words in expected[:20]]
        assert sorted(each.words for each in found) == sorted(words for _, words in expected)
        assert [each.log_probability for each in found] == pytest.approx([total for total, _ in expected])


@pytest.mark.parametrize("beam", [1, 3, 7])
@pytest.mark.parametrize("choices", [{}, {"length_power": 0.5}, {"length_power": 1.0}, {"repeats": False}])
def test_the_search_is_that_of_a_plain_loop(beam, choices):
    choices = {"never": [UNKNOWN], **choices}
    for seed in range(8):
        cell, inject = FAMILY[(5 * beam + seed) % len(FAMILY)]
        decoder, conditions = drawn_decoder(seed, 12, cell, inject), drawn_conditions(seed, 2)
        found = search(decoder, conditions, beam=beam, max_length=6, **choices)
        for image in range(2):
            expected = plain_search(decoder, conditions[image], beam, 6, **choices)
            agree(found[image], expected, choices.get("length_power", 0.0))


@pytest.mark.parametrize("beam", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("seed", range(25))
def test_ties_go_to_the_hypothesis_that_ranked_higher_then_to_the_lower_output(beam, seed):
    generator = torch.Generator().manual_seed(seed)
    chain = Chain(torch.randint(3, (10, 9), generator=generator).tolist())
    found = search(chain, torch.zeros(2, 1), beam=beam, max_length=5, never=[UNKNOWN])
    expected = plain_search(chain, torch.zeros(1), beam, 5, never=[UNKNOWN])
    for image in range(2):
        agree(found[image], expected)


def test_equal_outputs_are_taken_by_their_numbers():
    chain = Chain([[0.0] * 40] * 41)
    found = search(chain, torch.zeros(1, 1), beam=3, max_length=2, never=[UNKNOWN])[0]
    assert [each.words for each in found] == [(), (2,), (2, 2)]
    agree(found, plain_search(chain, torch.zeros(1), 3, 2, never=[UNKNOWN]))


def test_an_image_gets_the_same_captions_alone_and_in_a_batch():
    decoder = drawn_decoder(5, 30, dtype=torch.float32).prepared()
    conditions = drawn_conditions(5, 100, torch.float32)
    together = search(decoder, conditions, beam=3, max_length=8, never=[UNKNOWN])
    for block in (1, 7):
        found = search(decoder, conditions, beam=3, max_length=8, never=[UNKNOWN], block=block)
        for one, other in zip(found, together, strict=True):
            assert [each.words for each in one] == [each.words for each in other]
            expected = [each.log_probability for each in other]
            assert [each.log_probability for each in one] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("outputs", [4, 7, 12])
@pytest.mark.parametrize(("cell", "inject"), FAMILY)
def test_equal_words_tie_alone_and_in_a_batch(cell, inject, outputs, prepared):
    """Two words with the same weights: the lower number wins everywhere, whatever the sizes and the neighbors."""
    half = (outputs - 1) // 2
    for seed in range(3):
        decoder = drawn_decoder(seed, outputs, cell, inject, torch.float32)
        with torch.no_grad():
            for weights in (decoder.output.weight, decoder.output.bias, decoder.words):
                weights[1 + half : 1 + 2 * half] = weights[1 : 1 + half].clone()
        decoder = decoder.prepared() if prepared else decoder
        conditions = drawn_conditions(seed, 12, torch.float32)
        together = search(decoder, conditions, beam=3, max_length=5)
        for image, found in enumerate(together):
            assert search(decoder, conditions[image : image + 1], beam=3, max_length=5) == [found]
            assert all(word <= half or word == 1 + 2 * half for word in found[0].words)


def test_a_vocabulary_of_one_word_and_of_none_can_be_searched():
    one = search(Chain([[0.0, 1.0]] * 3), torch.zeros(1, 1), beam=5, max_length=2)[0]
    assert [each.words for each in one] == [(1, 1), (), (1,)]
    assert sum(math.exp(each.log_probability) for each in one) == pytest.approx(1)
    none = search(Chain([[0.0]] * 2), torch.zeros(1, 1), beam=3, max_length=4)[0]
    assert none == [Hypothesis((), 0.0, 0.0, True)]


def test_no_images_give_no_captions():
    assert search(drawn_decoder(0, 5), torch.zeros(0, 3, dtype=torch.float64), beam=2, max_length=3) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam": 0}, "beam is 0; it must be at least 1"),
        ({"max_length": 0}, "max_length is 0"),
        ({"block": -1}, "block is -1"),
        ({"never": [END, UNKNOWN]}, "output 0 ends a sequence"),
    ],
)
def test_settings_without_sense_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        search(Chain([[0.0, 0.0]] * 3), torch.zeros(1, 1), **({"beam": 1, "max_length": 2} | settings))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_scores_that_are_not_numbers_are_an_error_with_the_image(bad):
    class Broken(Chain):
        def begin(self, conditions):
            return torch.where(conditions > 0, bad, 0.0).expand(-1, 2), None

    conditions = torch.tensor([[0.0]] * 5 + [[1.0]])
    with pytest.raises(InputError, match="the scores of output 1 of image 5 are not numbers"):
        search(Broken([[0.0, 0.0]] * 3), conditions, beam=2, max_length=3, block=2)


def test_an_image_without_any_output_left_is_an_error():
    chain = Chain([[-math.inf, 0.0]] * 3)
    with pytest.raises(InputError, match="image 0 has no output 2 that may be written"):
        search(chain, torch.zeros(1, 1), beam=2, max_length=3, repeats=False)
