"""`fne publish`: stores for strangers, in a folder that any transport can carry."""

from pathlib import Path

import click

from fne.cli.artifacts import KINDS, SOURCES
from fne.cli.import_ import refuse_out
from fne.core.errors import InputError, LinesError
from fne.core.options import INPUT
from fne.core.settings import load_key
from fne.core.terminal import say
from fne.report.facts import dataset_title, feature_source
from fne.sharing.card import About, card
from fne.sharing.published import publish as write_folder
from fne.sharing.published import refuse_existing
from fne.store.artifact import merge
from fne.store.catalog import CAPTIONS_FILE, read_captions
from fne.store.rows import Rows
from fne.store.verify import verify_artifacts

PARAMS = Path("params.yaml")


@click.command()
@click.argument("stores", nargs=-1, required=True, type=INPUT, metavar="STORE...")
@click.option("--to", "folder", required=True, type=INPUT, help="The new folder.")
@click.option(
    "--license",
    "terms",
    required=True,
    help="The license of the rows: an identifier of the Hugging Face Hub such as cc-by-4.0, or its name.",
)
def publish(stores: tuple[Path, ...], folder: Path, terms: str) -> None:
    """Write stores for others as a folder, with a description and digests.

    \b
      fne publish features/activations --to published/demo --license cc-by-4.0
      fne verify published/demo                 check a published folder
      fne import published/demo                 take its stores into a project

    The folder has the shards, the digest of every file, and a card that says what the rows are and
    how h5py reads them. Images and captions are never published, only ids and digests.
    """
    refuse_out(folder)
    refuse_existing(folder)
    opened: dict[str, Rows] = {}
    for store in stores:
        name = store.resolve().name
        if name in opened:
            raise InputError(f"{store}: another store has the folder name '{name}' too; publish one of them")
        opened[name] = Rows.open(store)
    verdict = verify_artifacts(stores, KINDS, SOURCES)
    if verdict.faults:
        raise LinesError("\n".join(verdict.faults))
    features = dict.fromkeys(feature_source(merge(rows.artifact)) for rows in opened.values())
    write_folder(opened, folder, card(opened, About(terms.strip(), _dataset(), "; ".join(features))))
    listed = ", ".join(f"{name} ({len(rows.ids):,} rows)" for name, rows in opened.items())
    say(f"{folder}: {listed}\n  ids and digests are published, no image and no caption")
    say(f"next:\n  fne verify {folder}")


def _dataset() -> str:
    """Return the name of the data set of this project."""
    if not CAPTIONS_FILE.exists():
        return "not recorded"
    return dataset_title(load_key(PARAMS, "catalog", "root"), read_captions(CAPTIONS_FILE)[0])
