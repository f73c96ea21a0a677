"""Random batches for training, as float32, from different ways of keeping the rows."""

import tempfile
from pathlib import Path

import h5py
import numpy as np

from benchmarks.side_by_side import compare, print_table, ratio
from fne.store.layout import Layer, plan_shards
from fne.store.rows import Rows
from fne.store.writer import write_rows

IMAGES, FEATURES, BATCH, BATCHES = 4000, 12416, 128, 4


def batches() -> float:
    """Read random batches of 128 rows from our store, against h5py's auto-chunked float32."""
    generator = np.random.default_rng(0)
    values = generator.choice(np.array([-1, 0, 1], dtype=np.int8), (IMAGES, FEATURES))
    ids = [f"{number:06d}.jpg" for number in range(IMAGES)]
    chosen = [generator.choice(IMAGES, BATCH, replace=False) for _ in range(BATCHES)]
    with tempfile.TemporaryDirectory() as folder:
        ours, chunked, flat = Path(folder, "ours"), Path(folder, "chunked.h5"), Path(folder, "flat.npy")
        shards = [
            (number, own, values[[int(each[:6]) for each in own]])
            for number, own in plan_shards(ids, 4).items()
        ]
        write_rows(ours, "embeddings", [Layer("all", FEATURES)], "ternary", iter(shards), {}, {})
        with h5py.File(chunked, "w") as file:
            file.create_dataset("rows", data=values.astype(np.float32), chunks=True)
        np.save(flat, values)
        rows, mapped = Rows.open(ours), np.load(flat, mmap_mode="r")
        with h5py.File(chunked) as file:
            dataset = file["rows"]
            seconds = compare(
                {
                    "h5py, float32, auto-chunked": lambda: [dataset[np.sort(each)] for each in chosen],
                    "memory-mapped int8": lambda: [mapped[each].astype(np.float32) for each in chosen],
                    "ours: two bit planes": lambda: [
                        rows.read([ids[number] for number in each], np.float32) for each in chosen
                    ],
                },
                rounds=5,
            )
    print_table(seconds, "h5py, float32, auto-chunked", "rows", BATCH * BATCHES)
    return ratio(seconds, "ours: two bit planes", "h5py, float32, auto-chunked")
