"""What taggers and captioners write about images: tags or sentences by beam search, and concepts they see.

The words of an image do not depend on the images that are written together with it. What was written about
the images of a store is kept in the scratch folder by the model, the rows, the settings and `WRITER_VERSION`,
as finished training runs are: an edited page or stage does not search all beams again.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.describing.annotations import DIGITS, Tagged, Written, WrittenSentence, written_from_json
from fne.describing.beam import Hypothesis, search
from fne.describing.decoder import Decoder
from fne.describing.inputs import user_tag_labels
from fne.describing.model import DescribingModel
from fne.describing.model_file import Vocabulary
from fne.describing.sampling import sample
from fne.describing.settings import Writing
from fne.store.catalog import Captioned
from fne.store.layout import mean_of_views
from fne.store.tensors import write_sealed
from fne.text.caption_vocabulary import END, UNKNOWN, CaptionWords
from fne.training.finished_runs import kept_path, load_kept
from fne.training.row_source import RowSource

# Raised whenever the same model writes other words about the same rows, or sees other concepts.
WRITER_VERSION = 1
FOLDER = "written"  # in the scratch folder
BLOCK = 128  # images written at once
ALL = "all"  # images of the catalog


@dataclass(frozen=True)
class Search:
    """How sequences are searched or drawn, as `fne.describing.beam.search` and `sample` take it."""

    beam: int
    max_length: int
    length_power: float = 0.0
    never: tuple[int, ...] = ()
    repeats: bool = True
    seed: int | None = None  # random seed of words that are drawn; None searches for the likeliest

    def run(self, decoder: Decoder, conditions: Tensor) -> list[list[Hypothesis]]:
        """Write about images, given the conditions of the decoder."""
        common = {key: getattr(self, key) for key in ("beam", "max_length", "never", "length_power")}
        if self.seed is None:
            return search(decoder, conditions, end=END, repeats=self.repeats, **common)
        return sample(decoder, conditions, end=END, seed=self.seed, **common)


def tag_search(model: DescribingModel) -> Search:
    """Write one tag after the other, always the likeliest, none twice."""
    return Search(1, model.shape.outputs - 1, repeats=False)


def caption_search(settings: Writing) -> Search:
    """Write sentences, the most probable ones or drawn ones, without unknown words."""
    seed = settings.sampled.seed if settings.words == "sampled" else None
    return Search(settings.beam, settings.max_length, settings.length_power, (UNKNOWN,), seed=seed)


class Tags(NamedTuple):
    """What a tagger sees in images and writes about them; None where it lacks a part."""

    probabilities: np.ndarray | None  # (images, concepts)
    written: list[list[int]] | None  # the concepts of each image, in the order in which they were written


class Words(NamedTuple):
    """What a model sees in images and writes about them; None where it lacks a part."""

    probabilities: np.ndarray | None  # (images, concepts)
    hypotheses: list[list[Hypothesis]] | None  # per image, the best first

    def as_tags(self) -> Tags:
        """Return the words of a tagger as numbers of concepts."""
        if self.hypotheses is None:
            return Tags(self.probabilities, None)
        # Output 0 is END, so that the concept n is the output n + 1.
        return Tags(self.probabilities, [[word - 1 for word in each[0].words] for each in self.hypotheses])


def join_words(parts: Sequence[Words]) -> Words:
    """Return the words of several blocks of images as those of one."""
    probabilities = [each.probabilities for each in parts if each.probabilities is not None]
    hypotheses = [each.hypotheses for each in parts if each.hypotheses is not None]
    return Words(
        np.concatenate(probabilities) if probabilities else None,
        [own for block in hypotheses for own in block] if hypotheses else None,
    )


@torch.inference_mode()
def write_block(
    model: DescribingModel,
    decoder: Decoder | None,
    rows: Tensor,
    user_tags: Tensor | None,
    how: Search | None,
    fill: int = 0,
) -> Words:
    """See some images at once and write about them.

    Args:
        decoder: that of the model, prepared for writing; None writes nothing.
        rows: image rows (images, features).
        user_tags: 0/1 for each user tag that it reads (images, user tags).
        how: how sequences are searched; None writes nothing.
        fill: with how many images concepts are seen, the first one repeated.
    """
    count, device = len(rows), model.device
    given = None if user_tags is None else _filled(user_tags, fill).to(device)
    seen = model.see(_filled(rows, fill).to(device), given)
    probabilities = None if seen.logits is None else seen.probabilities[:count].cpu().numpy()
    if decoder is None or how is None:
        return Words(probabilities, None)
    conditions = model.condition(seen)[:count]
    return Words(probabilities, how.run(decoder, conditions))


class Writer:
    """A tagger or captioner that writes about images.

    With a scratch folder it keeps what it writes about the images of a store; `digest` is that of the model.
    """

    def __init__(
        self,
        model: DescribingModel,
        vocabulary: Vocabulary,
        digest: str = "",
        scratch: Path | None = None,
    ) -> None:
        self.model, self.vocabulary = model, vocabulary
        self._digest, self._scratch = digest, scratch

    @cached_property
    def _decoder(self) -> Decoder | None:
        decoder = self.model.decoder
        return None if decoder is None else decoder.prepared()

    def write(
        self, rows: np.ndarray, user_tags: np.ndarray | None = None, how: Search | None = None
    ) -> Words:
        """Write about images, given their rows (images, features) and 0/1 user tags (images, user tags).

        Blocks are filled up: products of other numbers of rows have other last bits, and the words of an
        image must not depend on its neighbors.
        """
        parts = []
        # In float32 before the mean, as in training.
        values = rows.astype(np.float32, copy=False)
        seen = torch.from_numpy(mean_of_views(values, rows.shape[1] // self.model.shape.features))
        for start in range(0, len(rows), BLOCK):
            block = slice(start, start + BLOCK)
            own = None if user_tags is None else torch.from_numpy(user_tags[block].astype(np.float32))
            parts.append(write_block(self.model, self._decoder, seen[block], own, how, BLOCK))
        return join_words(parts)

    def tag(self, rows: np.ndarray, user_tags: np.ndarray | None = None) -> Tags:
        """Tag images, given their rows (images, features) and 0/1 user tags (images, user tags)."""
        return self.write(rows, user_tags, tag_search(self.model)).as_tags()

    def caption(self, ids: Sequence[str], rows: np.ndarray, how: Search, top: int) -> list[Written]:
        """Write captions for images (images, features), and name the `top` likeliest concepts of each."""
        words, names = self.vocabulary.words, self.vocabulary.concepts.names
        found = self.write(rows, None, how)
        assert words is not None, "a captioner has words"
        assert found.hypotheses is not None, "a captioner has a decoder"
        seen: list[dict[str, float]] = [{} for _ in ids]
        if found.probabilities is not None:
            seen = [likeliest(names, each, top) for each in found.probabilities]
        return [
            Written(image, tuple(_sentence(words, each) for each in hypotheses), concepts)
            for image, hypotheses, concepts in zip(ids, found.hypotheses, seen, strict=True)
        ]

    def tag_store(self, source: RowSource, records: Sequence[Captioned]) -> Tags:
        """Tag images, given the source of their rows."""
        ids = [record.id for record in records]
        user_tags = user_tag_labels(records, self.vocabulary.user_tags)
        source.check_ids(ids)

        def write() -> tuple[Any, np.ndarray | None]:
            parts = []
            for number, rows in enumerate(source.blocks(ids, BLOCK)):
                own = None if user_tags is None else user_tags[number * BLOCK :][:BLOCK]
                parts.append(self.write(rows.numpy(), own, tag_search(self.model)))
            found = join_words(parts).as_tags()
            return found.written, found.probabilities

        given = [] if user_tags is None else user_tags.tolist()
        written, probabilities = self._keep(source, ids, {"user_tags": given}, write)
        return Tags(probabilities, written)

    def caption_store(self, source: RowSource, ids: Sequence[str], how: Search, top: int) -> list[Written]:
        """Write captions for images, and name the `top` likeliest concepts of each."""
        source.check_ids(ids)

        def write() -> tuple[Any, None]:
            found = []
            for number, rows in enumerate(source.blocks(ids, BLOCK)):
                own = ids[number * BLOCK :][:BLOCK]
                found += [asdict(each) for each in self.caption(own, rows.numpy(), how, top)]
            return found, None

        listed, _ = self._keep(source, ids, asdict(how) | {"top": top}, write)
        return [written_from_json(each) for each in listed]

    def _keep(
        self,
        source: RowSource,
        ids: Sequence[str],
        settings: Mapping[str, Any],
        write: Callable[[], tuple[Any, np.ndarray | None]],
    ) -> tuple[Any, np.ndarray | None]:
        """Return words as JSON has them, and probabilities: kept ones, or those that `write` returns."""
        if self._scratch is None:
            return write()
        key = {
            "version": WRITER_VERSION,
            "model": self._digest,
            "rows": source.digest(ids),
            "settings": text_digest(json.dumps(settings)),
            "device": self.model.device.type,
            "threads": torch.get_num_threads(),
        }
        path = kept_path(self._scratch, FOLDER, key)
        kept = load_kept(path, key)
        if kept is not None:
            seen = kept[1].get("probabilities")
            words = json.loads(kept[1]["words"].numpy().tobytes())
            return words, None if seen is None else seen.numpy()
        words, probabilities = write()
        # The words are a tensor, too: a header is limited to 100 MB.
        text = bytearray(json.dumps(words).encode())
        tensors = {"words": torch.frombuffer(text, dtype=torch.uint8)}
        if probabilities is not None:
            tensors["probabilities"] = torch.from_numpy(probabilities)
        write_sealed(path, {"key": key}, tensors)
        return words, probabilities


def images_to_describe(
    captioned: Sequence[Captioned], have_rows: Iterable[str], place: Path, section: str, images: str
) -> list[Captioned]:
    """Return the images to write about: those of a split or `all` of the catalog, as far as they have rows.

    An imported store, at `place`, may have rows of more or fewer images than the catalog.
    """
    known = set(have_rows)
    found = [each for each in captioned if each.id in known and images in (ALL, each.split)]
    if not found:
        raise InputError(
            f"params.yaml: {section}.images is '{images}', but {place} has no row of such an "
            f"image of the catalog; use {ALL}, or see `catalog` in params.yaml"
        )
    return found


def tagged_images(ids: Sequence[str], tags: Tags, concepts: Sequence[str], top: int) -> list[Tagged]:
    """Return tags in words, as `annotations/tags.jsonl` has them."""
    found = []
    for number, image in enumerate(ids):
        written = None if tags.written is None else [concepts[each] for each in tags.written[number]]
        best, exact = None, None
        if tags.probabilities is not None:
            own = tags.probabilities[number]
            best = list(likeliest(concepts, own, top))
            exact = own.astype(str).astype(float).tolist()  # the shortest numbers
        found.append(Tagged(image, written, best, exact))
    return found


def likeliest(names: Sequence[str], probabilities: np.ndarray, count: int) -> dict[str, float]:
    """Return the most probable concepts of an image, given the probabilities of all (concepts)."""
    order = np.argsort(-probabilities, kind="stable")[:count]
    return {names[each]: round(float(probabilities[each]), DIGITS) for each in order.tolist()}


def written_mask(written: Sequence[Sequence[int]], concepts: int) -> np.ndarray:
    """Return which concepts were written for each image (images, concepts)."""
    mask = np.zeros((len(written), concepts), dtype=bool)
    for row, numbers in zip(mask, written, strict=True):
        row[list(numbers)] = True
    return mask


def _filled(rows: Tensor, count: int) -> Tensor:
    """Repeat the first row until there are `count`."""
    missing = max(count - len(rows), 0)
    return torch.cat([rows, rows[:1].expand(missing, *rows.shape[1:])]) if missing else rows


def _sentence(words: CaptionWords, hypothesis: Hypothesis) -> WrittenSentence:
    # A caption that stops at the maximum length has no end; `decode` takes both.
    return WrittenSentence(
        words.decode(hypothesis.words),
        round(hypothesis.log_probability, 6),
        round(hypothesis.score, 6),
        hypothesis.ended,
    )
