"""Ranking all images and captions of a split, against a loop over images that sorts every row of scores.

The loop is the way of the field's published codes (VSE++): for every image the scores of all captions, and
for its captions those of all images, each row sorted in full with argsort. It is timed on every so many
images and scaled up, since its images all cost the same; ours is timed on everything, the lists of the ten
best included, which the loop does not make. Both may use the same number of threads.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.side_by_side import compare, print_table, ratio
from fne.ranking.ranks import Ranking, rank
from fne.ranking.similarities import SIMILARITIES

CAPTIONS, TOP = 5, 10
Floats = NDArray[np.float32]
Score = Callable[[Floats, Floats], Floats]


def evaluation_cosine() -> float:
    """Rank 5,000 images and 25,000 captions by cosine, 1,024 values each, against a loop with argsort."""
    return _compare("cosine", lambda images, captions: images @ captions.T, images=5000, dim=1024, sample=100)


def evaluation_order() -> float:
    """Rank 1,000 images and 5,000 captions by order, 1,024 values each, against a loop with argsort."""
    return _compare("order", _order, images=1000, dim=1024, sample=20)


def evaluation_memory() -> float:
    """Compare the peak memory of ranking 5,000 x 25,000 x 1,024 with the 1.5 GB that it may take."""
    code = (
        "import resource; from benchmarks.evaluation import draw_vectors, ranking; "
        "ranking('cosine', *draw_vectors(5000, 1024)); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    peak = int(done.stdout) * 1024
    print(f"peak memory of the whole process, its vectors included: {peak / 1e9:.2f} GB")
    return 1.5e9 / peak


def draw_vectors(images: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return vectors of length one, none negative, as order needs them: images, and captions near them."""
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randn(images, dim, generator=generator).abs_()
    sentences = torch.randn(images * CAPTIONS, dim, generator=generator)
    sentences += 0.3 * pictures.repeat_interleave(CAPTIONS, 0)
    sentences.abs_()
    return torch.nn.functional.normalize(pictures), torch.nn.functional.normalize(sentences)


def ranking(similarity: str, images: torch.Tensor, captions: torch.Tensor) -> Ranking:
    """Rank as the stage does."""
    owners = torch.arange(len(images)).repeat_interleave(CAPTIONS)
    return rank(images, captions, owners, SIMILARITIES[similarity], TOP)


def _compare(name: str, score: Score, images: int, dim: int, sample: int) -> float:
    vectors = draw_vectors(images, dim)
    pictures, sentences = (each.numpy() for each in vectors)
    chosen = range(0, images, images // sample)
    loop = partial(_loop, score, pictures, sentences, chosen)
    _check(ranking(name, *vectors), loop(), chosen)
    seconds = compare({"loop with argsort": loop, "ours": partial(ranking, name, *vectors)}, rounds=3)
    seconds["loop with argsort"] = [each * images / len(chosen) for each in seconds["loop with argsort"]]
    print(f"{torch.get_num_threads()} threads; the loop was timed on {len(chosen)} of its {images} images")
    print_table(seconds, "loop with argsort", "images", images)
    return ratio(seconds, "ours", "loop with argsort")


def _loop(score: Score, images: Floats, captions: Floats, chosen: range) -> tuple[list[int], list[int]]:
    image_ranks, caption_ranks = [], []
    for image in chosen:
        own = range(CAPTIONS * image, CAPTIONS * image + CAPTIONS)
        order = np.argsort(score(images[image : image + 1], captions)[0])[::-1]
        image_ranks.append(1 + min(int(np.where(order == caption)[0][0]) for caption in own))
        for row in np.ascontiguousarray(score(images, captions[own.start : own.stop]).T):
            caption_ranks.append(1 + int(np.where(np.argsort(row)[::-1] == image)[0][0]))
    return image_ranks, caption_ranks


def _order(images: Floats, captions: Floats) -> Floats:
    """Score with one array of (captions, images, dim), as the published code does, on all threads."""
    exceeding = torch.from_numpy(captions).unsqueeze(1) - torch.from_numpy(images).unsqueeze(0)
    scores: Floats = -exceeding.clamp(min=0).pow(2).sum(2).t().numpy()
    return scores


def _check(ours: Ranking, loop: tuple[list[int], list[int]], chosen: range) -> None:
    """Stop if ranks differ by more than rounding explains."""
    captions = [CAPTIONS * image + number for image in chosen for number in range(CAPTIONS)]
    difference = (ours.caption_ranks[captions] - torch.tensor(loop[1])).abs().float().mean()
    difference += (ours.image_ranks[list(chosen)] - torch.tensor(loop[0])).abs().float().mean()
    if difference > 0.1:
        raise SystemExit(f"ranks of the loop and ours differ by {difference:.2f} on average")
