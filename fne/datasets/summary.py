"""The last words of the `catalog` stage: how much there is of what."""

from collections import Counter
from pathlib import Path

from fne.datasets.catalog import Built
from fne.store.catalog import SPLITS


def summary(built: Built, rejects: Path) -> str:
    """Return a table of images, captions and rejects per split, and what was normalized."""
    images = Counter(record.split for record in built.captioned)
    captions = Counter(dict.fromkeys(SPLITS, 0))
    for record in built.captioned:
        captions[record.split] += len(record.captions)
    skipped = Counter(reject.split for reject in built.rejects)
    lines = [_row("split", "images", "captions", "rejects")]
    lines += [
        _row(split, images[split], captions[split], skipped[split])
        for split in SPLITS
        if images[split] or skipped[split]
    ]
    lines.append(_row("all", images.total(), captions.total(), skipped.total()))
    lines += [f"{what}: {count}" for what, count in sorted(built.counts.items()) if count]
    lines.append(f"rejects, in {rejects}: {len(built.rejects)}")
    return "\n".join(lines)


def _row(split: str, images: object, captions: object, rejects: object) -> str:
    return f"{split:<8}{images:>10}{captions:>10}{rejects:>10}"
