"""Which kind of artifact a path is, by its name and by what stands there."""

from pathlib import Path

from fne.store.layout import MANIFEST

STORE, HISTORY, FOLDER = "row stores", "history", "folder"
NAMED = ("images.jsonl", "captions.jsonl", "rejects.csv", "vocabulary.json")


def kind_of(path: Path) -> str:
    """Return the kind of what stands at `path`: a name, or a file's suffix."""
    if not path.is_dir():
        return path.name if path.name in NAMED else path.suffix
    if (path / MANIFEST).exists() or any(path.glob("shard-*.h5")):
        return STORE
    return HISTORY if (path / "plots").is_dir() else FOLDER
