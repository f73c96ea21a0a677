"""`fne preset`: print a method of a paper as overrides for `dvc exp run`."""

import click

from fne.core.terminal import say
from fne.experiments import presets
from fne.matching.model_file import FINETUNING


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
      dvc exp run $(fne preset dual-path/II --dataset demo) pipelines/finetuning/dvc.yaml
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
        say(presets.list_presets(dataset, following))
    else:
        chosen = presets.preset(name, dataset, following)
        runs = f"tunes the image network: run it as `dvc exp run $(fne preset …) {FINETUNING}`"
        notes = [*chosen.notes, *[runs] * chosen.is_tuned]
        say("\n".join(f"{chosen.name}: {note}" for note in notes), err=True)
        say(" ".join(presets.arguments(chosen.overrides)))
