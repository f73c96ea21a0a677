"""The report page: one HTML file that is rendered from the templates of this package.

The templates escape every value. The content security policy of the page forbids network
requests and all scripts but its own, so a hostile caption is shown and never executed. Images
are embedded as small data URIs, so that the page needs no other file.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fne.evaluation.baseline import Baseline
from fne.evaluation.metrics.recall import chosen_by
from fne.experiments.tables import PaperRow
from fne.report.charts import learning_curves, rank_histogram, recall_curve
from fne.report.explanations import Explanations, glance
from fne.report.facts import (
    ancestors,
    counts,
    kept_sentence,
    layer_fractions,
    main_settings,
    phases,
    settings_of,
)
from fne.report.frame import Frame
from fne.report.gallery import OUTCOMES, Gallery, count_outcomes
from fne.report.result_rows import Row, chance_recall, results_table, small_split, start_sentence
from fne.report.sources import TUNED, Evaluation, Tuning
from fne.store.artifact import Lineage

TEMPLATES = Path(__file__).parent / "templates"
EVALUATED = "evaluated here"
BASELINE_NOTE = "The baseline is the closed form with the same features, on the same validation images."
MODELS = ("model", "tuned", "tagger", "captioner")  # in lineages


def render(
    evaluation: Evaluation,
    frame: Frame,
    gallery: Gallery,
    explanations: Explanations,
    paper_row: PaperRow | None,
    baseline: Baseline,
    training: Mapping[str, Any],
    tuning: Tuning | None = None,
) -> str:
    """Return the page as HTML; equal inputs give equal text.

    Args:
        explanations: the words of the sentences of the gallery.
        paper_row: the published results of the same experiment, if any.
        training: the content of `metrics/training.json`.
    """
    lineage, history = frame.lineage, frame.history
    rows = results_table(evaluation, paper_row, baseline)
    values = {
        **_results(evaluation, frame, gallery, explanations, rows),
        "paper_row": paper_row,
        "phases": phases(lineage, history),
        "levels_note": BASELINE_NOTE if "baseline" in history.levels else "",
        "layers": layer_fractions(lineage),
        "not_started": start_sentence(lineage, training, tuning.metrics if tuning else None),
        "kept": kept_sentence(
            settings_of(lineage, "model"),
            history.unit,
            "that the fine-tuning below starts from" if tuning else EVALUATED,
        ),
        "tuning": tuning and tuning.metrics,
        "gain": tuning.gain if tuning else [],
        "tuning_kept": kept_sentence(settings_of(lineage, TUNED), "epoch", EVALUATED),
        "tuning_curves": learning_curves(tuning.history) if tuning else [],
        "facts": {**frame.head, **main_settings(lineage), **counts(frame.captioned, lineage)},
    }
    return render_page("page.html", values, frame)


def render_imported(
    evaluation: Evaluation, frame: Frame, gallery: Gallery, explanations: Explanations
) -> str:
    """Return the page about imported vectors as HTML; see `render` for what it is given."""
    facts = {"Similarity": str(evaluation.artifact.settings["similarity"]), "Model": "not trained here"}
    values = {
        **_results(evaluation, frame, gallery, explanations, results_table(evaluation)),
        "paper_row": None,
        "layers": [],
        "not_started": None,
        "tuning": None,
        "facts": {**frame.head, **facts, **counts(frame.captioned, {})},
    }
    return render_page("imported.html", values, frame)


def _results(
    evaluation: Evaluation,
    frame: Frame,
    gallery: Gallery,
    explanations: Explanations,
    rows: Sequence[Row],
) -> dict[str, Any]:
    """Return what pages about retrieval show of an evaluation, by the names of the template."""
    captions = {
        record.id: dict(zip(record.caption_ids, record.captions, strict=True)) for record in frame.captioned
    }
    sentences = {id_: text for texts in captions.values() for id_, text in texts.items()}
    return {
        "evaluation": evaluation,
        "glances": glance(gallery, evaluation.text_to_image, sentences, frame.thumbnails),
        "explained": explanations,
        "outcomes": OUTCOMES,
        "counts": {
            "images": count_outcomes(evaluation.image_to_text.ranks),
            "sentences": count_outcomes(evaluation.text_to_image.ranks),
        },
        "directions": [
            ("image_to_text", "Image → sentences", evaluation.image_to_text),
            ("text_to_image", "Sentence → images", evaluation.text_to_image),
        ],
        "rows": rows,
        "chance_recall": chance_recall,
        "recall_curve": recall_curve,
        "rank_histogram": rank_histogram,
        "gallery": gallery,
        "captions": captions,
        "sentences": sentences,
        "small_split": small_split(evaluation),
        "split": evaluation.split,
    }


def render_page(
    template: str, values: Mapping[str, Any], frame: Frame, scripts: Sequence[str] = ("search.js",)
) -> str:
    """Return a page about a trained model as HTML; `template` extends `base.html`.

    Args:
        values: what the template shows, by name.
    """
    script = "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in scripts)
    shared = {
        "record": frame.record,
        "glances": [],
        "learning_curves": learning_curves(frame.history),
        "kept": kept_sentence({}, frame.history.unit, EVALUATED),
        "levels_note": "",
        "thumbnails": frame.thumbnails,
        "untrained": settings_of(frame.lineage, "weights").get("untrained", False),
        "chosen": chosen_by(values["split"]) if _chooses(frame.lineage) else None,
        "ancestors": ancestors(frame.lineage),
        "script": Markup(script),  # noqa: S704 - files of this package, without data of the run
        "script_digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    return environment().get_template(template).render(shared | dict(values))


def _chooses(lineage: Lineage) -> bool:
    """Return whether the validation split chose the weights of the model."""
    model = {key: value for name in MODELS for key, value in settings_of(lineage, name).items()}
    return model.get("keep") == "best" and model.get("method", "steps") == "steps"


def environment() -> Environment:
    """Return what renders the templates of this package: values are escaped, a missing one is an error."""
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
