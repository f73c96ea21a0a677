"""`fne inspect`: what an artifact is, and what made it."""

from pathlib import Path

import click

from fne.cli.artifacts import KINDS
from fne.core.dvc import content_md5, out_of, pipeline_outs, project_path
from fne.core.errors import InputError
from fne.core.files import files_in, missing_path
from fne.core.options import INPUT
from fne.core.terminal import harmless, say
from fne.store.artifact import Lines
from fne.store.verify import kind_at


@click.command()
@click.argument("paths", nargs=-1, required=True, type=INPUT)
def inspect(paths: tuple[Path, ...]) -> None:
    """Show what each artifact of the pipeline is, and what made it.

    \b
      fne inspect metrics/retrieval.json         the table of recalls
      fne inspect features/embeddings            layers, rows, settings, digests
      fne inspect models/matching                settings, best epoch, ancestors
    """
    say("\n\n".join(inspect_path(path) for path in paths))


def inspect_path(path: Path) -> str:
    """Return a description of the artifact at `path`, after checking its digests."""
    if not path.exists():
        raise missing_path(path, what="file or folder")
    kind = kind_at(path, KINDS)
    if kind and kind.has_parts:
        return "\n\n".join(map(inspect_path, files_in(path)))
    out = out_of(project_path(path), pipeline_outs())
    lines = kind.describe(path) if kind and kind.describe else []
    if not lines and out is None:
        known = ", ".join(dict.fromkeys(each.name for each in KINDS if each.describe))
        raise InputError(f"{path}: not an artifact of the pipeline; known kinds: {known}")
    made_by = [f"  made by   stage {out.stage}"] if out else []
    # What an artifact says of itself may hold line breaks.
    return "\n".join(harmless(line, keep="") for line in [*(lines or _files(path)), *made_by])


def _files(path: Path) -> Lines:
    """Describe an output of the pipeline that has no format of fne, such as a folder of images."""
    files = list(files_in(path)) if path.is_dir() else [path]
    size = sum(each.stat().st_size for each in files)
    return [f"{path}: {len(files)} files, {size:,} bytes", f"  md5       {content_md5(path)}"]
