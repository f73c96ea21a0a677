"""What `fne verify` and `fne inspect` do with the report's pages and with histories of training runs."""

from pathlib import Path

from fne.core.files import read_bytes
from fne.report.record import page_artifact
from fne.report.sources import read_tables
from fne.store.artifact import Contents, Done, Kind, Lines
from fne.store.checksums import read_json
from fne.store.history import SEAL, read_history_seal


def _check_page(path: Path, done: Done) -> Contents:
    content = read_bytes(path).strip().lower()
    complete = content.startswith(b"<!doctype html>") and content.endswith(b"</html>")
    return Contents(page_artifact(path), faults=[] if complete else [f"{path}: not a complete HTML page"])


def _describe_page(path: Path) -> Lines:
    return [f"{path}: the report; open {path.resolve().as_uri()} in a browser"]


def _open_history(path: Path) -> Contents:
    return Contents(read_history_seal(path).artifact)


def _check_history(path: Path, done: Done) -> Contents:
    read_tables(path)
    if read_history_seal(path).points:
        read_json(path / "metrics.json")
    return _open_history(path)


def _is_history(path: Path) -> bool:
    return path.is_dir() and ((path / SEAL).exists() or (path / "plots").is_dir())


PAGE = Kind(".html", _check_page, None, _describe_page)
HISTORY = Kind("history", _check_history, _open_history, is_at=_is_history)
