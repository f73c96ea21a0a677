"""The page itself: everything it says, put into words and handed to the template.

The template escapes whatever it prints, and the page forbids itself network requests and
every script but its own, so a caption can say anything without doing anything.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fne.report.curves import rank_histogram, recall_curve
from fne.report.evaluation import Evaluation
from fne.report.facts import ancestors, counts, facts, phases, settings_of
from fne.report.gallery import Gallery
from fne.report.guessing import guessed_recall
from fne.report.history import History
from fne.report.layers import layer_shares
from fne.report.learning import learning_curves
from fne.report.results import Printed, results_table
from fne.store.catalog import Captioned
from fne.store.lineage import Lineage

FOLDER = Path(__file__).parent


def render(
    evaluation: Evaluation,
    lineage: Lineage,
    history: History,
    gallery: Gallery,
    captioned: Sequence[Captioned],
    thumbnails: Mapping[str, str],
    printed: Printed | None,
) -> str:
    """Return the page as HTML; equal inputs give equal text."""
    captions = {
        record.id: dict(zip(record.caption_ids, record.captions, strict=True)) for record in captioned
    }
    script = (FOLDER / "search.js").read_text(encoding="utf-8")
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        evaluation=evaluation,
        ways=[
            ("image_to_text", "Image → sentences", evaluation.image_to_text),
            ("text_to_image", "Sentence → images", evaluation.text_to_image),
        ],
        rows=results_table(evaluation, printed),
        printed=printed,
        guessed_recall=guessed_recall,
        recall_curve=recall_curve,
        rank_histogram=rank_histogram,
        learning_curves=learning_curves(history),
        unit=history.unit,
        phases=phases(lineage, history),
        shares=layer_shares(lineage),
        gallery=gallery,
        captions=captions,
        sentences={id_: text for texts in captions.values() for id_, text in texts.items()},
        thumbnails=thumbnails,
        untrained=settings_of(lineage, "weights").get("untrained", False),
        started=settings_of(lineage, "model").get("started", True),
        facts=facts(lineage) | counts(captioned, lineage),
        ancestors=ancestors(lineage),
        script=Markup(script),  # noqa: S704 - a file of ours, nothing of the run's in it
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
