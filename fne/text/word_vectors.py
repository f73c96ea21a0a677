"""Pretrained vectors for the words of a vocabulary: read from a file, completed by a rule, and stored.

`captions/vectors.h5` has one vector per word, so that training does not need the file, which can have several
gigabytes. Without vectors there is no such file.

A rule for words without a vector is called as `rule(words, file)` and returns vectors (words, dim). The
unknown word, number 0, follows it as well.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fne.core.errors import InputError
from fne.core.files import file_digest
from fne.core.settings import Section, load_params, parse_section
from fne.store.arrays import Layout, read_arrays, write_arrays
from fne.store.artifact import Artifact, Source, merge
from fne.store.catalog import SPLITS, Captioned
from fne.text.vocabulary import DROP, SECTIONS, UNKNOWN, Vocabulary
from fne.text.word_vector_files import VectorFile, read_vector_file

ARTIFACT = "word_vectors"
LAYOUT = Layout(ARTIFACT, {"found": "b words", "vectors": "f words dim"})
SOURCE = "vector_file"  # the name of the file in a lineage
NO_VECTORS = "weights/random_words.yaml"
# Below this fraction of training words, the file and the captions are probably spelled differently.
FEW = 0.8


class NoVectors(Section):
    """A YAML file that stands for no vectors: those of words are drawn."""

    kind: Literal["random"]


@dataclass(frozen=True)
class WordVectors:
    """The vectors of a vocabulary's words, by their numbers."""

    artifact: Artifact
    values: np.ndarray  # (words, dim) float32
    found: np.ndarray  # (words) whether the file has the word

    @property
    def dim(self) -> int:
        """The length of each vector."""
        return int(self.values.shape[1])

    @property
    def file(self) -> str:
        """The name of the file that the vectors come from; imported vectors of captions have no other."""
        source = self.artifact.lineage.get(SOURCE)
        return str(source["settings"]["file"] if source else self.artifact.path)


@dataclass(frozen=True)
class Coverage:
    """How many words of some captions have vectors."""

    words: int
    missing: int
    examples: list[str]

    @property
    def fraction_missing(self) -> float:
        """The fraction of words without a vector."""
        return self.missing / max(1, self.words)


def load_vectors(path: Path, words: Sequence[str]) -> VectorFile | None:
    """Read the vectors of a vocabulary's words, or return None if the file stands for no vectors."""
    if is_no_vectors(str(path)) and path.is_file():
        _, faults = parse_section({"vectors": load_params(path)}, "vectors", NoVectors)
        if faults:
            raise InputError(f"{path}: {'; '.join(faults)}; see {NO_VECTORS}")
        return None
    file = read_vector_file(path, words[1:])
    if not file.values:
        raise InputError(
            f"{path}: has none of the {len(words) - 1:,} words, such as {_listed(words[1:6])}; "
            "name vectors of the captions' language, or change tokenize.lowercase"
        )
    return file


def is_no_vectors(name: str) -> bool:
    """Return whether the name is that of a YAML file, which stands for no vectors."""
    return name.endswith((".yaml", ".yml"))


def known_words(words: Sequence[str], file: VectorFile | None, rule: str) -> list[str]:
    """Return the words of the vocabulary: with the rule `drop`, only those that have a vector."""
    if file is None or rule != DROP:
        return [*words]
    return [UNKNOWN, *(word for word in words[1:] if word in file.values)]


def describe_vectors(
    file: VectorFile,
    words: Sequence[str],
    sentences: Mapping[str, tuple[str, Sequence[str]]],
    encoded: Mapping[str, Sequence[int]],
    captioned: Sequence[Captioned],
) -> tuple[str, list[str]]:
    """Return how far the vectors cover the captions, as a line for the user and warnings.

    Args:
        words: the words that were looked for, the unknown word first.
        sentences: the split and the words of every caption.
    """
    by_split = {
        split: coverage((own for place, own in sentences.values() if place == split), file.values)
        for split in SPLITS
        if any(place == split for place, _ in sentences.values())
    }
    parts = [f"{each.fraction_missing:.2%} of the words of {split}" for split, each in by_split.items()]
    examples = [word for each in by_split.values() for word in each.examples]
    summary = (
        f"{file.path.name}: {file.form}, {file.total:,} words, {file.dim} dimensions; "
        f"{len(file.values):,} of {len(words) - 1:,} words have vectors; without one are {', '.join(parts)}"
    )
    if examples:
        summary += f", such as {_listed([*dict.fromkeys(examples)][:5])}"
    return summary, [*_warnings(file, by_split, encoded, captioned)]


