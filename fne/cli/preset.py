"""`fne preset`: print a method of a paper as overrides for `dvc exp run`."""

import click

from fne.core.terminal import say
from fne.experiments import presets
from fne.experiments.description_tables import description_names, description_preset, pipeline_of
from fne.experiments.presets import (
    OWN,
    Preset,
    arguments,
    description_papers,
    every_preset,
    own_names,
    own_preset,
    split_address,
)

WIDTH = 34  # of the column of names in the list


@click.command()
@click.argument("name", required=False)
@click.option(
    "--dataset",
    type=click.Choice(["flickr8k", "flickr30k", "coco", "demo", "own"]),
    default="flickr8k",
    show_default=True,
    help="The data set, which sets dimensions and epochs; demo is the small embedded one, own is yours.",
)
@click.option(
    "--following",
    type=click.Choice(["paper", "code"]),
    default="paper",
    show_default=True,
    help="Follow the paper, or the authors' published code where it differs.",
)
@click.option("--list", "list_all", is_flag=True, help="List all presets for the data set, with footnotes.")
def preset(name: str | None, dataset: str, following: str, list_all: bool) -> None:
    """Print a method of a paper as overrides for DVC.

    \b
      fne preset --list                                         list all presets
      fne preset FNE-POE --dataset flickr8k                     print one as -S arguments
      dvc exp run $(fne preset FNE-POE --dataset flickr8k)      run it
      dvc exp run $(fne preset FNE-SH --dataset demo)           run one on the embedded data set
      fne preset two-branch/VGG19-K10 --dataset flickr30k       a system of another paper
      dvc exp run $(fne preset semantic/RIA --dataset demo) pipelines/tagging/dvc.yaml
      dvc exp run $(fne preset own/fine-tuned)                  your own data: what scored best
      dvc exp run $(fne preset own/fine-tuned-small)            the same for fewer than 2,000 images

    A preset sets all parameters of the embedding, the vocabulary and the training. The folder
    of the data set (catalog.root), the weights (extract.weights) and, in two-branch/…, the word
    vectors (tokenize.vectors) are taken from params.yaml. two-branch/K10 and its like, without the
    name of a network, also leave the image features as they are, for imported ones.
    Footnotes go to standard error. (In fish, write (fne preset … | string split " ").)
    """
    if list_all == (name is not None):
        raise click.UsageError("give the NAME of a preset, or --list")
    if name is None:
        say(list_presets(dataset, following))
    else:
        chosen = _preset(name, dataset, following)
        say(footnotes(chosen), err=True)
        say(overrides(chosen))


def _preset(name: str, dataset: str, following: str) -> Preset:
    """Return a preset: of a paper about descriptions, for your own data, or of another paper."""
    paper, _ = split_address(name)
    if OWN in (paper, dataset):
        return own_preset(name)
    return (description_preset if paper in description_papers() else presets.preset)(name, dataset, following)


def overrides(chosen: Preset) -> str:
    """Return a preset's overrides as one line, which a shell splits into arguments."""
    return " ".join(arguments(chosen.overrides))


def footnotes(chosen: Preset) -> str:
    """Return the notes of a preset, one per line."""
    return "\n".join(f"{chosen.name}: {note}" for note in chosen.notes)


def list_presets(dataset: str, following: str) -> str:
    """Return all presets for a data set with their main settings, and their footnotes."""
    lines, notes = [], list[str]()
    for name in own_names() if dataset == OWN else []:
        chosen = own_preset(name)
        notes += [note for note in chosen.notes if note not in notes]
        method = chosen.overrides["train.method"]
        lines.append(f"{name:<{WIDTH}}{f'method {method}' if method != 'steps' else _main_settings(chosen)}")
    for chosen in every_preset():
        if (chosen.dataset, chosen.following) != (dataset, following):
            continue
        notes += [note for note in chosen.notes if note not in notes]
        marks = "".join(f"[{notes.index(note) + 1}]" for note in chosen.notes)
        lines.append(f"{chosen.name:<{WIDTH}}{_main_settings(chosen):<82} {marks}")
    for name in description_names() if dataset != OWN else []:
        chosen = description_preset(name, dataset, following)
        notes += [note for note in chosen.notes if note not in notes]
        marks = "".join(f"[{notes.index(note) + 1}]" for note in chosen.notes)
        lines.append(f"{chosen.name:<{WIDTH}}{_described_settings(chosen):<82} {marks}")
    return "\n".join([*lines, "", *(f"[{number}] {note}" for number, note in enumerate(notes, start=1))])


def _main_settings(chosen: Preset) -> str:
    own, tuning = "train.", chosen.overrides.get("finetune.epochs", 0)
    tuned = f", then tuning {'+'.join(map(str, tuning if isinstance(tuning, list) else [tuning]))}"
    value = {key.removeprefix(own): each for key, each in chosen.overrides.items() if key.startswith(own)}
    k = f"({value['losses.top_k_hinge.k']})" if value["loss"] == "top_k_hinge" else ""
    losses = value["loss"] if isinstance(value["loss"], list) else [value["loss"]]
    rates = value["learning_rate"] if isinstance(value["learning_rate"], list) else [value["learning_rate"]]
    absolute = " abs" if value["absolute"] else ""
    loss = "+".join(each.removesuffix("_hinge") for each in losses) + k
    return (
        f"{loss:<10}{value['similarity'] + absolute:<11}"
        f"dim {value['embed_dim']:<5} word {value.get('word_dim', '-'):<5} "
        f"rate {', '.join(f'{rate:g}' for rate in rates):<14} margin {value['margin']:<5} "
        f"epochs {'+'.join([str(value['epochs'])] * max(len(losses), len(rates)))}"
        f"{tuned if tuning else ''}"
    )


def _described_settings(chosen: Preset) -> str:
    value = {key.split(".", 1)[1]: setting for key, setting in chosen.overrides.items()}
    learns = value["learns"] if isinstance(value["learns"], list) else [value["learns"]]
    return (
        f"{pipeline_of(chosen.name):<11}{value['condition']:<10}{value['inject']:<8}{value['cell']:<10}"
        f"units {value['units']:<5}{'+'.join(learns)}"
    )
