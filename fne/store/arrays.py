"""Single-file artifacts: a few named arrays in one sealed HDF5 file, with text as UTF-8 strings.

The seal at the end is checked before HDF5 reads the file: HDF5 does not detect a changed bit in a value, and
one in its own structures can make it loop forever. Files that refer to data outside themselves are refused.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fne.core.errors import InputError
from fne.core.files import read_bytes, replacing
from fne.store.artifact import (
    Artifact,
    Contents,
    Done,
    Format,
    Kind,
    Lineage,
    Lines,
    Sections,
    describe,
    described,
    repair_hint,
    summary,
)
from fne.store.checksums import seal_bytes, unseal_bytes
from fne.store.layout import not_finite

FORMAT = Format("fne-arrays", 1)
DESCRIPTION = "description"


@dataclass(frozen=True)
class Arrays:
    """The arrays of a file, all in memory, and the artifact that they are."""

    artifact: Artifact
    values: dict[str, np.ndarray]

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self.values[name]
        except KeyError:
            path = self.artifact.path
            raise InputError(f"{path}: damaged (it has no '{name}'); {repair_hint(path)}") from None

    def texts(self, name: str) -> list[str]:
        """Return an array of strings as a list of `str`."""
        return [value.decode() for value in self[name].tolist()]


@dataclass(frozen=True)
class Layout:
    """The arrays of one artifact.

    `axes` has the type of each array (f: floats, i: integers, b: booleans, O: texts) and its axes' names.
    """

    name: str
    axes: Mapping[str, str]  # axes of one name have one length
    faults: Callable[[Path, Arrays], Lines] = lambda path, arrays: []
    captions: str | None = None  # the array with the ids of its captions, if any


def write_arrays(
    path: Path,
    name: str,
    arrays: Mapping[str, np.ndarray | Sequence[str]],
    settings: dict[str, Any],
    lineage: Lineage,
    sections: Sections | None = None,
) -> None:
    """Write the artifact `name` to one HDF5 file."""
    description = FORMAT.header() | describe(name, settings, lineage, sections)
    # A dataset and not an attribute: attributes are limited to 64 kB.
    content: dict[str, np.ndarray | str] = {DESCRIPTION: json.dumps(description, ensure_ascii=False)}
    values = {key: _storable(value) for key, value in arrays.items()}
    with replacing(path) as temporary:
        temporary.write_bytes(seal_bytes(file_image(content | values)))


def arrays_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the digest of some arrays, whatever file they are in."""
    found = hashlib.sha256()
    for name, values in sorted(arrays.items()):
        found.update(json.dumps([name, values.dtype.str, values.shape]).encode() + values.tobytes())
    return found.hexdigest()


