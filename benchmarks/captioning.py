"""Captioning: beam search, a training step, and CIDEr-D.

Each benchmark checks first that the variants agree: the same captions, the same losses, the same scores.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.timing import Ratio, compare, print_table, ratio
from fne.describing.beam import search
from fne.describing.decoder import Decoder, pack
from fne.describing.losses import word_losses
from fne.evaluation.metrics.caption_metrics import cider_d
from fne.training.optimizers import OPTIMIZERS
from fne.training.task import ParameterGroup

WORDS, UNITS, CONDITION, BATCH = 2540, 512, 512, 128
END, UNKNOWN, MAX_LENGTH = 0, 1, 20
RATE = 1e-3

Captions = tuple[Tensor, Tensor, Tensor]  # conditions, padded targets, lengths


def beam_3() -> Ratio:
    """Write captions with a beam of 3, against NeuralTalk's loop over images and hypotheses."""
    return _measure_beam(3)


def beam_7() -> Ratio:
    """Write captions with a beam of 7, against NeuralTalk's loop over images and hypotheses."""
    return _measure_beam(7)


def caption_step(batch_size: int = BATCH, rounds: int = 10) -> Ratio:
    """Make training steps of a captioner, against packed nn.LSTM, padded cross entropy and default Adam."""
    generator = np.random.default_rng(0)
    batches = [_draw_captions(generator, batch_size) for _ in range(4)]
    usual, ours = "packed nn.LSTM, padded cross entropy, Adam", "ours"
    steps = {usual: _usual_step(_new_decoder()), ours: _our_step(_new_decoder())}
    for batch in batches[:2]:
        losses = [step(batch) for step in steps.values()]
        assert max(losses) - min(losses) < 1e-4 * max(losses), losses
    seconds = compare({name: _in_turn(step, batches) for name, step in steps.items()}, rounds)
    print_table(seconds, usual, "captions", batch_size)
    return ratio(seconds, ours, usual)


def cider(images: int = 1000, rounds: int = 7) -> Ratio:
    """Score 1,000 captions against five references each with CIDEr-D, against pycocoevalcap's scorer.

    Where pycocoevalcap is not installed, the opponent is the usual algorithm with dictionaries of n-grams,
    written for this benchmark. The table says which one it is.
    """
    generator = np.random.default_rng(0)
    names = [f"word{number}" for number in range(WORDS)]
    sentences = [" ".join(names[number] for number in _draw_words(generator)) for _ in range(6 * images)]
    candidates = {str(image): sentences[image] for image in range(images)}
    references = {str(image): sentences[images + 5 * image :][:5] for image in range(images)}
    name, theirs = _cider_opponent()
    expected = theirs(candidates, references)
    assert abs(cider_d(candidates, references).score - expected) < 1e-12
    seconds = compare(
        {
            name: lambda: theirs(candidates, references),
            "ours": lambda: cider_d(candidates, references),
        },
        rounds,
    )
    print_table(seconds, name, "images", images)
    return ratio(seconds, "ours", name)


def tiny(folder: Path) -> None:
    """Run all with little data."""
    for beam in (3, 7):
        _measure_beam(beam, images=4, in_loop=2, rounds=1)
    caption_step(batch_size=4, rounds=1)
    cider(images=10, rounds=1)


def _measure_beam(beam: int, images: int = 256, in_loop: int = 24, rounds: int = 5) -> Ratio:
    decoder = _writing_decoder()
    conditions = torch.randn(images, CONDITION, generator=torch.Generator().manual_seed(1))
    weights = {name: value.double().numpy() for name, value in decoder.state_dict().items()}

    def ours() -> list[tuple[int, ...]]:
        written = search(
            decoder.prepared(), conditions, beam=beam, max_length=MAX_LENGTH, end=END, never=[UNKNOWN]
        )
        return [hypotheses[0].words for hypotheses in written]

    def loop() -> list[tuple[int, ...]]:
        rows = conditions[:in_loop].double().numpy()
        return [_loop_search(weights, row, beam) for row in rows]

    captions = ours()
    assert captions[:in_loop] == loop(), "the captions differ"
    lengths = [len(words) for words in captions]
    print(
        f"{np.mean(lengths):.1f} words per caption, {len(set(captions))} different ones for {images} images"
    )
    # The loop is timed on some of the images. Beside other programs, two threads wait for each other.
    with threadpool_limits(1):
        seconds = compare({"NeuralTalk's loop": loop, "ours": ours}, rounds)
    seconds["NeuralTalk's loop"] = [each * images / in_loop for each in seconds["NeuralTalk's loop"]]
    print_table(seconds, "NeuralTalk's loop", "images", images)
    return ratio(seconds, "ours", "NeuralTalk's loop")


