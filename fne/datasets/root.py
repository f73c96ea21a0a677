"""What `catalog.root` names: the folder of a data set, or its annotation file.

DVC looks at everything below a folder that a stage depends on, each time it is asked for
the status. Of a data set with many images the annotation file is named instead: DVC
looks at that one file, and the images are known by their digests in the catalog.
"""

from pathlib import Path

# Where data sets keep their annotations one folder below their root.
SUBFOLDERS = ("annotations", "flickr8k_text")
# The endings of annotation files; asked only where the root is not on this machine.
ENDINGS = (".csv", ".json", ".jsonl", ".token", ".txt")


def image_root(root: str | Path) -> Path:
    """Return the folder that the paths of the catalog's images start from.

    Example:
        >>> image_root("/data/coco/annotations/captions_val2017.json").as_posix()
        '/data/coco'
        >>> image_root("/data/coco").as_posix()
        '/data/coco'
    """
    path = Path(root)
    if not is_annotation_file(path):
        return path
    return path.parent.parent if path.parent.name.lower() in SUBFOLDERS else path.parent


def is_annotation_file(path: Path) -> bool:
    """Tell whether a root is a file; one that is not here is told by its ending."""
    return path.is_file() or (not path.is_dir() and path.suffix.lower() in ENDINGS)
