"""Write the table of stages in `docs/formats.md` from the pipeline files, and the packages in `CONTRIBUTING.md`.

`python -m tests.support.generated_tables` writes them, and so does `make docs`. A test compares the two.
"""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.support.imports import ROOT

BEGIN, END = "<!-- written by make docs -->\n", "<!-- end of make docs -->\n"
# What a parameter names by default, in terms of the stage that makes it.
DEFAULTS = {
    "${catalog.root}": "data/demo",
    "${embed.source}": "features/activations",
    "${embed_text.source}": "features/text/activations",
}
FILES = [ROOT / "pipelines/demo/dvc.yaml", ROOT / "dvc.yaml"]
for folder in sorted((ROOT / "pipelines").iterdir()):
    if folder.name != "demo":  # a pipeline that is off may have been copied to the name that DVC knows
        off = folder / "pipeline.yaml"
        FILES.append(off if off.exists() else folder / "dvc.yaml")


def page(path: Path) -> str:
    """Return the text of a page with the current table."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + PAGES[path]() + END + rest.partition(END)[2]


def packages() -> str:
    """Return a row per package, with the first line of its docstring."""
    rows = ["| package | holds |", "|---|---|"]
    for path in sorted(ROOT.glob("fne/*/__init__.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        rows.append(f"| `fne/{path.parent.name}/` | {text.splitlines()[0]} |")
    return "\n".join(rows) + "\n"


def stages() -> str:
    """Return a row per stage, with the stages whose outputs it reads and what it writes."""
    pipelines = {path: YAML(typ="safe").load(path)["stages"] for path in FILES}
    makers = {out: name for listed in pipelines.values() for name in listed for out in outs_of(listed[name])}
    rows = ["| stage | what it does | after | writes |", "|---|---|---|---|"]
    for path, listed in pipelines.items():
        for name, stage in listed.items():
            place = path.parent.relative_to(ROOT).as_posix()
            shown = f"`{name}`" if place in (".", "pipelines/demo") else f"`{place}`: `{name}`"
            read = [f"`{each}`" for each in needed(stage, makers)]
            cells = [shown, stage["desc"], ", ".join(read), ", ".join(f"`{out}`" for out in outs_of(stage))]
            rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def needed(stage: dict[str, Any], makers: dict[str, str]) -> list[str]:
    """Return the stages that wrote what a stage reads, except the checks of the parameters."""
    read = [DEFAULTS.get(each, each) for each in stage.get("deps", [])]
    # A file may be one of a folder that is an output.
    stages = [makers.get(place) for each in read for place in (each, *map(str, Path(each).parents))]
    return [each for each in dict.fromkeys(stages) if each not in (None, "check")]


def outs_of(stage: dict[str, Any]) -> list[str]:
    """Return the paths that a stage writes."""
    listed = [*stage.get("outs", []), *stage.get("metrics", [])]
    return [name for each in listed for name in ([each] if isinstance(each, str) else each)]


PAGES: dict[Path, Callable[[], str]] = {
    ROOT / "docs/formats.md": stages,
    ROOT / "CONTRIBUTING.md": packages,
}

if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path), encoding="utf-8")