def _loop_search(weights: dict[str, np.ndarray], condition: np.ndarray, beam: int) -> tuple[int, ...]:
    """Write the caption of one image as NeuralTalk does: one hypothesis after the other, in float64.

    A hypothesis that has ended is not computed again. Each hypothesis offers its `beam` best words.
    """
    hidden = weights["condition.weight"] @ condition + weights["condition.bias"]
    start = len(weights["words"]) - 1
    beams = [(0.0, (), start, hidden, np.zeros(UNITS))]
    for _ in range(MAX_LENGTH):
        candidates = []
        for total, words, last, state, memory in beams:
            if last == END:
                candidates.append((total, words, END, state, memory))
                continue
            sums = weights["cell.input_map.weight"] @ weights["words"][last] + weights["cell.input_map.bias"]
            sums += weights["cell.state_map.weight"] @ state
            taken, forget, shown = np.split(1 / (1 + np.exp(-sums[: 3 * UNITS])), 3)
            cell = forget * memory + taken * np.tanh(sums[3 * UNITS :])
            after = shown * np.tanh(cell)
            logits = weights["output.weight"] @ after + weights["output.bias"]
            highest = logits.max()
            scores = logits - highest - np.log(np.exp(logits - highest).sum())
            scores[UNKNOWN] = -np.inf
            for word in np.argsort(-scores)[:beam]:
                kept = words if word == END else (*words, int(word))
                candidates.append((total + scores[word], kept, int(word), after, cell))
        candidates.sort(key=lambda each: -each[0])
        beams = candidates[:beam]
        if all(last == END for _, _, last, _, _ in beams):
            break
    return beams[0][1]


def _new_decoder() -> Decoder:
    torch.manual_seed(0)
    return Decoder(WORDS, CONDITION, UNITS, UNITS, cell="lstm", inject="state")


def _writing_decoder() -> Decoder:
    """Make a decoder that writes about eight words: random weights, and one unit that counts steps."""
    decoder = _new_decoder()
    with torch.no_grad():
        decoder.words.mul_(10)
        decoder.output.weight.uniform_(-0.6, 0.6)
        for part in (decoder.cell.input_map.weight, decoder.cell.state_map.weight):
            part[::UNITS] = 0  # the gates of the first unit
        # Its memory grows by 0.1 per step, and its hidden state is tanh of that.
        decoder.cell.input_map.bias[::UNITS] = torch.tensor([10.0, 10.0, 10.0, math.atanh(0.1)])
        decoder.output.weight[END] = 0
        decoder.output.weight[END, 0] = 60.0
        decoder.output.bias[END] = 8 - 60 * math.tanh(1.0)
    return decoder.eval()


