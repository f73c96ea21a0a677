"""HDF5 files that are made in memory, and the refusal of those that reach out of themselves."""

from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

from fne.core.errors import InputError


def file_image(datasets: Mapping[str, np.ndarray | str], **options: int) -> bytes:
    """Return the bytes of an HDF5 file with some datasets.

    Files are made in memory and written by ourselves, because HDF5 that meets a full disk
    can bring the process down when it closes the file.
    """
    with h5py.File("image", "w", driver="core", backing_store=False, **options) as file:
        for name, value in datasets.items():
            file.create_dataset(name, data=value)
        file.flush()
        image: bytes = file.id.get_file_image()
    return image


def own_datasets(path: Path, file: h5py.File) -> dict[str, h5py.Dataset]:
    """Return all datasets of a file by their names, also those in groups.

    Raises:
        InputError: if some of the contents would come from elsewhere on the disk.
    """
    found: dict[str, h5py.Dataset] = {}
    # Not by recursion, since groups can be nested deeper than Python calls.
    groups: list[tuple[str, h5py.Group]] = [("", file)]
    seen: set[int] = set()
    while groups:
        prefix, group = groups.pop()
        # A group can be a member of itself, by a second hard link.
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
