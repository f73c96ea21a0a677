"""Stage `train`: a joint space for images and captions."""

from pathlib import Path

import click

from fne.core import stat_cache
from fne.core.launch import is_first, start
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_runtime, load_section
from fne.core.stage import stage
from fne.matching.imported import Encode, Similarity, read_imported, write_imported
from fne.matching.model_file import IMPORTED
from fne.matching.run import run_training
from fne.matching.settings import Train


@stage("train", "encode.source")
@click.argument("embeddings", type=INPUT)
@click.argument("captions", type=INPUT)
@click.argument("tokens", type=INPUT)
@click.argument("vectors", type=INPUT)
@click.argument("model", type=OUTPUT)
@click.argument("classifier", type=OUTPUT)
@click.argument("history", type=OUTPUT)
@click.argument("metrics", type=OUTPUT)
@params_option
def main(
    embeddings: Path,
    captions: Path,
    tokens: Path,
    vectors: Path,
    model: Path,
    classifier: Path,
    history: Path,
    metrics: Path,
    params: Path,
) -> None:
    """Train a MODEL to match EMBEDDINGS of images with the TOKENS of their CAPTIONS.

    Words start from their pretrained VECTORS, where there are any. The CLASSIFIER of an instance loss is
    written to a file of its own; without such a loss it is empty. The validations go to HISTORY, and what
    the best one found to METRICS.

    With `encode.source: imported` nothing is trained: the model is a header that stands for imported vectors.
    """
    runtime = load_runtime(params)
    stat_cache.use(runtime.scratch_folder())
    sources, outputs = (embeddings, captions, tokens, vectors), (model, classifier, history, metrics)
    if load_section(params, "encode", Encode).source == IMPORTED:
        similarity = load_section(params, "train", Similarity).similarity
        if is_first():
            write_imported(read_imported(*sources, similarity), *outputs)
        return
    run_training(load_section(params, "train", Train), runtime, sources, outputs)


if __name__ == "__main__":
    start(main)