def _our_step(decoder: Decoder) -> Callable[[Captions], float]:
    group = ParameterGroup("weights", list(decoder.parameters()))
    optimizer = OPTIMIZERS["adam"]([group], RATE, None)

    def step(batch: Captions) -> float:
        conditions, targets, lengths = batch
        packed = pack(targets, lengths)
        states = decoder.hidden_states(conditions, packed)
        loss = word_losses(states, decoder.output.weight, decoder.output.bias, packed.data).sum() / len(
            targets
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _usual_step(decoder: Decoder) -> Callable[[Captions], float]:
    """Train the same weights as most captioners do: torch's LSTM, and logits of padded positions too."""
    words = torch.nn.Embedding.from_pretrained(decoder.words.detach().clone(), freeze=False)
    reader = torch.nn.LSTM(UNITS, UNITS, batch_first=True)
    first, output = decoder.condition, decoder.output
    with torch.no_grad():
        # The order of torch's gates: input, forget, new, output.
        for theirs, ours in (
            (reader.weight_ih_l0, decoder.cell.input_map.weight),
            (reader.weight_hh_l0, decoder.cell.state_map.weight),
            (reader.bias_ih_l0, decoder.cell.input_map.bias),
        ):
            taken, forget, shown, new = ours.chunk(4)
            theirs.copy_(torch.cat([taken, forget, new, shown]))
        reader.bias_hh_l0.zero_()
    parameters = [each for module in (words, reader, first, output) for each in module.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=RATE)

    def step(batch: Captions) -> float:
        conditions, targets, lengths = batch
        inputs = torch.cat([torch.full_like(targets[:, :1], decoder.start), targets[:, :-1]], dim=1)
        packed = pack_padded_sequence(words(inputs), lengths, batch_first=True, enforce_sorted=False)
        hidden = first(conditions)[None]
        states, _ = pad_packed_sequence(
            reader(packed, (hidden, torch.zeros_like(hidden)))[0], batch_first=True
        )
        inside = torch.arange(targets.shape[1]) < lengths[:, None]
        losses = torch.nn.functional.cross_entropy(
            output(states).flatten(end_dim=1), targets.masked_fill(~inside, -100).flatten(), reduction="sum"
        )
        loss = losses / len(targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _draw_words(generator: np.random.Generator) -> np.ndarray:
    """Draw a sentence about as long and as repetitive as those of Flickr8k."""
    length = int(np.clip(generator.normal(10.8, 3.8), 3, MAX_LENGTH - 1))
    ranks = np.exp(generator.random(length) * np.log(WORDS - 2))
    return np.minimum(ranks.astype(int) + 1, WORDS - 1)


def _draw_captions(generator: np.random.Generator, count: int) -> Captions:
    sentences = [_draw_words(generator) for _ in range(count)]
    lengths = torch.tensor([len(words) + 1 for words in sentences])
    targets = torch.zeros(count, int(lengths.max()), dtype=torch.long)
    conditions = torch.zeros(count, CONDITION)
    for row, words in enumerate(sentences):
        targets[row, : len(words)] = torch.from_numpy(words)
        conditions[row, words % CONDITION] = 1.0
    return conditions, targets, lengths


def _cider_opponent() -> tuple[str, Callable[[dict[str, str], dict[str, list[str]]], float]]:
    try:
        from pycocoevalcap.cider.cider import Cider
    except ImportError:
        return "dictionaries of n-grams", _plain_cider

    def score(candidates: dict[str, str], references: dict[str, list[str]]) -> float:
        lists = {image: [sentence] for image, sentence in candidates.items()}
        return float(Cider().compute_score(references, lists)[0])

    return "pycocoevalcap", score


def _plain_cider(candidates: dict[str, str], references: dict[str, list[str]]) -> float:
    """CIDEr-D with a dictionary of n-grams per sentence, as it is usually written."""

    def counts(sentence: str) -> Counter[tuple[str, ...]]:
        words = sentence.split()
        return Counter(
            tuple(words[start : start + n]) for n in range(1, 5) for start in range(len(words) - n + 1)
        )

    counted = {image: [counts(sentence) for sentence in each] for image, each in references.items()}
    frequency: Counter[tuple[str, ...]] = Counter()
    for each in counted.values():
        frequency.update(set().union(*each))
    images = np.log(len(references))

    def vectors(
        grams: Counter[tuple[str, ...]],
    ) -> tuple[list[dict[tuple[str, ...], float]], list[float], int]:
        by_length: list[dict[tuple[str, ...], float]] = [{} for _ in range(4)]
        for gram, count in grams.items():
            by_length[len(gram) - 1][gram] = count * (images - np.log(max(1.0, frequency[gram])))
        norms = [float(np.sqrt(sum(weight**2 for weight in each.values()))) for each in by_length]
        return by_length, norms, sum(count for gram, count in grams.items() if len(gram) == 2)

    scores = []
    for image, candidate in candidates.items():
        ours, our_norms, our_length = vectors(counts(candidate))
        total = 0.0
        for grams in counted[image]:
            theirs, their_norms, their_length = vectors(grams)
            penalty = np.exp(-((our_length - their_length) ** 2) / (2 * 6.0**2))
            for n in range(4):
                dot = sum(
                    min(weight, theirs[n].get(gram, 0.0)) * theirs[n].get(gram, 0.0)
                    for gram, weight in ours[n].items()
                )
                if our_norms[n] and their_norms[n]:
                    total += dot / (our_norms[n] * their_norms[n]) * penalty
        scores.append(10 * total / 4 / len(counted[image]))
    return float(np.mean(scores))


def _in_turn(step: Callable[[Captions], float], batches: list[Captions]) -> Callable[[], float]:
    endless = itertools.cycle(batches)
    return lambda: step(next(endless))
