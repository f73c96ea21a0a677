"""`fne export`: the rows of a store, or written captions, in the forms of other programs."""

from pathlib import Path

import click

from fne.core.options import INPUT
from fne.core.settings import load_key
from fne.core.terminal import say
from fne.describing.annotations import read_written, write_coco_results
from fne.features.export_features import FORMS, Shown, export_rows
from fne.store.catalog import CAPTIONS_FILE, IMAGES_FILE, image_root, read_captions, read_images
from fne.store.rows import OF_CAPTIONS, Rows

PARAMS = Path("params.yaml")
ENDINGS = {"clip-retrieval": "", "npy": ".npy", "parquet": ".parquet"}
COCO = "coco-results"  # written captions, which are not a store


@click.command()
@click.argument("store", type=INPUT)
@click.option(
    "--to", "form", type=click.Choice(sorted([*FORMS, COCO])), required=True, help="The format to write."
)
@click.option(
    "--output",
    type=INPUT,
    help="The new file or folder.  [default: exported/NAME, after the last folder of STORE]",
)
def export(store: Path, form: str, output: Path | None) -> None:
    """Write the rows of a STORE for other programs.

    STORE is the folder of a row store, such as features/activations, features/embeddings, vectors/images or
    vectors/captions. It is written as Parquet, as NumPy files or in the layout of clip-retrieval. Values and
    ids are exactly those of the store, and `fne import` reads Parquet and NumPy files back. With
    `--to coco-results`, STORE is annotations/captions.jsonl, and the files are those that COCO's caption
    server takes. docs/data.md shows how pandas, DuckDB, datasets and faiss open the others.
    """
    if form == COCO:
        captions = read_written(store)[0]
        files = write_coco_results(output or Path("exported", store.stem), captions, store)
        say(f"captions of {len(captions)} images")
        for file in files:
            say(f"  {file}")
        return
    rows = Rows.open(store)
    target = output or Path("exported", f"{store.resolve().name}{ENDINGS[form]}")
    written = export_rows(rows, form, target, _shown(rows) if form == "clip-retrieval" else {})
    shape = f"{len(rows.ids)} rows of {rows.features} values ({rows.dtype})"
    say(f"{target}: {shape}, {sum(file.stat().st_size for file in written):,} bytes")
    for file in written:
        say(f"  {file}")


def _shown(rows: Rows) -> dict[str, Shown]:
    """Return the image file and the caption of each row, as far as the catalog is there."""
    if not CAPTIONS_FILE.exists():
        return {}
    paths = {}
    if IMAGES_FILE.exists():
        in_project = PARAMS.exists()
        root = image_root(load_key(PARAMS, "catalog", "root")).absolute() if in_project else Path()
        paths = {image.id: str(root / image.path) for image in read_images(IMAGES_FILE)[0]}
    shown = {}
    for record in read_captions(CAPTIONS_FILE)[0]:
        path = paths.get(record.id, record.id)
        if rows.artifact.name in OF_CAPTIONS:
            for caption_id, caption in zip(record.caption_ids, record.captions, strict=True):
                shown[caption_id] = Shown(path, caption)
        else:
            shown[record.id] = Shown(path, record.captions[0] if record.captions else "")
    return shown
