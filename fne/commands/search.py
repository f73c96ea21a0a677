"""`fne search`: what is found, for the terminal, for programs and as a picture."""

import json
from pathlib import Path

import click

from fne.retrieval.answer import Answer, printable
from fne.retrieval.project import Project
from fne.retrieval.search import search

SHOWN = 5  # unreadable files that are named


def answer(
    words: tuple[str, ...],
    params: Path,
    by: str | None,
    folder: Path | None,
    k: int,
    as_json: bool,
    sheet: Path | None,
) -> None:
    """Search and print the answer; what is worth a warning goes to the error stream."""
    found = search(Project(params), " ".join(words), by, folder, k)
    if found.unknown_words:
        click.echo(f"Unknown to the model: {', '.join(found.unknown_words)}", err=True)
    if found.unreadable:
        click.echo(_unreadable(found), err=True)
    if as_json:
        # What is no text in the name of a file, Python and JSON write in the same way.
        text = json.dumps(found.as_dict(), ensure_ascii=False, indent=1)
        click.echo(text.encode(errors="backslashreplace").decode())
    else:
        click.echo("\n".join(found.lines()))
    if sheet:
        from fne.retrieval.sheet import MOST, write_sheet

        write_sheet(sheet, found)
        shown = f"the best {MOST}" if len(found.matches) > MOST else "the answer"
        click.echo(f"{sheet}: a picture of {shown}", err=True)


def _unreadable(found: Answer) -> str:
    named = [printable(f"{file}: {reason}") for file, reason in list(found.unreadable.items())[:SHOWN]]
    more = [f"and {len(found.unreadable) - SHOWN} more"] if len(found.unreadable) > SHOWN else []
    return f"{len(found.unreadable)} files left out, no readable images: {'; '.join([*named, *more])}"
