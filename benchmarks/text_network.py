"""Captions through MiniLM: rows of all blocks, compared with the one vector of sentence-transformers."""

from pathlib import Path

import numpy as np
import torch

from benchmarks.timing import PROJECT, Ratio, compare, print_table, ratio
from fne.extraction.text_networks import open_text_network
from fne.extraction.text_rows import batches
from fne.extraction.text_settings import named_network

PLACE = PROJECT / "weights/minilm.yaml"
WORDS = (
    "dog",
    "man",
    "red",
    "snow",
    "runs",
    "ball",
    "water",
    "two",
    "girl",
    "jumps",
    "over",
    "grass",
    "with",
)
OURS, THEIRS = "ours: embeddings and all six blocks", "sentence-transformers: encode, the last block"
# The rounding errors that the two forward passes may have.
TOLERANCE = 1e-4


def text_network(captions: int = 4096, rounds: int = 3) -> Ratio:
    """Read drawn captions of 8 to 15 words with MiniLM, compared with `encode` of sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, generator.integers(8, 16))) for _ in range(captions)]
    network, model = open_text_network(PLACE), SentenceTransformer(str(named_network(PLACE)[0]), device="cpu")

    def ours() -> np.ndarray:
        numbers, _ = network.number(texts)
        rows = np.empty((len(texts), network.features), np.float32)
        for places in batches(numbers):
            rows[places] = network.rows([numbers[place] for place in places])
        return rows

    def theirs() -> np.ndarray:
        return np.asarray(model.encode(texts, show_progress_bar=False))

    last = ours()[:, -network.layers[-1].features :]
    assert np.abs(last / np.linalg.norm(last, axis=1, keepdims=True) - theirs()).max() < TOLERANCE
    print(f"{torch.get_num_threads()} threads of torch for both")
    seconds = compare({THEIRS: theirs, OURS: ours}, rounds)
    print_table(seconds, THEIRS, "captions", captions)
    return ratio(seconds, OURS, THEIRS)


def tiny(folder: Path) -> None:
    """Run with little data."""
    text_network(captions=12, rounds=1)
