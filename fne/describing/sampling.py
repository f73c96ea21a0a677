"""Sampling of sequences: every output is drawn from the distribution of the decoder, until END.

Sequences of an image depend on the seed and its condition alone, not on the images beside it. Outputs that
are never written are left out of the draw. Scores are those of the beam search, whose normalizer includes
them.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from fne.describing.beam import Hypothesis, S, WordModel, padded


def sample(
    model: WordModel[S],
    conditions: Tensor,
    *,
    beam: int,
    max_length: int,
    end: int = 0,
    never: Sequence[int] = (),
    length_power: float = 0.0,
    seed: int = 0,
) -> list[list[Hypothesis]]:
    """Return `beam` drawn sequences for each image, the most probable first.

    Args:
        conditions: what describes each image to the model (images, condition).
        never: outputs that are never written, such as the unknown word.
        length_power: as `fne.describing.beam.search` takes it; it only orders the sequences.
    """
    with torch.inference_mode():
        draws = torch.cat([_draws(each, beam, max_length, seed) for each in conditions])  # (rows, max_length)
        rows = len(draws)
        words, ended = torch.zeros(rows, max_length, dtype=torch.long), torch.zeros(rows, dtype=torch.bool)
        totals = torch.zeros(rows, dtype=torch.float64)
        logits, state = model.begin(padded(conditions.repeat_interleave(beam, dim=0)))
        for step in range(max_length):
            known = logits[:rows].double().log_softmax(dim=1).cpu()
            allowed = known.exp()
            allowed[:, list(never)] = 0
            levels = allowed.cumsum(dim=1)
            chosen = torch.searchsorted(levels, draws[:, step : step + 1] * levels[:, -1:], right=True)[:, 0]
            totals += torch.where(ended, 0.0, known.gather(1, chosen[:, None])[:, 0])
            words[:, step] = torch.where(ended, end, chosen)
            ended |= chosen == end
            if ended.all() or step + 1 == max_length:
                break
            logits, state = model.advance(state, padded(words[:, step].to(conditions.device)))
    made = [
        _hypothesis(own, total, end, length_power)
        for own, total in zip(words.tolist(), totals.tolist(), strict=True)
    ]
    images = [made[start : start + beam] for start in range(0, rows, beam)]
    return [sorted(each, key=lambda one: -one.score) for each in images]


def _draws(condition: Tensor, beam: int, max_length: int, seed: int) -> Tensor:
    """Return uniform numbers for the sequences of an image (beam, max_length)."""
    digest = hashlib.sha256(f"{seed} ".encode() + condition.float().cpu().numpy().tobytes()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8]))
    return torch.rand(beam, max_length, generator=generator, dtype=torch.float64)


def _hypothesis(words: list[int], total: float, end: int, length_power: float) -> Hypothesis:
    ended = end in words
    own = words[: words.index(end)] if ended else words
    return Hypothesis(tuple(own), total, total / (len(own) + 1) ** length_power, ended)
