"""`python -m benchmarks NAME…` runs benchmarks by name, or all of them without a name."""

import click

from benchmarks.batches import batches
from benchmarks.evaluation import evaluation_cosine, evaluation_memory, evaluation_order
from benchmarks.extraction import extraction, extraction_onnx, extraction_sharing
from benchmarks.memory import extraction_memory
from benchmarks.neighbors import neighbors
from benchmarks.order_similarity import order_similarity
from benchmarks.search import search
from benchmarks.statistics import statistics
from benchmarks.training_input import training_input
from benchmarks.training_step import training_step, training_step_order

BENCHMARKS = {
    "batches": batches,
    "evaluation_cosine": evaluation_cosine,
    "evaluation_memory": evaluation_memory,
    "evaluation_order": evaluation_order,
    "extraction": extraction,
    "extraction_memory": extraction_memory,
    "extraction_onnx": extraction_onnx,
    "extraction_sharing": extraction_sharing,
    "neighbors": neighbors,
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
    """Run benchmarks; each ends with a line NAME: RATIO."""
    for name in names or BENCHMARKS:
        click.echo(f"\n{BENCHMARKS[name].__doc__}\n")
        click.echo(f"{name}: {BENCHMARKS[name]():.2f}")


if __name__ == "__main__":
    main()