def read_arrays(path: Path, expected: Layout | str | None = None, known: Sequence[Layout] = ()) -> Arrays:
    """Read an artifact from one HDF5 file, checking its seal.

    Args:
        expected: the artifact that it must be, by its layout or its name alone; any if None.
        known: further layouts of artifacts that it may be.
    """
    layouts = {each.name: each.axes for each in (expected, *known) if isinstance(each, Layout)}
    name = expected.name if isinstance(expected, Layout) else expected
    content = read_bytes(path)
    inner = unseal_bytes(path, content, repair_hint(path))
    try:
        with h5py.File(BytesIO(inner), "r") as file:
            datasets = own_datasets(path, file)
            description = json.loads(datasets.pop(DESCRIPTION)[()])
            FORMAT.check(path, description)
            for key, dataset in datasets.items():
                # What `write_arrays` writes is not compressed.
                if dataset.nbytes > len(inner):
                    raise ValueError(f"'{key}' would take {dataset.nbytes} bytes, more than the whole file")
            values = {key: dataset[()] for key, dataset in datasets.items()}
            _check_layout(values, layouts.get(description["name"], {}))
        artifact = described(path, description["name"], hashlib.sha256(content).hexdigest(), description)
    except (OSError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: not an artifact of fne ({error}); {repair_hint(path)}") from None
    if name is not None and artifact.name != name:
        raise InputError(f"{path}: expected {name}, found {artifact.name}")
    return Arrays(artifact, values)


def _check_layout(values: Mapping[str, np.ndarray], layout: Mapping[str, str]) -> None:
    """Refuse arrays of other types and shapes than an artifact has; only another program writes such."""
    lengths: dict[str, int] = {}
    for name in sorted(values.keys() & layout.keys()):
        kind, *axes = layout[name].split()
        value = values[name]
        if value.dtype.kind.replace("u", "i") != kind or value.ndim != len(axes):
            raise ValueError(f"'{name}' has {value.dtype} values in {value.ndim} dimensions")
        if kind == "O" and not all(isinstance(each, bytes) for each in value.tolist()):
            raise ValueError(f"'{name}' has no texts")
        for axis, length in zip(axes, value.shape, strict=True):
            if lengths.setdefault(axis, length) != length:
                raise ValueError(f"'{name}' has {length} {axis}, other arrays have {lengths[axis]}")


def file_image(datasets: Mapping[str, np.ndarray | str], **options: int) -> bytes:
    """Return the bytes of an HDF5 file with some datasets; `options` are those of `h5py.File`.

    The file is built in memory, because HDF5 can crash the process when it closes a file on a full disk.
    """
    with h5py.File("image", "w", driver="core", backing_store=False, **options) as file:
        for name, value in datasets.items():
            file.create_dataset(name, data=value)
        file.flush()
        image: bytes = file.id.get_file_image()
    return image


def own_datasets(path: Path, file: h5py.File) -> dict[str, h5py.Dataset]:
    """Return all datasets of a file by their names, also those in groups."""
    found: dict[str, h5py.Dataset] = {}
    # No recursion: groups can be nested deeper than Python's recursion limit.
    groups: list[tuple[str, h5py.Group]] = [("", file)]
    seen: set[int] = set()
    while groups:
        prefix, group = groups.pop()
        # A second hard link can make a group a member of itself.
        address = h5py.h5o.get_info(group.id).addr
        if address in seen:
            continue
        seen.add(address)
        for key in group:
            name = prefix + key
            member = _own_member(path, group, key, name)
            if isinstance(member, h5py.Group):
                groups.append((f"{name}/", member))
            elif isinstance(member, h5py.Dataset):
                found[name] = member
    return found


def _own_member(
    path: Path, group: h5py.Group, key: str, name: str
) -> h5py.Group | h5py.Dataset | h5py.Datatype:
    link = group.get(key, getlink=True)
    if not isinstance(link, h5py.HardLink):
        kind = "a soft link" if isinstance(link, h5py.SoftLink) else "a link out of the file"
        raise InputError(f"{path}: '{name}' is {kind}; such files are refused")
    member = group[key]
    if isinstance(member, h5py.Dataset) and (member.is_virtual or member.external):
        raise InputError(f"{path}: '{name}' is stored outside the file; such files are refused")
    return member


def _storable(value: np.ndarray | Sequence[str]) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value)
    return np.array([text.encode() for text in value], dtype=h5py.string_dtype())


def arrays_kind(*layouts: Layout) -> Kind:
    """Return the kind of all files of arrays, of which some have a layout."""
    by_name = {each.name: each for each in layouts}

    def check(path: Path, done: Done) -> Contents:
        arrays = read_arrays(path, known=layouts)
        faults = not_finite(path, arrays.values)
        layout = by_name.get(arrays.artifact.name)
        if layout is None:
            return Contents(arrays.artifact, faults=faults)
        ids = arrays.texts(layout.captions) if layout.captions else None
        return Contents(arrays.artifact, caption_ids=ids, faults=faults + layout.faults(path, arrays))

    def describe_arrays(path: Path) -> Lines:
        arrays = read_arrays(path, known=layouts)
        types = {name: value.dtype for name, value in arrays.values.items()}
        return summary(
            arrays.artifact,
            arrays.artifact.name,
            *(
                f"{name:<20} {'text' if types[name].kind == 'O' else types[name]} {value.shape}"
                for name, value in arrays.values.items()
            ),
        )

    return Kind(
        ".h5", check, lambda path: Contents(read_arrays(path, known=layouts).artifact), describe_arrays
    )
