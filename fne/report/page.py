"""The report page: one HTML file that is rendered from the templates of this package.

The templates escape every value. The content security policy of the page forbids network
requests and all scripts but its own, so a hostile caption is shown and never executed. Images
are embedded as small data URIs, so that the page needs no other file.
"""

import base64
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fne.core.errors import InputError
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
from fne.report.gallery import OUTCOMES, Gallery, count_outcomes
from fne.report.result_rows import Row, chance_recall, results_table, small_split, start_sentence
from fne.report.sources import TUNED, Evaluation, History, Tuning
from fne.store.artifact import Lineage
from fne.store.catalog import Captioned, Image
from fne.store.images import UndecodableError, decode_bytes, read_image_file

TEMPLATES = Path(__file__).parent / "templates"
THUMBNAIL_SIDE = 256  # pixels
THUMBNAIL_QUALITY = 80  # JPEG quality

EVALUATED = "evaluated here"
BASELINE_NOTE = "The baseline is the closed form with the same features, on the same validation images."
# DVC sets it for the stages of an experiment.
EXPERIMENT = "DVC_EXP_NAME"
MODELS = ("model", "tuned", "tagger", "captioner")  # in lineages


def render(
    evaluation: Evaluation,
    lineage: Lineage,
    history: History,
    gallery: Gallery,
    captioned: Sequence[Captioned],
    thumbnails: Mapping[str, str],
    paper_row: PaperRow | None,
    baseline: Baseline,
    head: Mapping[str, str],
    training: Mapping[str, Any],
    tuning: Tuning | None = None,
    record: str = "",
    explanations: Explanations | None = None,
) -> str:
    """Return the page as HTML; equal inputs give equal text.

    Args:
        thumbnails: a data URI per image id; images without one are shown by their id.
        paper_row: the published results of the same experiment, if any.
        head: what the page is about, by title.
        training: the content of `metrics/training.json`.
        record: how the page was made, of `fne.report.record`.
        explanations: the words of the sentences of the gallery.
    """
    rows = results_table(evaluation, paper_row, baseline)
    values = {
        **_results(evaluation, gallery, captioned, rows, thumbnails, explanations),
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
        "facts": {**head, **main_settings(lineage), **counts(captioned, lineage)},
    }
    return render_page("page.html", values, lineage, history, thumbnails, record)


def render_imported(
    evaluation: Evaluation,
    lineage: Lineage,
    gallery: Gallery,
    captioned: Sequence[Captioned],
    thumbnails: Mapping[str, str],
    head: Mapping[str, str],
    record: str,
    explanations: Explanations,
) -> str:
    """Return the page about imported vectors as HTML; see `render` for what it is given."""
    facts = {"Similarity": str(evaluation.artifact.settings["similarity"]), "Model": "not trained here"}
    values = {
        **_results(
            evaluation,
            gallery,
            captioned,
            results_table(evaluation, None, None),
            thumbnails,
            explanations,
        ),
        "paper_row": None,
        "layers": [],
        "not_started": None,
        "tuning": None,
        "facts": {**head, **facts, **counts(captioned, {})},
    }
    return render_page("imported.html", values, lineage, History({}), thumbnails, record)


def _results(
    evaluation: Evaluation,
    gallery: Gallery,
    captioned: Sequence[Captioned],
    rows: Sequence[Row],
    thumbnails: Mapping[str, str],
    explanations: Explanations | None,
) -> dict[str, Any]:
    """Return what pages about retrieval show of an evaluation, by the names of the template."""
    captions = {
        record.id: dict(zip(record.caption_ids, record.captions, strict=True)) for record in captioned
    }
    sentences = {id_: text for texts in captions.values() for id_, text in texts.items()}
    return {
        "evaluation": evaluation,
        "glances": glance(gallery, evaluation.text_to_image, sentences, thumbnails),
        "explained": explanations or Explanations(),
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
    template: str,
    values: Mapping[str, Any],
    lineage: Lineage,
    history: History,
    thumbnails: Mapping[str, str],
    record: str,
    scripts: Sequence[str] = ("search.js",),
) -> str:
    """Return a page about a trained model as HTML; `template` extends `base.html`.

    Args:
        values: what the template shows, by name.
        thumbnails: a data URI per image id; images without one are shown by their id.
        record: how the page was made, of `fne.report.record`.
    """
    script = "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in scripts)
    shared = {
        "record": record,
        "glances": [],
        "learning_curves": learning_curves(history),
        "kept": kept_sentence({}, history.unit, EVALUATED),
        "levels_note": "",
        "thumbnails": thumbnails,
        "untrained": settings_of(lineage, "weights").get("untrained", False),
        "chosen": chosen_by(values["split"]) if _chooses(lineage) else None,
        "ancestors": ancestors(lineage),
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


def make_thumbnails(ids: Iterable[str], images: Iterable[Image], root: Path) -> dict[str, str]:
    """Return a thumbnail, as a data URI, for each of `ids` that has an image in the catalog."""
    catalog = {image.id: image for image in images}
    return {id_: thumbnail(root / catalog[id_].path, catalog[id_].sha256) for id_ in ids if id_ in catalog}


def thumbnail(path: Path, sha256: str) -> str:
    """Return a JPEG of at most 256 x 256 pixels, as a data URI; a file that has changed since is refused."""
    try:
        data = read_image_file(path)
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise InputError(
                f"{path}: the digest of the file is {found[:12]}…, but the catalog has {sha256[:12]}…; "
                "run `dvc repro`"
            )
        picture = decode_bytes(data)
    except UndecodableError as error:
        raise InputError(f"{path}: {error}; run `dvc repro`") from None
    picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=THUMBNAIL_QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
