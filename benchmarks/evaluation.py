"""Ranking all images and captions of a split, compared with a loop that sorts every row of scores.

Published code such as VSE++ uses that loop: it scores all captions for each image, and all images
for each of its captions, and sorts every row with argsort. The loop is timed on a sample of images
and scaled up, since all images cost the same. Our code is timed on all images and also returns the
ten best items, which the loop does not. Both may use the same number of threads.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.timing import PROJECT, Ratio, compare, print_table, ratio
from fne.evaluation.metrics.ranks import Ranking, rank
from fne.matching.similarities import SIMILARITIES

CAPTIONS, TOP = 5, 10  # captions per image, length of the lists of best items
MEMORY_LIMIT = 1.5e9  # bytes
LOOP, OURS = "loop with argsort", "ours"

Floats = NDArray[np.float32]
Score = Callable[[Floats, Floats], Floats]


def evaluation_cosine(images: int = 5000, dim: int = 1024, sample: int = 100, rounds: int = 3) -> Ratio:
    """Rank 5,000 images and 25,000 captions of 1,024 values by cosine, compared with a loop with argsort."""
    return _compare("cosine", _cosine, images, dim, sample, rounds)


def evaluation_order(images: int = 1000, dim: int = 1024, sample: int = 20, rounds: int = 3) -> Ratio:
    """Rank 1,000 images and 5,000 captions of 1,024 values by order, compared with a loop with argsort."""
    return _compare("order", _order, images, dim, sample, rounds)


def evaluation_memory(images: int = 5000, dim: int = 1024) -> Ratio:
    """Rank 5,000 x 25,000 x 1,024; the ratio is the limit of 1.5 GB over the peak memory."""
    code = (
        "import resource; from benchmarks.evaluation import draw_vectors, ranking; "
        f"ranking('cosine', *draw_vectors({images}, {dim})); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    peak = int(done.stdout) * 1024
    print(f"peak memory of the process, with the vectors: {peak / 1e9:.2f} GB")
    return Ratio(MEMORY_LIMIT / peak, MEMORY_LIMIT / peak)


def tiny(folder: Path) -> None:
    """Run all with little data."""
    evaluation_cosine(images=20, dim=8, sample=5, rounds=1)
    evaluation_order(images=20, dim=8, sample=5, rounds=1)
    evaluation_memory(images=20, dim=8)


def draw_vectors(images: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return non-negative vectors of length 1, as the order similarity needs them.

    The vectors of the captions are similar to those of their images.
    """
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randn(images, dim, generator=generator).abs_()
    sentences = torch.randn(images * CAPTIONS, dim, generator=generator)
    sentences += 0.3 * pictures.repeat_interleave(CAPTIONS, 0)
    sentences.abs_()
    return torch.nn.functional.normalize(pictures), torch.nn.functional.normalize(sentences)


def ranking(similarity: str, images: torch.Tensor, captions: torch.Tensor) -> Ranking:
    """Rank as the `evaluate` stage does."""
    owners = torch.arange(len(images)).repeat_interleave(CAPTIONS)
    return rank(images, captions, owners, SIMILARITIES[similarity], TOP)


def _compare(name: str, score: Score, images: int, dim: int, sample: int, rounds: int) -> Ratio:
    vectors = draw_vectors(images, dim)
    pictures, sentences = (each.numpy() for each in vectors)
    chosen = range(0, images, images // sample)
    loop = partial(_loop, score, pictures, sentences, chosen)
    _check(ranking(name, *vectors), loop(), chosen)
    seconds = compare({LOOP: loop, OURS: partial(ranking, name, *vectors)}, rounds)
    seconds[LOOP] = [each * images / len(chosen) for each in seconds[LOOP]]
    print(f"{torch.get_num_threads()} threads; the loop was timed on {len(chosen)} of its {images} images")
    print_table(seconds, LOOP, "images", images)
    return ratio(seconds, OURS, LOOP)


def _loop(score: Score, images: Floats, captions: Floats, chosen: range) -> tuple[list[int], list[int]]:
    image_ranks, caption_ranks = [], []
    for image in chosen:
        own = range(CAPTIONS * image, CAPTIONS * image + CAPTIONS)
        order = np.argsort(score(images[image : image + 1], captions)[0])[::-1]
        image_ranks.append(1 + min(int(np.where(order == caption)[0][0]) for caption in own))
        for row in np.ascontiguousarray(score(images, captions[own.start : own.stop]).T):
            caption_ranks.append(1 + int(np.where(np.argsort(row)[::-1] == image)[0][0]))
    return image_ranks, caption_ranks


def _cosine(images: Floats, captions: Floats) -> Floats:
    return images @ captions.T


def _order(images: Floats, captions: Floats) -> Floats:
    """Score with one array (captions, images, dim), as published code does, on all threads."""
    exceeding = torch.from_numpy(captions).unsqueeze(1) - torch.from_numpy(images).unsqueeze(0)
    scores: Floats = -exceeding.clamp(min=0).pow(2).sum(2).t().numpy()
    return scores


def _check(ours: Ranking, loop: tuple[list[int], list[int]], chosen: range) -> None:
    """Exit if the ranks differ by more than rounding errors."""
    captions = [CAPTIONS * image + number for image in chosen for number in range(CAPTIONS)]
    difference = (ours.caption_ranks[captions] - torch.tensor(loop[1])).abs().float().mean()
    difference += (ours.image_ranks[list(chosen)] - torch.tensor(loop[0])).abs().float().mean()
    if difference > 0.1:
        raise SystemExit(f"our ranks differ from those of the loop by {difference:.2f} on average")
