"""Which of our modules a module imports, directly and through others."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def module_path(name: str) -> Path | None:
    """Return the file of one of our modules, relative to the project, or None for others' modules."""
    base = Path(*name.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if (ROOT / candidate).is_file():
            return candidate
    return None


def direct_imports(path: Path) -> set[Path]:
    """Return the files of our modules that a file imports, wherever in the file that stands."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {module_path(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from package import module` names a module, `from module import thing` does not.
            named = {module_path(f"{node.module}.{alias.name}") for alias in node.names}
            found |= named - {None} or {module_path(node.module)}
    return {each for each in found if each and each.parts[0] in ("fne", "stages")}


def all_imports(path: Path) -> set[Path]:
    """Return the files of our modules that importing a file loads, without the packages' own."""
    seen: set[Path] = set()
    waiting = {path}
    while waiting:
        new = {each for file in waiting for each in direct_imports(file)} - seen
        seen |= new
        waiting = new
    return seen
