"""What the pages about retrieval are made from: the main one, and that of the tuned model."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fne.core.dvc import repro_command
from fne.core.files import write_text
from fne.core.terminal import say
from fne.evaluation.baseline import baseline_artifact, read_baseline
from fne.evaluation.ranks_file import RANKS
from fne.evaluation.read_sentences import SentenceReader
from fne.experiments.compare import compare
from fne.experiments.tables import find_paper_row
from fne.report.explanations import explain_gallery
from fne.report.facts import history_unit
from fne.report.frame import PageSource
from fne.report.gallery import choose_gallery
from fne.report.page import render
from fne.report.record import REPORT, pages_of_other_catalogs
from fne.report.settings import Report
from fne.report.sources import Levels, Tuning, read_evaluation, read_history, read_training, read_tuning
from fne.store.arrays import read_arrays
from fne.store.artifact import Artifact, require_same
from fne.store.history import MODEL
from fne.store.lineage import check_records

TUNED_PAGE = "tuned_page"  # in records


@dataclass(frozen=True)
class Places:
    """The files that a page is made from."""

    metrics: Path
    intervals: Path
    ranks: Path
    baseline: Path
    training: Path
    history: Path
    images: Path
    captions: Path
    # The model, its vocabulary and the vectors of images, to leave words out; None for a page without that.
    reader: tuple[Path, Path, Path] | None = None


@dataclass(frozen=True)
class TuningPlaces:
    """The files about a fine-tuning, and the ranks of the model before it."""

    metrics: Path
    history: Path
    ranks_before: Path


def write_page(
    page: Path, places: Places, settings: Report, root: str, tuning: TuningPlaces | None = None
) -> None:
    """Write a page about the model that was evaluated, with its fine-tuning if it was tuned.

    Args:
        root: `catalog.root`.
    """
    evaluation = read_evaluation(places.metrics, places.intervals, places.ranks)
    source = PageSource.read(evaluation.artifact, places.images, places.captions, root)
    gallery = choose_gallery(evaluation, settings.examples, settings.seed)
    reader = SentenceReader.open(*places.reader, evaluation.artifact) if places.reader else None
    gallery, explanations = explain_gallery(gallery, evaluation, source.captioned, reader)
    paper_row = find_paper_row(places.metrics.read_bytes(), evaluation.artifact, source.captioned)
    name = evaluation.artifact.settings["name"]
    closed_form = read_baseline(places.baseline, name, evaluation.artifact.lineage)
    check_records(baseline_artifact(places.baseline))
    found = read_training(places.training, evaluation.artifact)
    levels = {"chance": {"rsum": found["validation"]["chance"]}}
    if closed_form.validation is not None:
        levels["baseline"] = {"rsum": closed_form.validation}
    curves = read_history(places.history, evaluation.artifact, levels, history_unit(source.lineage))
    tuned = _read_tuning(tuning, places.ranks, evaluation.artifact, levels) if tuning else None
    own = TUNED_PAGE if tuning else REPORT
    frame = source.frame(own, settings.model_dump(), gallery.image_ids, curves)
    text = render(evaluation, frame, gallery, explanations, paper_row, closed_form, found, tuned)
    write_text(page, text)
    _name_others(page, pages_of_other_catalogs(page, source.lineage))


def _read_tuning(tuning: TuningPlaces, ranks: Path, evaluation: Artifact, levels: Levels) -> Tuning:
    """Read a fine-tuning, and compare the ranks of its model with those of the model before it."""
    before, after = (read_arrays(path, RANKS) for path in (tuning.ranks_before, ranks))
    require_same((MODEL,), before.artifact, after.artifact)
    check_records(before.artifact)
    return read_tuning(tuning.metrics, tuning.history, evaluation, compare([before], [after]), levels)


def _name_others(page: Path, others: Iterable[Path]) -> None:
    """Say which pages beside a page are about another catalog, and how to make them again."""
    commands = {str(each): repro_command(each) for each in others}
    if commands:
        again = f"dvc repro {' '.join(dict.fromkeys(commands.values()))}".strip()
        say(
            f"{', '.join(commands)}: made from another catalog than {page}; make them again with `{again}`, "
            "or remove them"
        )
