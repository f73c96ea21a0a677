"""Running the cells of a study, in one process and in folders of its own: the project is not changed.

A cell goes through the functions of the pipeline's stages: statistics, embeddings, training, ranks. What
cells have in common is made once per fold: the captions with their splits, their words, the features of
their words, and the statistics of the activations. The embeddings of a cell are removed when its ranks
are kept.

A finished training is kept with the settings and the digests of the inputs that decided it. It is used
again only for the same ones, so a study that was killed continues where it stopped.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fne.core.device import prepare_device, use_training_threads
from fne.core.effective_settings import flattened, put
from fne.core.errors import InputError
from fne.core.files import text_digest
from fne.core.params import Runtime, Section, load_params, load_runtime, parse_section
from fne.core.terminal import format_time
from fne.datasets.location import dataset_root
from fne.datasets.read import Catalog, build_catalog
from fne.datasets.readers import read_dataset
from fne.evaluation.metrics.ranks import rank
from fne.experiments.study_file import SEEDS, Study, StudyCell
from fne.experiments.study_folds import divide
from fne.experiments.study_projection import reduce_rows
from fne.experiments.study_record import WORK, StudyResult, find_result, keep_result, record_study
from fne.features.embeddings import EMBEDDINGS, Embed, kept_features
from fne.features.standardize import Statistics, fit
from fne.features.write_embeddings import open_source, write_embeddings
from fne.matching.closed_form import ClosedForm, align_pairs, to_matcher, word_features
from fne.matching.data import MatchingInputs, Pairs, read_inputs
from fne.matching.encode import encode_captions, encode_images
from fne.matching.methods import make_model
from fne.matching.model import Matcher
from fne.matching.settings import Train
from fne.store.artifact import Artifact, Lineage, merge
from fne.store.catalog import Captioned, captioned_in, read_captions, split_ids, write_captions
from fne.store.rows import Rows
from fne.text.bags import Bags, WordFeatures
from fne.text.tokenizer import tokenize_captions
from fne.text.tokens import read_tokens, write_tokens
from fne.text.vocabulary import Tokenize, choose_words, write_vocabulary
from fne.training.finished_runs import TRAINER_VERSION
from fne.training.run import Job

# Raised whenever the same settings and inputs give other ranks.
VERSION = 1
SECTIONS: dict[str, type[Section]] = {
    "catalog": Catalog,
    "embed": Embed,
    "tokenize": Tokenize,
    "train": Train,
}
# The bits of a value where a store takes more: scaled rows of a discrete code follow from the code.
BITS = {"fne": 2, "sign": 1}
NO_WORDS = "weights/no_words.yaml"


@dataclass(frozen=True)
class Settings:
    """The validated sections of a training."""

    catalog: Catalog
    embed: Embed
    tokenize: Tokenize
    train: Train


def settings_of(params: Mapping[str, Any], overrides: Mapping[str, Any], place: str) -> Settings:
    """Return the sections of `params.yaml` with overrides.

    Raises:
        InputError: naming every fault at once, and keys that do not exist.
    """
    content = {name: dict(params.get(name, {})) for name in SECTIONS}
    known = flattened(content)
    faults = []
    for key, value in overrides.items():
        if key not in known and key.partition(".")[0] in SECTIONS:
            faults.append(f"params.yaml has no key '{key}'")
        elif key not in known:
            faults.append(f"'{key}' is in no section of a study ({', '.join(SECTIONS)})")
        put(content, key, value)
    sections: dict[str, Any] = {}
    for name, schema in SECTIONS.items():
        sections[name], found = parse_section(content, name, schema)
        faults += [f"section '{name}': {each}" for each in found]
    if faults:
        raise InputError(f"{place}: {'; '.join(faults)}")
    settings = Settings(**sections)
    if settings.tokenize.vectors != NO_WORDS:
        raise InputError(f"{place}: tokenize.vectors: a study has no pretrained word vectors; use {NO_WORDS}")
    method = settings.train.method
    own = settings.train.methods.get(method)
    if isinstance(own, ClosedForm) and own.choose_on != "val":
        raise InputError(
            f"{place}: train.methods.{method}.choose_on must be 'val', the inner validation of a fold, got "
            f"'{own.choose_on}'"
        )
    return settings


@dataclass(frozen=True)
class Planned:
    """A training of a study, with everything that decides its result."""

    cell: StudyCell
    fold: int
    seed: int
    key: dict[str, Any]


def plan_study(study: Study, params: Path, folder: Path, only: Sequence[str] = ()) -> "Plan":
    """Return the trainings of a study, after a check of everything that they need.

    Args:
        study: the study.
        params: the parameter file whose values the study overrides.
        folder: where results are kept.
        only: the beginnings of the names of the cells to run; none: all.

    Raises:
        InputError: if settings, images, features or layers of any cell are wrong or missing, or if no cell
            has such a name.
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
    chosen = [cell for cell in study.cells if not only or cell.name.startswith(tuple(only))]
    planned = [
        Planned(cell, fold, seed, workspace.key(cell, fold, seed))
        for cell in chosen
        for fold in study.folds
        for seed in study.seeds
    ]
    return Plan(workspace, folder, planned)


