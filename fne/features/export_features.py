"""Writing the rows of a store in the forms of other programs.

Every entry of `FORMS` is called as `write(rows, target, shown)` and returns the files that it wrote. Rows
are in the order of the store, and written in blocks. Values are those of the store, bit for bit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fne.core.errors import InputError
from fne.core.files import replacing, replacing_folder, sync
from fne.features.parquet import import_arrow, write_parquet
from fne.store.layout import TERNARY
from fne.store.rows import OF_CAPTIONS, Rows

BLOCK = 1024


@dataclass(frozen=True)
class Shown:
    """What another program shows of a row: the path of its image, and a caption."""

    path: str = ""
    caption: str = ""


def export_rows(rows: Rows, form: str, target: Path, shown: dict[str, Shown]) -> list[Path]:
    """Write a store in another form; `shown` is metadata of rows by id, and may lack rows."""
    if not rows.ids:
        raise InputError(f"{rows.artifact.path}: has no rows; nothing was exported")
    if target.exists():
        raise InputError(f"{target}: exists already; remove it, or choose another name with --output")
    return FORMS[form](rows, target, shown)


def to_parquet(rows: Rows, target: Path, shown: dict[str, Shown]) -> list[Path]:
    """Write one Parquet file with the columns `id` and `vector`."""
    captions = rows.artifact.name in OF_CAPTIONS
    write_parquet(target, rows.blocks(size=BLOCK), rows.layers, rows.dtype, captions)
    return [target]


def to_npy(rows: Rows, target: Path, shown: dict[str, Shown]) -> list[Path]:
    """Write an array (rows, features), and the ids in a text file beside it, one per line.

    The array gets its name last: ids without an array are of an export that was interrupted.
    """
    names = target.with_suffix(".ids.txt")
    listed = "".join(f"{row_id}\n" for row_id in rows.ids)
    broken = [row_id for row_id in rows.ids if len(row_id.splitlines()) != 1]
    if broken:
        raise InputError(f"{rows.artifact.path}: id {broken[0]!r} has a line break; use --to parquet")
    if names.exists() and names.read_bytes() != listed.encode():
        raise InputError(f"{names}: exists already; remove it, or choose another name with --output")
    with replacing(names) as temporary:
        temporary.write_bytes(listed.encode())
    with replacing(target) as temporary:
        _write_array(temporary, rows)
    return [target, names]


def to_clip_retrieval(rows: Rows, target: Path, shown: dict[str, Shown]) -> list[Path]:
    """Write the folders of clip-retrieval: `img_emb` (or `text_emb`) and `metadata`, in one part."""
    arrow = import_arrow(target)
    captions = rows.artifact.name in OF_CAPTIONS
    side = "text_emb" if captions else "img_emb"
    about = [shown.get(row_id, Shown()) for row_id in rows.ids]
    columns = {
        "id": rows.ids,
        "image_path": [each.path for each in about],
        "caption": [each.caption for each in about],
    }
    array, metadata = Path(side, f"{side}_0.npy"), Path("metadata", "metadata_0.parquet")
    with replacing_folder(target) as folder:
        for file in (array, metadata):
            (folder / file).parent.mkdir()
        _write_array(folder / array, rows)
        arrow.parquet.write_table(arrow.table(columns), folder / metadata)
        sync(folder / metadata)
    return [target / array, target / metadata]


def _write_array(path: Path, rows: Rows) -> None:
    dtype = np.dtype(np.int8 if rows.dtype == TERNARY else rows.dtype)
    with path.open("wb") as file:
        header = {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": (len(rows.ids), rows.features),
        }
        np.lib.format.write_array_header_1_0(file, header)
        for _, block in rows.blocks(size=BLOCK):
            file.write(np.ascontiguousarray(block, dtype=dtype).tobytes())
    sync(path)


FORMS: dict[str, Callable[[Rows, Path, dict[str, Shown]], list[Path]]] = {
    "clip-retrieval": to_clip_retrieval,
    "npy": to_npy,
    "parquet": to_parquet,
}
