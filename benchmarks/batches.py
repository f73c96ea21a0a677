"""Random batches for training, as float32, from different storage formats."""

import tempfile
from pathlib import Path

import h5py
import numpy as np

from benchmarks.timing import Ratio, compare, print_table, ratio
from fne.store.layout import Layer, plan_shards
from fne.store.rows import Rows, write_rows

BATCHES = 4
H5PY, MAPPED, OURS = "h5py, float32, auto-chunked", "memory-mapped int8", "ours: two bit planes"


def batches(images: int = 4000, features: int = 12416, batch: int = 128, rounds: int = 5) -> Ratio:
    """Read random batches of 128 rows from a row store, compared with auto-chunked float32 in HDF5."""
    generator = np.random.default_rng(0)
    values = generator.choice(np.array([-1, 0, 1], dtype=np.int8), (images, features))
    ids = [f"{number:06d}.jpg" for number in range(images)]
    chosen = [generator.choice(images, batch, replace=False) for _ in range(BATCHES)]
    with tempfile.TemporaryDirectory() as folder:
        ours, chunked, flat = Path(folder, "ours"), Path(folder, "chunked.h5"), Path(folder, "flat.npy")
        shards = [
            (number, own, values[[int(each[:6]) for each in own]])
            for number, own in plan_shards(ids, 4).items()
        ]
        write_rows(ours, "embeddings", [Layer("all", features)], "ternary", iter(shards), {}, {})
        with h5py.File(chunked, "w") as file:
            file.create_dataset("rows", data=values.astype(np.float32), chunks=True)
        np.save(flat, values)
        rows, mapped = Rows.open(ours), np.load(flat, mmap_mode="r")
        with h5py.File(chunked) as file:
            dataset = file["rows"]
            seconds = compare(
                {
                    H5PY: lambda: [dataset[np.sort(each)] for each in chosen],
                    MAPPED: lambda: [mapped[each].astype(np.float32) for each in chosen],
                    OURS: lambda: [
                        rows.read([ids[number] for number in each], np.float32) for each in chosen
                    ],
                },
                rounds,
            )
    print_table(seconds, H5PY, "rows", batch * BATCHES)
    return ratio(seconds, OURS, H5PY)


def tiny(folder: Path) -> None:
    """Run with little data."""
    batches(images=40, features=64, batch=8, rounds=1)
