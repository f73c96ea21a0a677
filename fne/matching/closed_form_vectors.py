"""The vectors of a closed form that is a baseline, in two stores that exist for a moment."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from fne.matching.closed_form import align_pairs, matcher_of
from fne.matching.data import MatchingInputs, Pairs
from fne.matching.encode import write_vectors
from fne.matching.settings import Baseline
from fne.store.catalog import Captioned
from fne.store.rows import Rows
from fne.text.tokens import read_tokens


@contextmanager
def closed_form_vectors(
    settings: Baseline,
    inputs: MatchingInputs,
    records: Sequence[Captioned],
    tokens: Path,
    device: torch.device,
) -> Iterator[tuple[Rows, Rows]]:
    """Align the training pairs, and yield the vectors of images and of captions of `records`.

    Raises:
        AlignmentError: if they cannot be aligned, for example because there are too few.
    """
    matcher = matcher_of(align_pairs(inputs, "cca", settings).state).to(device)
    pairs = Pairs(records, inputs.rows, read_tokens(tokens))
    with tempfile.TemporaryDirectory() as folder:
        stores = Path(folder, "images"), Path(folder, "captions")
        write_vectors(matcher, pairs, pairs.image_ids, pairs.caption_ids, stores, inputs.lineage)
        yield Rows.open(stores[0]), Rows.open(stores[1])