def run_study(
    study: Study, params: Path, folder: Path, log: Callable[[str], None], only: Sequence[str] = ()
) -> int:
    """Check a study, record its file, run what is missing, and return how many trainings were run.

    Arguments and errors are those of `plan_study`; `log` is called with a line per training.
    """
    plan = plan_study(study, params, folder, only)
    record_study(study, folder)
    log(f"{study.path}: {study.digest}, {len(study.file.hypotheses)} hypotheses, recorded in {folder}")
    return plan.run(log)


@dataclass(frozen=True)
class Plan:
    """The trainings of a study, checked and ready to run."""

    workspace: "Workspace"
    folder: Path
    planned: list[Planned]

    def run(self, log: Callable[[str], None]) -> int:
        """Run what is missing, with a line for each training to `log`; return how many trainings were run."""
        folder, planned = self.folder, self.planned
        missing = [
            each for each in planned if find_result(folder, each.cell, each.fold, each.seed, each.key) is None
        ]
        if missing and len(missing) < len(planned):
            log(f"{len(planned) - len(missing)} of {len(planned)} trainings are finished")
        start = time.monotonic()
        for ran, each in enumerate(missing, start=1):
            computed = time.process_time()
            result = self.workspace.run(each.cell, each.fold, each.seed)
            keep_result(folder, each.cell, each.fold, each.seed, each.key, result)
            line = (
                f"{len(planned) - len(missing) + ran} of {len(planned)}: {each.cell.name}, fold {each.fold}, "
                f"seed {each.seed}: validation {result.validation:.1f}, test {result.rsum:.1f}, "
                f"{time.process_time() - computed:.1f} s of one core"
            )
            left = (len(missing) - ran) * (time.monotonic() - start) / ran
            log(f"{line}, about {format_time(left)} left" if ran < len(missing) else line)
        shutil.rmtree(folder / WORK, ignore_errors=True)
        return len(missing)


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
        self._images: dict[Catalog, list[Captioned]] = {}
        self._sentences: dict[str, dict[str, list[str]]] = {}  # the words of each caption
        self._statistics: dict[tuple[str, Path], Statistics] = {}
        self._words: dict[tuple[str, ...], WordFeatures] = {}
        self._read: dict[Path, tuple[list[Captioned], Artifact]] = {}  # captions

    def check(self, cell: StudyCell) -> None:
        """Check that the layers of a cell exist, and that a projection makes it smaller.

        Raises:
            InputError: if not, or if its features are missing.
        """
        place, section = f"{self._study.path}: {cell.name}", self._settings(cell, 0, {}).embed
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
        return {
            "version": VERSION,
            **trainer,
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
        inputs = read_inputs(embeddings, captions, tokens)
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
        pairs = Pairs(tested, Rows.open(embeddings), read_tokens(tokens))
        owners = np.repeat(np.arange(len(tested)), pairs.caption_counts)
        images = torch.cat(list(encode_images(best[1], pairs, pairs.image_ids)))
        sentences = torch.cat(list(encode_captions(best[1], pairs, pairs.caption_ids)))
        ranking = rank(images, sentences, torch.from_numpy(owners), best[1].similarity, 0)
        return StudyResult(
            image_ids=pairs.image_ids,
            caption_image=owners,
            image_ranks=ranking.image_ranks.numpy(),
            caption_ranks=ranking.caption_ranks.numpy(),
            validation=best[0],
            features=inputs.features,
            size=size,
            trials=trials,
        )

    def _settings(self, cell: StudyCell, seed: int, draw: Mapping[str, Any]) -> Settings:
        overrides = {**cell.overrides, **dict.fromkeys(SEEDS, seed), **draw}
        return settings_of(self._params, overrides, f"{self._study.path}: {cell.name}")

    def _captions(self, settings: Settings, fold: int) -> tuple[Path, Path]:
        """Return the captions of a fold with their splits, and their words."""
        file, own = self._study.file, settings.tokenize.model_dump_json() + settings.catalog.model_dump_json()
        folder = self._folder / f"fold-{fold}-{text_digest(own)[:12]}"
        captions, tokens = folder / "captions.jsonl", folder / "tokens.h5"
        if not tokens.exists():
            folder.mkdir(parents=True, exist_ok=True)
            known = self._catalog(settings.catalog)
            divided = divide(known, file.folds, fold, file.validation, file.seed, self._study.images)
            write_captions(captions, divided)
            if own not in self._sentences:  # the images of all folds are the same
                chosen = settings.tokenize
                cut = tokenize_captions(divided, chosen.lowercase, chosen.end_of_sentence, chosen.cut)
                self._sentences[own] = {caption_id: words for caption_id, (_, words) in cut.items()}
            vocabulary = folder / "vocabulary.json"
            _write_tokens(captions, tokens, vocabulary, settings.tokenize, self._sentences[own])
        return captions, tokens

    def _captioned(self, captions: Path) -> tuple[list[Captioned], Artifact]:
        if captions not in self._read:
            self._read[captions] = read_captions(captions)
        return self._read[captions]

    def _catalog(self, settings: Catalog) -> list[Captioned]:
        if settings not in self._images:
            root, annotations = dataset_root(settings.root, settings.format, settings.annotations)
            reading = read_dataset(root, settings.format, annotations, settings.columns)
            cache = self._runtime.scratch_folder() / "catalog"
            workers, captions = self._runtime.workers, settings.captions_per_image
            found = build_catalog(
                root, reading, settings.images, settings.splitting, workers, cache, captions
            )
            self._images[settings] = found.captioned
        return self._images[settings]

    def _embed(self, cell: StudyCell, settings: Settings, captions: Path) -> tuple[Path, int]:
        """Write the embeddings of a cell; return their folder, and the bytes per image of their code."""
        section, path = settings.embed, self._folder / "embeddings"
        captioned, _ = self._captioned(captions)
        rows = open_source(Path(section.source), [record.id for record in captioned])
        training = split_ids(captioned, "train")
        common = section.source, captions
        if common not in self._statistics:
            self._statistics[common] = fit(rows, training)
        embedding = EMBEDDINGS[section.kind](rows, self._statistics[common], section.choices())
        lineage: Lineage = {"activations": {"digest": rows.artifact.digest, "settings": {}}}
        known = [record.id for record in captioned]
        write_embeddings(path, rows, embedding, section.model_dump(exclude={"source"}), lineage, known)
        features = sum(layer.features for layer in embedding.layers)
        if cell.project is None:
            bits = BITS[section.kind] if section.kind in BITS else 8 * _bytes(embedding.dtype)
            return path, -(-features * bits // 8)
        projected = self._folder / "projected"
        dim = reduce_rows(Rows.open(path), training, cell.project, self._study.file.seed, projected)
        return projected, _bytes("float16") * dim

    def _train(
        self, train: Train, inputs: MatchingInputs, tokens: Path
    ) -> tuple[Matcher, float, dict[str, float]]:
        """Return a model, its sum of recalls on the inner validation, and what a closed form chose."""
        own = train.methods.get(train.method)
        if not isinstance(own, ClosedForm):
            made = make_model(train, inputs, self._job)
            return made.matcher, made.done.kept.scores.main, {"epoch": float(made.done.kept.epoch)}
        found = align_pairs(inputs, train.method, own, self._word_features(own, inputs, tokens))
        chosen = {
            "image_regularization": found.chosen.image_regularization,
            "text_regularization": found.chosen.text_regularization,
            "power": found.chosen.power,
        }
        return to_matcher(found), found.chosen.rsum, chosen

    def _word_features(self, own: ClosedForm, inputs: MatchingInputs, tokens: Path) -> WordFeatures:
        decided_by = own.model_dump(include={"text", "text_dim", "min_count"})
        key = (str(tokens), json.dumps(decided_by))
        if key not in self._words:
            captions = [caption for image in inputs.training.word_numbers() for caption in image]
            self._words[key] = word_features(Bags.of(captions), inputs.words, own)
        return self._words[key]


def _write_tokens(
    captions: Path, tokens: Path, vocabulary: Path, settings: Tokenize, sentences: Mapping[str, list[str]]
) -> None:
    """Write what the stage `tokenize` writes, from the words of all captions."""
    captioned, catalog = read_captions(captions)
    in_vocabulary = [
        sentences[caption_id]
        for record in captioned
        if record.split in settings.vocabulary
        for caption_id in record.caption_ids
    ]
    recorded = settings.recorded(pretrained=False)
    known = write_vocabulary(vocabulary, choose_words(in_vocabulary, settings.min_count), recorded)
    encoded = {
        caption_id: known.encode(sentences[caption_id])
        for record in captioned
        for caption_id in record.caption_ids
    }
    write_tokens(tokens, encoded, recorded | {"words": len(known.words)}, merge(catalog, known.artifact))


def _bytes(dtype: str) -> int:
    return np.dtype(dtype).itemsize
