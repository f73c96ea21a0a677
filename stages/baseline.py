"""Stage `baseline`: what closed-form alignment reaches with the same features and split."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.device import prepare_device
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_runtime, load_section
from fne.core.stage import stage
from fne.core.terminal import say
from fne.evaluation.baseline import write_baseline, write_no_baseline
from fne.evaluation.metrics.recall import RECALLS
from fne.evaluation.protocols import Evaluate, choose_folds, metrics_name
from fne.evaluation.score_retrieval import evaluate
from fne.matching.closed_form_vectors import closed_form_vectors
from fne.matching.data import read_inputs
from fne.matching.second_moments import AlignmentError
from fne.matching.settings import Baseline
from fne.matching.similarities import SIMILARITIES
from fne.store.catalog import read_captions


@stage("baseline", "evaluate")
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("tokens", type=INPUT)
@click.argument("baseline", type=OUTPUT)
@params_option
def main(embeddings: Path, captions: Path, tokens: Path, baseline: Path, params: Path) -> None:
    """Align EMBEDDINGS with the TOKENS of their CAPTIONS in closed form, and write BASELINE."""
    settings, runtime = load_section(params, "evaluate", Evaluate), load_runtime(params)
    closed_form = load_section(params, "baseline", Baseline)
    stat_cache.use(runtime.scratch_folder())
    device = prepare_device(runtime, closed_form.threads)
    inputs = read_inputs(embeddings, captions, tokens)
    folds = choose_folds(settings.protocol, read_captions(captions)[0], settings.split)
    name = metrics_name(settings.split, settings.protocol)
    made_with = settings.model_dump(exclude={"top"}) | closed_form.model_dump()
    records = [*inputs.validation.captioned, *(record for fold in folds for record in fold)]
    wanted = {record.id: record for record in records}
    try:
        with closed_form_vectors(closed_form, inputs, [*wanted.values()], tokens, device) as stores:
            evaluation, validation = (
                evaluate(each, *stores, SIMILARITIES["cosine"], 0, device)
                for each in (folds, [inputs.validation.captioned])
            )
    except AlignmentError as error:  # such as too few images: training may still work
        say(write_no_baseline(baseline, name, error.message, made_with, inputs.lineage))
        return
    metrics, interval = evaluation.metrics(settings.recalls), evaluation.intervals(settings.recalls)["rsum"]
    rsum = validation.metrics(RECALLS)["rsum"]
    say(write_baseline(baseline, name, metrics, interval, made_with, inputs.lineage, rsum))


if __name__ == "__main__":
    main()
