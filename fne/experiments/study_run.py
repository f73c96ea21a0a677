"""Running the cells of a study, in one process and in folders of its own: the project is not changed.

A cell goes through the functions of the pipeline's stages: catalog, words, statistics, embeddings, training,
ranks. What cells have in common, such as the catalog, the words and the statistics of a fold, is made once.
The embeddings of a cell are removed when its ranks are kept.

In folds, each image of train and val is tested once, by a model that has not seen it. The test images of the
catalog belong to no fold: they are withheld until a study is run with the splits of the catalog. A projection
tells the dimension of an embedding apart from what it holds.

A finished training run is kept with the settings and the digests of the inputs that decided it. It is used
again only for the same ones, so a study that was killed continues where it stopped.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from fne.core.device import prepare_device, use_training_threads
from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.core.settings import Runtime, Section, flattened, load_params, load_runtime, parse_section, put
from fne.core.terminal import format_time
from fne.datasets.location import dataset_root
from fne.datasets.read import Catalog, read_catalog
from fne.experiments.study_file import SEEDS, WORK, Study, StudyCell, record_study
from fne.experiments.study_results import StudyResult, find_result, keep_result
from fne.features.embeddings import EMBEDDINGS, Embed, EmbedText, kept_features
from fne.features.standardize import fit
from fne.features.write_embeddings import open_source, write_embeddings
from fne.matching.closed_form import align_pairs, matcher_of, word_features
from fne.matching.data import MatchingInputs, Pairs, read_inputs
from fne.matching.methods import make_model
from fne.matching.model import Matcher
from fne.matching.settings import Train, rows_fault
from fne.matching.validate import rank_pairs
from fne.store.artifact import Artifact, Lineage
from fne.store.catalog import Captioned, captioned_in, read_captions, split_ids, write_captions
from fne.store.layout import Layer
from fne.store.rows import Rows, write_rows
from fne.text.bags import Bags, WordFeatures, leading_eigenvectors
from fne.text.caption_vectors import write_caption_rows
from fne.text.tokenizer import tokenize_captions
from fne.text.tokens import read_tokens, write_words
from fne.text.vocabulary import Tokenize, choose_words
from fne.training.finished_runs import TRAINER_VERSION
from fne.training.run import Job

# Raised whenever the same settings and inputs give other ranks.
VERSION = 1
SECTIONS: dict[str, type[Section]] = {
    "catalog": Catalog,
    "embed": Embed,
    "embed_text": EmbedText,
    "tokenize": Tokenize,
    "train": Train,
}
# The bits of a value where a store takes more: scaled rows of a discrete code follow from the code.
BITS = {"fne": 2, "sign": 1}
NO_WORDS = "weights/random_words.yaml"
# In place of words: a cell makes its own embeddings of captions.
ROWS = "features/text/embeddings"
FEATURES = "caption_features"
DIVIDED = ("train", "val")

Common = TypeVar("Common")


@dataclass(frozen=True)
class Settings:
    """The validated sections of a training run."""

    catalog: Catalog
    embed: Embed
    embed_text: EmbedText
    tokenize: Tokenize
    train: Train


@dataclass(frozen=True)
class Planned:
    """A training run of a study, with everything that decides its result."""

    cell: StudyCell
    fold: int
    seed: int
    key: dict[str, Any]


def run_study(
    study: Study, params: Path, folder: Path, log: Callable[[str], None], only: Sequence[str] = ()
) -> int:
    """Check a study, record its file, run what is missing, and return how many training runs were run.

    Settings, features and layers of all cells are checked before the file is recorded.

    Args:
        params: the parameter file whose values the study overrides.
        folder: where results are kept.
        log: called with a line per training.
        only: the beginnings of the names of the cells to run; none: all.
    """
    content = load_params(params)
    for cell in study.cells:
        for draw in study.draws:
            settings_of(content, {**cell.overrides, **draw}, f"{study.path}: {cell.name}")
    for name in only:
        if not any(cell.name.startswith(name) for cell in study.cells):
            raise InputError(
                f"{study.path}: no cell has a name that begins with '{name}'; the first is "
                f"'{study.cells[0].name}'"
            )
    shutil.rmtree(folder / WORK, ignore_errors=True)
    workspace = Workspace(study, content, load_runtime(params), folder / WORK, folder / "scratch")
    for cell in study.cells:
        workspace.check(cell)
    planned = [
        Planned(cell, fold, seed, workspace.key(cell, fold, seed))
        for cell in study.cells
        if not only or cell.name.startswith(tuple(only))
        for fold in study.folds
        for seed in study.seeds
    ]
    record_study(study, folder)
    log(f"{study.path}: {study.digest}, {len(study.file.hypotheses)} hypotheses, recorded in {folder}")
    ran = _run_missing(workspace, planned, folder, log)
    shutil.rmtree(folder / WORK, ignore_errors=True)
    return ran


def settings_of(params: Mapping[str, Any], overrides: Mapping[str, Any], place: str) -> Settings:
    """Return the sections of `params.yaml` with overrides; one message names all faults."""
    content = {name: dict(params.get(name) or {}) for name in SECTIONS}
    known = flattened({name: schema().model_dump() for name, schema in SECTIONS.items()})
    faults = []
    for key, value in overrides.items():
        if key in known:
            put(content, key, value)
        elif key.partition(".")[0] in SECTIONS:
            close = get_close_matches(key, known, n=1)
            faults.append(f"there is no key '{key}'" + (f" (did you mean '{close[0]}'?)" if close else ""))
        else:
            faults.append(f"'{key}' is in no section of a study ({', '.join(SECTIONS)})")
    sections: dict[str, Any] = {}
    for name, schema in SECTIONS.items():
        sections[name], found = parse_section(content, name, schema)
        faults += [f"section '{name}': {each}" for each in found]
    if faults:
        raise InputError(f"{place}: {'; '.join(faults)}")
    settings = Settings(**sections)
    if settings.tokenize.vectors not in (NO_WORDS, ROWS):
        raise InputError(
            f"{place}: tokenize.vectors: a study has no pretrained word vectors; use {NO_WORDS}, or {ROWS} "
            "for the rows of `embed_text.source`"
        )
    fault = rows_fault(settings.train, settings.tokenize.vectors == ROWS)
    if fault:
        raise InputError(f"{place}: {fault}")
    method = settings.train.method
    own = settings.train.closed_form if method != "steps" else None
    if own is not None and own.choose_on != "val":
        raise InputError(
            f"{place}: train.{method}.choose_on must be 'val', the inner validation of a fold, got "
            f"'{own.choose_on}'"
        )
    return settings


class Workspace:
    """The folder in which cells run, and what they have in common."""

    def __init__(
        self, study: Study, params: Mapping[str, Any], runtime: Runtime, folder: Path, scratch: Path
    ) -> None:
        self._study = study
        self._params = params
        self._runtime = runtime
        self._folder = folder
        self._job = Job(prepare_device(runtime), scratch)
        self._common: dict[Hashable, Any] = {}

    def check(self, cell: StudyCell) -> None:
        """Check that the features and layers of a cell exist, and that a projection makes it smaller."""
        settings = self._settings(cell, 0, {})
        place, section = f"{self._study.path}: {cell.name}", settings.embed
        if settings.tokenize.vectors == ROWS:
            text = Rows.open(Path(settings.embed_text.source), FEATURES)
            kept_features(text, settings.embed_text.choices(), settings.embed_text.kind)
        rows = open_source(Path(section.source))
        try:
            features = kept_features(rows, section.choices(), section.kind)
        except InputError as error:
            raise InputError(f"{place}: {error.message}") from None
        if cell.project and int(cell.project.partition(":")[2]) > features:
            raise InputError(
                f"{place}: study.project is {cell.project}, but the embedding has {features} values"
            )

    def key(self, cell: StudyCell, fold: int, seed: int) -> dict[str, Any]:
        """Return everything that decides a result."""
        listed = [self._settings(cell, seed, draw) for draw in self._study.draws]
        first = listed[0]
        captions, _ = self._captions(first, fold)
        trainer = {"trainer": TRAINER_VERSION} if first.train.method == "steps" else {}
        text = {}
        if first.tokenize.vectors == ROWS:
            source = Rows.open(Path(first.embed_text.source), FEATURES)
            text = {
                "embed_text": first.embed_text.model_dump(exclude={"source"}),
                "caption_features": source.artifact.digest,
            }
        return {
            "version": VERSION,
            **trainer,
            **text,
            "embed": first.embed.model_dump(exclude={"source"}),
            "project": cell.project,
            "tokenize": first.tokenize.model_dump(),
            "train": [each.train.applied() for each in listed],
            "activations": open_source(Path(first.embed.source)).artifact.digest,
            "captions": self._captioned(captions)[1].digest,
        }

    def run(self, cell: StudyCell, fold: int, seed: int) -> StudyResult:
        """Train a cell on a fold, with each draw of the tuned key; rank the test images with the best."""
        settings = self._settings(cell, seed, {})
        use_training_threads(settings.train.threads)  # a projection is part of the training
        captions, tokens = self._captions(settings, fold)
        embeddings, size = self._embed(cell, settings, captions)
        inputs = read_inputs(embeddings, captions, tokens, self._embed_text(settings, captions))
        trials: list[dict[str, Any]] = []
        best: tuple[float, Matcher] | None = None
        for draw in self._study.draws:
            train = self._settings(cell, seed, draw).train
            use_training_threads(train.threads)
            matcher, validation, chosen = self._train(train, inputs, tokens)
            trials.append({"draw": draw, "validation": validation, "chosen": chosen})
            if best is None or validation > best[0]:  # the first of equal ones
                best = validation, matcher
        assert best is not None
        tested = captioned_in(self._captioned(captions)[0], "test")
        pairs = Pairs(tested, inputs.rows, inputs.captions or read_tokens(tokens))
        ranking = rank_pairs(best[1], pairs)
        return StudyResult(
            image_ids=pairs.image_ids,
            caption_image=pairs.caption_image,
            image_ranks=ranking.image_ranks.numpy(),
            caption_ranks=ranking.caption_ranks.numpy(),
            validation=best[0],
            features=inputs.features,
            size=size,
            trials=trials,
        )

    def _once(self, key: Hashable, make: Callable[[], Common]) -> Common:
        """Return what cells have in common, which is made when it is first needed."""
        if key not in self._common:
            self._common[key] = make()
        found: Common = self._common[key]
        return found

    def _settings(self, cell: StudyCell, seed: int, draw: Mapping[str, Any]) -> Settings:
        overrides = {**cell.overrides, **dict.fromkeys(SEEDS, seed), **draw}
        return settings_of(self._params, overrides, f"{self._study.path}: {cell.name}")

    def _captions(self, settings: Settings, fold: int) -> tuple[Path, Path]:
        """Return the captions of a fold with their splits, and their words."""
        file, chosen = self._study.file, settings.tokenize
        own = chosen.model_dump_json() + settings.catalog.model_dump_json()
        folder = self._folder / f"fold-{fold}-{text_digest(own)[:12]}"
        captions, tokens = folder / "captions.jsonl", folder / "tokens.h5"
        if not tokens.exists():
            folder.mkdir(parents=True, exist_ok=True)
            known = self._catalog(settings.catalog)
            divided = divide(known, file.folds, fold, file.validation, file.seed, self._study.images)
            write_captions(captions, divided)
            # The images of all folds are the same, only their splits are not.
            words = self._once(
                ("words", own),
                lambda: tokenize_captions(divided, chosen.lowercase, chosen.end_of_sentence, chosen.cut),
            )
            captioned, catalog = self._captioned(captions)
            sentences = {
                name: (each.split, words[name][1]) for each in captioned for name in each.caption_ids
            }
            in_vocabulary = [each for split, each in sentences.values() if split in chosen.vocabulary]
            numbered = choose_words(in_vocabulary, chosen.min_count)
            recorded = chosen.recorded(pretrained=False)
            write_words(folder / "vocabulary.json", tokens, sentences, numbered, recorded, catalog)
        return captions, tokens

    def _captioned(self, captions: Path) -> tuple[list[Captioned], Artifact]:
        return self._once(captions, lambda: read_captions(captions))

    def _catalog(self, settings: Catalog) -> list[Captioned]:
        def read() -> list[Captioned]:
            root, annotations = dataset_root(settings.root, settings.format, settings.annotations)
            cache = self._runtime.scratch_folder() / "catalog"
            return read_catalog(root, annotations, settings, self._runtime.workers, cache).captioned

        return self._once(settings, read)

    def _embed(self, cell: StudyCell, settings: Settings, captions: Path) -> tuple[Path, int]:
        """Write the embeddings of a cell; return their folder, and the bytes per image of their code."""
        section, path = settings.embed, self._folder / "embeddings"
        captioned, _ = self._captioned(captions)
        known, training = [record.id for record in captioned], split_ids(captioned, "train")
        rows = open_source(Path(section.source), known)
        statistics = self._once((section.source, captions), lambda: fit(rows, training))
        embedding = EMBEDDINGS[section.kind](rows, statistics, section.choices())
        lineage: Lineage = {"activations": {"digest": rows.artifact.digest, "settings": {}}}
        write_embeddings(path, rows, embedding, section.model_dump(exclude={"source"}), lineage, known)
        features = sum(layer.features for layer in embedding.layers)
        if cell.project is None:
            bits = BITS[section.kind] if section.kind in BITS else 8 * _bytes(embedding.dtype)
            return path, -(-features * bits // 8)
        projected = self._folder / "projected"
        dim = reduce_rows(Rows.open(path), training, cell.project, self._study.file.seed, projected)
        return projected, _bytes("float16") * dim

    def _embed_text(self, settings: Settings, captions: Path) -> Path | None:
        """Write the rows of captions that a cell reads in place of words, and return their file."""
        if settings.tokenize.vectors != ROWS:
            return None
        section, captioned = settings.embed_text, self._captioned(captions)[0]
        training = [each for record in captioned_in(captioned, "train") for each in record.caption_ids]
        known = [each for record in captioned for each in record.caption_ids]
        rows = Rows.open(Path(section.source), FEATURES)
        rows.check_ids(known)
        statistics = self._once((section.source, captions, FEATURES), lambda: fit(rows, training, "caption"))
        embedding = EMBEDDINGS[section.kind](rows, statistics, section.choices())
        lineage: Lineage = {FEATURES: {"digest": rows.artifact.digest, "settings": {}}}
        store, path = self._folder / "text", self._folder / "vectors.h5"
        made_with = section.model_dump(exclude={"source"})
        write_embeddings(store, rows, embedding, made_with, lineage, known, "caption_embeddings")
        write_caption_rows(path, store, captioned, self._captioned(captions)[1])
        return path

    def _train(
        self, train: Train, inputs: MatchingInputs, tokens: Path
    ) -> tuple[Matcher, float, dict[str, float]]:
        """Return a model, its sum of recalls on the inner validation, and what was chosen there.

        A closed form is fitted here, because the cells of a fold share the features of the words.
        """
        own = train.closed_form
        if train.method == "steps" or own is None or own.text == "rows":
            made = make_model(train, inputs, self._job)
            return made.matcher, made.done.kept.scores.main, {"epoch": float(made.done.kept.epoch)}

        def words() -> WordFeatures:
            captions = [caption for image in inputs.training.word_numbers() for caption in image]
            return word_features(Bags.of(captions), inputs.words, own)

        decided_by = own.model_dump(include={"text", "text_dim", "min_count"})
        features = self._once((tokens, json.dumps(decided_by)), words)
        found = align_pairs(inputs, train.method, own, features)
        chosen = {
            "image_regularization": found.chosen.image_regularization,
            "text_regularization": found.chosen.text_regularization,
            "power": found.chosen.power,
        }
        return matcher_of(found.state), found.chosen.rsum, chosen


def divide(
    captioned: Sequence[Captioned], folds: int, fold: int, validation: float, seed: int, images: int = 0
) -> list[Captioned]:
    """Return the images of a fold with their splits: train, val (the inner validation) and test.

    The division depends on the ids and the seed alone, whatever the versions of the libraries.

    Args:
        folds: how many folds there are; 0 keeps the splits of the catalog.
        fold: which of them is tested.
        validation: the fraction of the other images that is the inner validation.
        images: use only so many images, for a pilot; 0: all.
    """
    if not folds:
        if not any(record.split == "test" for record in captioned):
            raise InputError("the catalog has no test images; leave out --official to use folds")
        return list(captioned)
    known = [record for record in captioned if record.split in DIVIDED and record.captions]
    order = sorted(known, key=lambda record: _draw(seed, "fold", record.id))
    if images:
        kept = {record.id for record in order[:images]}
        order, known = order[:images], [record for record in known if record.id in kept]
    if len(known) < 3 * folds:
        raise InputError(
            f"{len(known)} images of train and val cannot be divided: {folds} folds need {3 * folds}"
        )
    number = {record.id: place % folds for place, record in enumerate(order)}
    rest = sorted(
        (record.id for record in known if number[record.id] != fold),
        key=lambda each: _draw(seed, "validation", each),
    )
    held = set(rest[: max(1, round(validation * len(rest)))])
    return [
        replace(
            record, split="test" if number[record.id] == fold else "val" if record.id in held else "train"
        )
        for record in known
    ]


def reduce_rows(rows: Rows, training: Sequence[str], projection: str, seed: int, path: Path) -> int:
    """Write a store with rows of fewer values (`pca:N` or `random:N`), in float16; return how many.

    The mean and the principal components about it are those of the training images.
    """
    how, _, number = projection.partition(":")
    dim = int(number)
    if dim > min(rows.features, len(training)):
        raise InputError(
            f"study.project: {projection} of {rows.features} values and {len(training)} training images; "
            "choose a smaller number"
        )
    known = rows.read(training).astype(np.float32)
    mean = known.mean(axis=0, dtype=np.float64).astype(np.float32)
    if how == "pca":
        centered = torch.from_numpy(known - mean)
        axes = leading_eigenvectors((centered.T @ centered).double() / len(known), dim).numpy()
    else:
        generator = np.random.default_rng(seed)
        axes = generator.standard_normal((rows.features, dim)) / np.sqrt(dim)
    axes = axes.astype(np.float32)

    def project(values: np.ndarray) -> np.ndarray:
        # Not with NumPy: the threads of its BLAS are not those of the training.
        projected: np.ndarray = (torch.from_numpy(values - mean) @ torch.from_numpy(axes)).numpy()
        return projected

    # One scale for all values keeps them within float16, whatever the embedding.
    scale = np.float32(1 / (np.abs(project(known)).max() or 1.0))
    shards = (
        (number, ids, project(rows.read(ids).astype(np.float32)) * scale)
        for number, ids in rows.plan().items()
    )
    settings = rows.artifact.settings | {"project": projection, "seed": seed}
    lineage = rows.artifact.lineage | {"unprojected": {"digest": rows.artifact.digest, "settings": {}}}
    write_rows(path, "embeddings", [Layer("projected", dim)], "float16", shards, settings, lineage)
    return dim


def _run_missing(
    workspace: Workspace, planned: Sequence[Planned], folder: Path, log: Callable[[str], None]
) -> int:
    """Run the training runs that have no result yet; return how many."""
    missing = [
        each for each in planned if find_result(folder, each.cell, each.fold, each.seed, each.key) is None
    ]
    finished = len(planned) - len(missing)
    if missing and finished:
        log(f"{finished} of {len(planned)} training runs are finished")
    start = time.monotonic()
    for ran, each in enumerate(missing, start=1):
        computed = time.process_time()
        result = workspace.run(each.cell, each.fold, each.seed)
        keep_result(folder, each.cell, each.fold, each.seed, each.key, result)
        line = (
            f"{finished + ran} of {len(planned)}: {each.cell.name}, fold {each.fold}, "
            f"seed {each.seed}: validation {result.validation:.1f}, test {result.rsum:.1f}, "
            f"{time.process_time() - computed:.1f} s of one core"
        )
        left = (len(missing) - ran) * (time.monotonic() - start) / ran
        log(f"{line}, about {format_time(left)} left" if ran < len(missing) else line)
    return len(missing)


def _draw(seed: int, purpose: str, image: str) -> bytes:
    return hashlib.sha256(f"{seed} {purpose} {image}".encode()).digest()


def _bytes(dtype: str) -> int:
    return np.dtype(dtype).itemsize
