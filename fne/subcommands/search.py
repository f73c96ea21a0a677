"""`fne search`: its arguments and its help; `fne.commands` does the work."""

from pathlib import Path

import click

from fne.core.command import INPUT, OUTPUT, params_option


@click.command()
@click.argument("query", nargs=-1)
@params_option
@click.option("--by", metavar="KIND", help="Find images that look alike, by embeddings of this kind: fne, …")
@click.option("--in", "folder", type=INPUT, help="Search this folder of photos instead of the catalog.")
@click.option("--k", type=click.IntRange(min=1), default=10, show_default=True, help="How many to show.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer for programs.")
@click.option("--sheet", type=OUTPUT, help="Also write the answer as a picture (PNG).")
def search(
    query: tuple[str, ...],
    params: Path,
    by: str | None,
    folder: Path | None,
    k: int,
    as_json: bool,
    sheet: Path | None,
) -> None:
    """Find images for a sentence or an image, or sentences for an image.

    QUERY is a sentence, an image file, or the id of an image of the catalog.

    \b
      fne search "a red circle above a blue square"    images for a sentence
      fne search photo.jpg                             sentences for an image
      fne search --by fne photo.jpg                    images that look alike; no model needed
      fne search "a dog" --in ~/photos                 in a folder that nobody captioned

    A star marks what the catalog pairs with the query.
    """
    from fne.commands.search import answer

    answer(query, params, by, folder, k, as_json, sheet)