def coverage(sentences: Iterable[Sequence[str]], vectors: Mapping[str, np.ndarray]) -> Coverage:
    """Count the words of sentences that have no vector; the examples are the most frequent of them."""
    total = 0
    missing: dict[str, int] = {}
    for words in sentences:
        total += len(words)
        for word in words:
            if word not in vectors:
                missing[word] = missing.get(word, 0) + 1
    ordered = sorted(missing, key=lambda word: (-missing[word], word))
    return Coverage(total, sum(missing.values()), ordered[:3])


def write_word_vectors(path: Path, vocabulary: Vocabulary, file: VectorFile, rule: str) -> None:
    """Write `vectors.h5`."""
    values, found = complete(vocabulary.words, file, rule)
    made_with = {"kind": "file", "format": file.form, "dim": file.dim, "without_vector": rule}
    source = Artifact(file.path, SOURCE, file.digest, {"file": file.path.name})
    arrays = {"vectors": values, "found": found}
    write_arrays(path, ARTIFACT, arrays, made_with, merge(vocabulary.artifact, source), SECTIONS)


def read_word_vectors(path: Path) -> WordVectors | None:
    """Read `vectors.h5`, checking its seal; return None if there is no such file."""
    if not path.exists():
        return None
    arrays = read_arrays(path, LAYOUT)
    return WordVectors(arrays.artifact, arrays["vectors"], arrays["found"])


def complete(words: Sequence[str], file: VectorFile, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a vector for every word (words, dim), and which words the file has (words)."""
    found = np.array([word in file.values for word in words])
    values = np.empty((len(words), file.dim), np.float32)
    values[found] = [file.values[word] for word in words if word in file.values]
    values[~found] = RULES[rule]([word for word in words if word not in file.values], file)
    return values, found


def zero(words: Sequence[str], file: VectorFile) -> np.ndarray:
    """Zeros."""
    return np.zeros((len(words), file.dim), np.float32)


def mean(words: Sequence[str], file: VectorFile) -> np.ndarray:
    """The mean of the vectors that were found."""
    center = np.mean([*file.values.values()], axis=0, dtype=np.float64)
    return np.tile(center.astype(np.float32), (len(words), 1))


def random(words: Sequence[str], file: VectorFile) -> np.ndarray:
    """Uniform numbers with the deviation of the file's values, drawn by the hash of the word alone."""
    bound = file.deviation * np.sqrt(3)
    rows = [np.random.default_rng(_seed(word)).uniform(-bound, bound, file.dim) for word in words]
    return np.array(rows, np.float32).reshape(len(words), file.dim)


def _warnings(
    file: VectorFile,
    by_split: Mapping[str, Coverage],
    encoded: Mapping[str, Sequence[int]],
    captioned: Sequence[Captioned],
) -> Iterator[str]:
    if file.repeated:
        yield f"{file.path}: {file.repeated:,} words come more than once; the first vector of each is used"
    if file.undecodable:
        yield f"{file.path}: {file.undecodable:,} words are not UTF-8 and were left out"
    training = by_split.get("train")
    if training and training.fraction_missing > 1 - FEW:
        yield (
            f"only {1 - training.fraction_missing:.0%} of the training words have vectors; "
            "is tokenize.lowercase as the file needs it?"
        )
    empty = {caption_id for caption_id, numbers in encoded.items() if list(numbers) == [0]}
    if empty:
        yield f"{len(empty):,} captions have no known word and become one unknown word"
    images = [each.id for each in captioned if each.captions and empty.issuperset(each.caption_ids)]
    if images:
        yield f"{len(images):,} images have no caption with a known word; the first is {images[0]!r}"


def _seed(word: str) -> int:
    return int.from_bytes(hashlib.sha256(word.encode(errors="surrogatepass")).digest()[:8], "little")


def _listed(words: Sequence[str]) -> str:
    return ", ".join(repr(word) for word in words)


# With `drop`, words without a vector are left out of captions and vocabulary; only the unknown word is left,
# which stands for captions in which no other word is left.
RULES: dict[str, Callable[[Sequence[str], VectorFile], np.ndarray]] = {
    "drop": zero,
    "mean": mean,
    "random": random,
    "zero": zero,
}


def _fault(artifact: Artifact, file: Path, recorded: Mapping[str, Any]) -> str | None:
    digest = artifact.lineage.get(SOURCE, {}).get("digest")
    fits = digest is None if is_no_vectors(str(file)) else digest == file_digest(file)
    return None if fits else f"{file} has other vectors"


VECTORS = Source(ARTIFACT, "tokenize", "vectors", _fault)
