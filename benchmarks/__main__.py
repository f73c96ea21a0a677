"""`python -m benchmarks NAME…` runs benchmarks by name; without a name it runs all of them."""

import click

from benchmarks.batches import batches
from benchmarks.captioning import beam_3, beam_7, caption_step, cider
from benchmarks.evaluation import evaluation_cosine, evaluation_memory, evaluation_order
from benchmarks.extraction import extraction, extraction_memory, extraction_onnx, extraction_sharing
from benchmarks.order_similarity import order_similarity
from benchmarks.search import search
from benchmarks.statistics import statistics
from benchmarks.training_input import training_input
from benchmarks.training_step import training_step, training_step_order

BENCHMARKS = {
    "batches": batches,
    "beam_3": beam_3,
    "beam_7": beam_7,
    "caption_step": caption_step,
    "cider": cider,
    "evaluation_cosine": evaluation_cosine,
    "evaluation_memory": evaluation_memory,
    "evaluation_order": evaluation_order,
    "extraction": extraction,
    "extraction_memory": extraction_memory,
    "extraction_onnx": extraction_onnx,
    "extraction_sharing": extraction_sharing,
    "order_similarity": order_similarity,
    "search": search,
    "statistics": statistics,
    "training_input": training_input,
    "training_step": training_step,
    "training_step_order": training_step_order,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
def main(names: tuple[str, ...]) -> None:
    """Run benchmarks, or all of them without a name; each ends with a line NAME: RATIO."""
    for name in names or BENCHMARKS:
        click.echo(f"\n{BENCHMARKS[name].__doc__}\n")
        click.echo(f"{name}: {BENCHMARKS[name]():.2f}")


if __name__ == "__main__":
    main()
