"""Captions for image embeddings: beam search, and the concepts that the captioner sees."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fne.describing.annotations import Written, WrittenSentence
from fne.describing.beam import Hypothesis, search
from fne.describing.model import Describer
from fne.store.rows import Rows
from fne.text.caption_vocabulary import END, UNKNOWN, CaptionWords

BLOCK = 128  # images written at once


def write_sentences(
    captioner: Describer,
    words: CaptionWords,
    concepts: Sequence[str],
    ids: Sequence[str],
    rows: np.ndarray,
    *,
    beam: int,
    max_length: int,
    length_power: float = 0.0,
    top: int = 10,
) -> list[Written]:
    """Write the captions of some images.

    Args:
        captioner: the model.
        words: the words that it writes.
        concepts: the names of its concepts.
        ids: the images.
        rows: their embeddings (images, features).
        beam: the number of hypotheses; 1 is greedy.
        max_length: the most words of a caption.
        length_power: 0 prefers short captions as published; 1 takes the mean log probability.
        top: how many of the likeliest concepts are named.
    """
    if captioner.decoder is None:
        raise ValueError("a captioner needs a decoder")
    with torch.inference_mode():
        condition_blocks, named = [], list[dict[str, float]]()
        for start in range(0, len(rows), BLOCK):
            condition, probabilities = _look(captioner, rows[start : start + BLOCK])
            condition_blocks.append(condition)
            named += (
                [{} for _ in condition] if probabilities is None else likeliest(probabilities, concepts, top)
            )
        found = search(
            captioner.decoder.prepared(),
            torch.cat(condition_blocks),
            beam=beam,
            max_length=max_length,
            end=END,
            never=[UNKNOWN],
            length_power=length_power,
            block=BLOCK,
        )
    return [
        Written(image, tuple(_sentence(words, each) for each in hypotheses), seen_concepts)
        for image, hypotheses, seen_concepts in zip(ids, found, named, strict=True)
    ]


def write_store(
    captioner: Describer,
    words: CaptionWords,
    concepts: Sequence[str],
    rows: Rows,
    ids: Sequence[str],
    **choices: float,
) -> Iterator[Written]:
    """Yield the captions of images of a store, block by block; `choices` are those of `write_sentences`."""
    for block, values in rows.blocks(ids, BLOCK, np.float32):
        yield from write_sentences(captioner, words, concepts, block, values, **choices)  # type: ignore[arg-type]


def likeliest(probabilities: Tensor, concepts: Sequence[str], top: int) -> list[dict[str, float]]:
    """Return the likeliest concepts of each image, with their probabilities (images, concepts)."""
    best = probabilities.sort(dim=1, descending=True, stable=True)
    return [
        {concepts[number]: round(value, 4) for number, value in zip(numbers, values, strict=True)}
        for numbers, values in zip(best.indices[:, :top].tolist(), best.values[:, :top].tolist(), strict=True)
    ]


def _look(captioner: Describer, rows: np.ndarray) -> tuple[Tensor, Tensor | None]:
    """Look at a block of images; return the condition of the decoder, and the probabilities of the concepts.

    The block is filled up with its first image: products of other numbers of rows have other last bits, and
    a caption must not depend on its neighbors.
    """
    filled = np.concatenate([rows, np.broadcast_to(rows[:1], (BLOCK - len(rows), rows.shape[1]))])
    seen = captioner.see(torch.from_numpy(filled.astype(np.float32, copy=False)).to(captioner.device))
    probabilities = None if seen.logits is None else seen.probabilities[: len(rows)]
    return captioner.condition(seen)[: len(rows)], probabilities


def _sentence(words: CaptionWords, hypothesis: Hypothesis) -> WrittenSentence:
    # A caption that stops at the maximum length has no end; `decode` takes both.
    return WrittenSentence(
        words.decode(hypothesis.words),
        round(hypothesis.log_probability, 6),
        round(hypothesis.score, 6),
        hypothesis.ended,
    )
