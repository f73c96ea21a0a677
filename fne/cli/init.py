"""`fne init`: start a project, which has settings and results and no code."""

import shlex
from pathlib import Path

import click

from fne.core.errors import InputError
from fne.core.options import INPUT
from fne.core.terminal import say
from fne.projects.look_at_data import Look
from fne.projects.new import Started, start_project
from fne.projects.template import OPTIONAL

IMAGENET = "weights/imagenet.yaml"


@click.command()
@click.argument("folder", type=INPUT, default=Path())
@click.option(
    "--data", type=INPUT, help="The folder of a data set, or its annotation file.  [default: the demo]"
)
@click.option(
    "--with", "wanted", metavar="NAMES", default="", help=f"Further pipelines: {', '.join(OPTIONAL)}."
)
def init(folder: Path, data: Path | None, wanted: str) -> None:
    """Start a project in FOLDER: pipelines, parameters, Git and DVC.

    \b
      fne init photos --data /data/my-photos       a project for your data set
      fne init demo                                a project for the embedded data set
      fne init --with tagging,captioning           further pipelines; also in a project that exists

    The code stays in the installed package. No file is replaced. The data set is read to fill in `catalog`,
    and what it lacks is listed.
    """
    pipelines = list(dict.fromkeys(name.strip() for name in wanted.split(",") if name.strip()))
    unknown = [name for name in pipelines if name not in OPTIONAL]
    if unknown:
        raise InputError(f"--with: {unknown[0]!r} is not one of {', '.join(map(repr, OPTIONAL))}")
    done = start_project(folder, data, pipelines)
    steps = [f"  {step}" for step in _next_steps(folder, done, pipelines)]
    say("\n".join([*_told(folder, done, pipelines), "next:", *steps]))


def _told(folder: Path, done: Started, pipelines: list[str]) -> list[str]:
    """Return what was found and done."""
    look = done.look
    lines = [*(look.found if look else [])]
    lines += [f"  missing   {each}" for each in (look.missing if look else [])]
    if look and "tagging" in pipelines and not look.has_tags:
        lines.append("  missing   tags: set train_tagger.concepts to words, in pipelines/tagging/params.yaml")
    lines.append(f"{folder}: {len(done.written)} files written: {', '.join(done.written)}")
    lines += [f"  kept      {each}, which was there" for each in done.kept]
    return lines + [f"  started   {each}" for each in done.initialized]


def _next_steps(folder: Path, done: Started, pipelines: list[str]) -> list[str]:
    enter = [f"cd {shlex.quote(str(folder))}"] * (folder.resolve() != Path.cwd())
    message = "Start the project" if done.is_new else "Add pipelines"
    commit = f'git add --all && git commit --message "{message}"'
    added = [f"dvc repro pipelines/{name}/dvc.yaml" for name in pipelines]
    return [*enter, commit, *(_runs(done.look) if done.is_new else []), *added]


def _runs(look: Look | None) -> list[str]:
    if look is None:
        return ["dvc repro"]
    weights = f"-S extract.weights={IMAGENET}"
    if not look.has_captions:
        return [f"dvc exp run {weights} embed    # then: fne search --by fne PHOTO"]
    return [
        f"dvc exp run {weights}    # torchvision's VGG16, downloaded once",
        "dvc repro    # instead: untrained weights, only to try the pipeline",
    ]
