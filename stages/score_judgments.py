"""Stage `score_judgments`: how well the model agrees with what people say about pairs."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.evaluation.judgments import Judgments, read_judgments
from fne.evaluation.judgments_file import BASELINE, MODEL, headline, left_out_lines, write_judgments
from fne.evaluation.protocols import Evaluate, choose_folds, metrics_name, refuse_leaks
from fne.evaluation.score_judgments import Scored, score
from fne.matching.closed_form_vectors import closed_form_vectors
from fne.matching.data import read_inputs
from fne.matching.model_file import require_same_model
from fne.matching.second_moments import AlignmentError
from fne.matching.settings import Baseline
from fne.matching.similarities import SIMILARITIES
from fne.store.catalog import read_captions, split_artifact
from fne.store.lineage import recorded_lineage
from fne.store.rows import Rows


@stage("judgments", "evaluate", "baseline", paths=["judgments.file"])
@click.argument("image_vectors", type=INPUT)
@click.argument("caption_vectors", type=INPUT)
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("tokens", type=INPUT)
@click.argument("metrics", type=OUTPUT)
@click.argument("pairs", type=OUTPUT)
@params_option
def main(
    image_vectors: Path,
    caption_vectors: Path,
    embeddings: Path,
    captions: Path,
    tokens: Path,
    metrics: Path,
    pairs: Path,
    params: Path,
) -> None:
    """Compare the scores of a split with the judgments of `judgments.file`; write METRICS and PAIRS."""
    judgments = load_section(params, "judgments", Judgments)
    settings, runtime = load_section(params, "evaluate", Evaluate), load_runtime(params)
    closed_form = load_section(params, "baseline", Baseline)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime, closed_form.threads)
    stores = Rows.open(image_vectors, "image_vectors"), Rows.open(caption_vectors, "caption_vectors")
    captioned, catalog = read_captions(captions)
    inputs = read_inputs(embeddings, captions, tokens)
    train = split_artifact(captions, captioned, "train")
    lineage = recorded_lineage(
        *(each.artifact for each in stores), catalog, train, inputs.rows.store.artifact
    )
    require_same_model(*(each.artifact for each in stores))
    refuse_leaks(lineage, captioned, captions)
    records = [each for fold in choose_folds(settings.protocol, captioned, settings.split) for each in fold]
    judged, scored = read_judgments(params.parent / judgments.file, captioned, records), Scored.of(records)
    similarity = SIMILARITIES[lineage["model"]["settings"]["similarity"]]
    spaces = {MODEL: scored.space(stores, similarity, device)}
    try:
        with closed_form_vectors(closed_form, inputs, records, tokens, device) as both:
            spaces[BASELINE] = scored.space(both, SIMILARITIES["cosine"], device)
    except AlignmentError as error:
        say(f"no closed-form baseline ({error.message})")
    name = metrics_name(settings.split, settings.protocol)
    found, scores = score(judged, spaces, scored, judgments.acceptable, settings.recalls)
    write_judgments(metrics, pairs, name, found, judged, scores, lineage)
    say(headline(name, found))
    for line in left_out_lines(judged, pairs):
        say(line)


if __name__ == "__main__":
    main()
