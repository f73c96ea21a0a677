"""`fne import`: features that others computed, as a store that `embed.source` can name."""

from collections.abc import Sequence
from pathlib import Path

from fne.commands.tracked import CAPTIONS, in_project, pipeline_outs
from fne.core.errors import InputError
from fne.store.catalog import read_captions
from fne.store.chosen import Names
from fne.store.importing import import_rows
from fne.store.layout import MANIFEST


def bring(source: Path, store: Path, names: Names, ids_file: Path | None, catalog: Path | None) -> str:
    """Import a file and return what was taken and what comes next, for people to read.

    Args:
        source: an HDF5, `.npy` or `.npz` file.
        store: the folder of the new store; a store of ours that stands there is replaced.
        names: which arrays of the file to take.
        ids_file: a text file with an id a line, for files that hold no ids.
        catalog: whose images must have a row; the pipeline's, if there is one, where None.
    """
    _refuse_place(store)
    place = catalog or CAPTIONS
    wanted = [record.id for record in read_captions(place)[0]] if catalog or place.exists() else None
    imported = import_rows(source, store, names, ids_file)
    size = sum(file.stat().st_size for file in store.iterdir())
    shape = f"{len(imported.ids)} rows of {imported.features} values"
    return "\n".join(
        [
            f"{store}: {shape} ({imported.dtype}), {size:,} bytes",
            f"  values    {imported.values}",
            f"  ids       {imported.ids_from}, the first is {imported.ids[0]!r}",
            f"  layers    {imported.layers_from}: "
            + ", ".join(f"{layer.name} {layer.features}" for layer in imported.layers),
            f"  catalog   {_coverage(imported.ids, place, wanted)}",
            "next:",
            f"  dvc add {store}    # keep it in DVC, for colleagues and for experiments in temporary copies",
            f"  dvc exp run -S embed.source={store}",
        ]
    )


def _refuse_place(store: Path) -> None:
    outs, place = pipeline_outs(), in_project(store)
    for folder in (place, *place.parents):
        if folder in outs:
            stage = outs[folder].stage
            raise InputError(f"{store}: stage '{stage}' writes there; choose another folder with --to")
    if store.exists() and not (store / MANIFEST).exists():
        raise InputError(f"{store}: exists and is not a store of ours; choose another folder with --to")


def _coverage(ids: Sequence[str], place: Path, wanted: Sequence[str] | None) -> str:
    if wanted is None:
        return (
            f"{place} is not here; `dvc repro catalog` makes it, and `embed` will need a row for each image"
        )
    missing = sorted(set(wanted) - set(ids))
    if not missing:
        return f"all {len(wanted)} images of {place} have a row"
    return (
        f"{len(missing)} of the {len(wanted)} images of {place} have no row, the first is {missing[0]!r}; "
        "`embed` will refuse that"
    )
