"""`fne describe`: print what models say about images, or write it as a table."""

import json
from contextlib import nullcontext
from pathlib import Path

import click

from fne.core.options import INPUT, OUTPUT, model_option, params_option
from fne.core.signals import explain_interrupt
from fne.core.terminal import printable, say
from fne.search import describe_photo
from fne.search.answer import name_unreadable
from fne.search.describe_photo import Description, Wanted, check_table, read_writing, write_table
from fne.search.open_project import Project


@click.command()
@click.argument("images", nargs=-1, metavar="[IMAGE]...")
@params_option
@model_option("fixed", "tuned")
@click.option("--in", "folder", type=INPUT, help="Describe all photos of this folder.")
@click.option("--only", metavar="WHAT", help="Say only this: caption, tags or concepts.")
@click.option(
    "--beam",
    type=click.IntRange(1, 1000),
    help="Number of sentences that are compared; by default write_captions.beam.",
)
@click.option(
    "--k", type=click.IntRange(min=1), default=10, show_default=True, help="Number of concepts per image."
)
@click.option("--json", "as_json", is_flag=True, help="Print the descriptions as JSON.")
@click.option("--output", type=OUTPUT, help="Write a table (.csv or .jsonl) that `catalog` reads.")
def describe(
    images: tuple[str, ...],
    params: Path,
    model: str,
    folder: Path | None,
    only: str | None,
    beam: int | None,
    k: int,
    as_json: bool,
    output: Path | None,
) -> None:
    """Describe images: a sentence, tags and concepts.

    IMAGE is an image file, or the id of an image of the catalog.

    \b
      fne describe photo.jpg                            a sentence, tags, and what the models are sure of
      fne describe photo.jpg --beam 7                   seven sentences, the best first
      fne describe scene-0029.jpg                       an image of the catalog
      fne describe photo.jpg --model tuned              with the fine-tuned networks
      fne describe --in ~/photos --output tags.csv      a folder, as a table that `catalog` reads

    Sentences need a captioner: `dvc repro pipelines/captioning/dvc.yaml` trains one. Tags need a tagger:
    `dvc repro pipelines/tagging/dvc.yaml`.
    """
    if bool(images) == (folder is not None):
        raise click.UsageError("give images, or --in FOLDER")
    if output and as_json:
        raise click.UsageError("give --json or --output, not both")
    if output and only == "concepts":
        raise click.UsageError("--output: a table for `catalog` has no concepts; use --json")
    if output:
        check_table(output, *[Path(each) for each in images])
    writing = read_writing(params, beam) if only in (None, "caption") else None
    # Only a folder takes long.
    with explain_interrupt() if folder else nullcontext():
        wanted = Wanted(k, only, writing)
        answer = describe_photo.describe(Project(params), images, folder, wanted, model == "tuned")
    for note in answer.notes:
        say(f"Note: {note}", err=True)
    if answer.unreadable:
        say(name_unreadable(answer.unreadable), err=True)
    if output:
        write_table(output, answer)
        described = len(answer.descriptions)
        say(f"{output}: {described} image{'' if described == 1 else 's'} described", err=True)
    elif as_json:
        found = [each.as_dict() for each in answer.descriptions]
        say(json.dumps(found[0] if len(images) == 1 else found, ensure_ascii=False, indent=1))
    else:
        say("\n".join(line for each in answer.descriptions for line in lines(each)))


def lines(description: Description) -> list[str]:
    """Return a description for the terminal."""
    values = description.values
    found = [printable(description.image.name)]
    for number, sentence in enumerate(values.get("sentences", [])):
        text = printable(sentence["text"]) or "(no words)"
        found.append(f"  {'' if number else 'sentence':<10} {text} ({sentence['log_probability']:.2f})")
    for name, title in (("tags", "tags"), ("true_tags", "true tags")):
        if name in values:
            found.append(f"  {title:<10} {printable(', '.join(values[name])) or 'none'}")
    if "concepts" in values:
        shown = "  ".join(f"{printable(name)} {value:.2f}" for name, value in values["concepts"].items())
        found.append(f"  {'concepts':<10} {shown}")
    return found
