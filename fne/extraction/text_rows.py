"""Rows of captions: a text network reads all of them, and each row is kept as soon as it is finished.

As for images, a row is found by the digest of what it is made from, here the text of a caption. So a killed
run continues, equal captions are computed once, and a new caption costs its own forward pass.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.core.progress import progress
from fne.core.terminal import format_rate, format_time, say
from fne.extraction.computer import Log
from fne.extraction.finished_rows import Scratch
from fne.extraction.run import Claims, Shard, assemble, check_finite, wait_for_others, write_claimed
from fne.extraction.text_networks import BATCH, TextNetwork
from fne.store.catalog import Captioned

SHOWN = 3  # cut captions in a message


def caption_texts(captioned: Sequence[Captioned]) -> dict[str, str]:
    """Return the text of every caption of a catalog by its id; empty ones are refused."""
    texts = {
        caption_id: text
        for record in captioned
        for caption_id, text in zip(record.caption_ids, record.captions, strict=True)
    }
    empty = next((caption_id for caption_id, text in texts.items() if not text.strip()), None)
    if empty is not None:
        raise InputError(f"caption {empty!r} is empty; remove it from the data set, or write one")
    return texts


def open_scratch(folder: Path, network: TextNetwork) -> Scratch:
    """Return where the finished rows of a network are kept."""
    return Scratch(folder / "text", network.kind | {"network": network.artifact.digest}, network.features)


def extract_text(
    texts: Mapping[str, str], network: TextNetwork, scratch: Scratch, shards: int, log: Log = say
) -> Iterator[Shard]:
    """Compute the rows of all captions that the scratch folder lacks; return the shards of a store."""
    digests = {caption_id: text_digest(text) for caption_id, text in texts.items()}
    ids = {digest: caption_id for caption_id, digest in digests.items()}  # one of each text
    missing = set(ids) - set(scratch.rows(ids))
    log(
        f"{len(texts)} captions: {len(ids)} different ones, {len(missing)} to compute, "
        f"{network.features} values each"
    )
    waited_for, start, computed = list[str](), time.perf_counter(), 0
    with progress("text network", len(ids), len(ids) - len(missing), "caption") as shown:
        while missing:
            waited_for = wait_for_others(scratch, missing, waited_for, log)
            with Claims(scratch, missing) as claims:
                claimed, found = claims.take(len(missing))
                missing.difference_update(claimed, found)
                shown.update(len(found))
                numbers, cut = network.number([texts[ids[each]] for each in claimed])
                if cut:
                    named = ", ".join(repr(ids[claimed[place]]) for place in cut[:SHOWN])
                    log(f"{len(cut)} captions have more than {network.positions} tokens and are cut: {named}")
                for places in batches(numbers):
                    rows = network.rows([numbers[place] for place in places])
                    batch = [claimed[place] for place in places]
                    for digest, row in zip(batch, rows, strict=True):
                        check_finite(row, ids[digest], network.layers, "caption")
                    write_claimed(claims.pop(batch), rows)
                    shown.update(len(batch))
                    computed += len(batch)
    if computed:
        seconds = time.perf_counter() - start
        log(f"{computed} captions in {format_time(seconds)}: {format_rate(computed / seconds, 'caption')}")
    return assemble(scratch, digests, shards)


def batches(numbers: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield positions of sentences with equally many tokens, at most `BATCH` at once, long ones first.

    Example:
        >>> list(batches([[1, 2], [3], [4, 5]]))
        [[0, 2], [1]]
    """
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for place, each in enumerate(numbers):
        by_length[len(each)].append(place)
    if 0 in by_length:
        raise InputError("a sentence has no tokens; write a word")
    for length in sorted(by_length, reverse=True):
        places = by_length[length]
        yield from (places[first : first + BATCH] for first in range(0, len(places), BATCH))
