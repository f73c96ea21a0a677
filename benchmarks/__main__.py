"""`python -m benchmarks NAME…` runs benchmarks by name, or all of them without a name."""

import click

from benchmarks.batches import batches
from benchmarks.extraction import extraction, extraction_onnx, extraction_sharing
from benchmarks.memory import extraction_memory

BENCHMARKS = {
    "batches": batches,
    "extraction": extraction,
    "extraction_memory": extraction_memory,
    "extraction_onnx": extraction_onnx,
    "extraction_sharing": extraction_sharing,
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
