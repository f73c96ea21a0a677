"""The last words of the `catalog` stage: how much there is of what."""

from collections import Counter
from pathlib import Path

from fne.datasets.catalog import Built
from fne.store.catalog import SPLITS

NEEDED = {
    "val": "'val', which training needs to choose its best epoch; see catalog.val_share",
    "test": "'test'; set evaluate.split to val",
}


def summary(built: Built, rejects: Path) -> str:
    """Return a table of images, captions and rejects per split, what was normalized, and what is lacking."""
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
    if captions.total():
        lines += [
            f"note: no captioned image is in split {note}"
            for split, note in NEEDED.items()
            if not captions[split]
        ]
    return "\n".join(lines)


def _row(split: str, images: object, captions: object, rejects: object) -> str:
    return f"{split:<8}{images:>10}{captions:>10}{rejects:>10}"
