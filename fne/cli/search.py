"""`fne search`: print the matches for a query, as text, as JSON, or as a contact sheet."""

import json
from contextlib import nullcontext
from pathlib import Path

import click

from fne.core.options import INPUT, OUTPUT, model_option, params_option
from fne.core.signals import explain_interrupt
from fne.core.terminal import say
from fne.search import engine
from fne.search.answer import name_unreadable
from fne.search.open_project import IMPORTED, MATCHING, TUNED, choose_model


@click.command()
@click.argument("query", nargs=-1)
@params_option
@click.option("--by", metavar="KIND", help="Find images with similar embeddings of this kind: fne, …")
@model_option(MATCHING, TUNED, IMPORTED)
@click.option("--in", "folder", type=INPUT, help="Search this folder of photos instead of the catalog.")
@click.option("--split", metavar="NAME", help="Search only this split of the catalog: test, …")
@click.option("--tag", help="Search only images of the catalog that have this tag.")
@click.option("--k", type=click.IntRange(min=1), default=10, show_default=True, help="Number of matches.")
@click.option("--explain", is_flag=True, help="Show how much each word matters: the score it adds.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@click.option("--sheet", type=OUTPUT, help="Also write the answer as a contact sheet (PNG).")
def search(
    query: tuple[str, ...],
    params: Path,
    by: str | None,
    model: str,
    folder: Path | None,
    split: str | None,
    tag: str | None,
    k: int,
    explain: bool,
    as_json: bool,
    sheet: Path | None,
) -> None:
    """Find images for a sentence or an image, or sentences for an image.

    QUERY is a sentence, an image file, or the id of an image of the catalog.

    \b
      fne search "a red circle above a white triangle"   images for a sentence
      fne search photo.jpg                               sentences for an image
      fne search --by fne photo.jpg                      similar images; no model needed
      fne search "a dog" --in ~/photos                   in a folder of photos without captions
      fne search "a dog" --split test                    only images that were not trained on
      fne search "a dog" --explain                       which words matter for each image
      fne search "a dog" --model tuned                   with the fine-tuned network
      fne search "a dog" --model imported                by imported vectors; captions of the catalog only

    A star marks matches that the catalog pairs with the query.
    """
    if sheet:
        from fne.search.contact_sheet import MAX_MATCHES, check_sheet, write_sheet  # Pillow: slow to import

        check_sheet(sheet, Path(" ".join(query)))
    # Only the index of a folder takes long.
    with explain_interrupt() if folder else nullcontext():
        answer = engine.search(
            choose_model(params, model, imported=True), " ".join(query), by, folder, k, split, tag, explain
        )
    if answer.unknown_words:
        say(f"Warning: not in the vocabulary: {', '.join(answer.unknown_words)}", err=True)
    if answer.unreadable:
        say(name_unreadable(answer.unreadable), err=True)
    if as_json:
        say(json.dumps(answer.as_dict(), ensure_ascii=False, indent=1))
    else:
        say("\n".join(answer.lines(colors=explain)), escapes=explain)
    if sheet:
        write_sheet(sheet, answer)
        say(f"{sheet}: contact sheet of {min(len(answer.matches), MAX_MATCHES)} matches", err=True)
