"""Folders of one machine that the members of a group share: DVC's cache and the scratch folder.

Everything in such a folder belongs to the group and may be changed by all its members, whatever
their umask: the set-group-ID bit hands the group on, and a default access list, where
the file system has those, the permissions.
"""

import errno
import grp
import os
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

from fne.core.errors import InputError

CACHE, SCRATCH = "cache", "scratch"
MODE = 0o2770
# The links that save a second copy; DVC tries them in this order, file by file.
LINKS = "reflink,hardlink,symlink,copy"
# Linux keeps access lists in an extended attribute: a version, then (whose, what, nobody in particular).
ACCESS_LIST = "system.posix_acl_default"
OWNER, GROUP, OTHERS = 0x01, 0x04, 0x20
FOR_GROUP = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", whose, what, 0xFFFFFFFF) for whose, what in ((OWNER, 7), (GROUP, 7), (OTHERS, 0))
)


def make_shared(folder: Path, group: str | None) -> None:
    """Make a folder with a cache and a scratch folder for a group, or join one that is there.

    Raises:
        InputError: if the group is not known, or if we may not write there.
    """
    number = _group(folder, group)
    for path in (folder, folder / CACHE, folder / SCRATCH):
        try:
            path.mkdir(parents=True, exist_ok=True)
            found = path.stat()
            if found.st_uid == os.geteuid() or os.geteuid() == 0:
                os.chown(path, -1, number)
                path.chmod(MODE)
                _set_access_list(path)
        except OSError as error:
            raise InputError(
                f"{path}: cannot be shared ({error.strerror}); ask its owner, or use sudo"
            ) from None
        if not is_shared(path) or not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise InputError(f"{path}: is not shared with you; ask its owner to run this command")


def use_shared(repo: Any, folder: Path, scratch: Path) -> None:
    """Let one clone use the shared cache and scratch folder; nothing of this goes to Git.

    Raises:
        InputError: if the clone has a scratch folder of its own.
    """
    target = (folder / SCRATCH).absolute()
    if scratch.resolve() != target.resolve():
        if scratch.is_symlink():
            scratch.unlink()
        elif scratch.exists():
            raise InputError(
                f"{scratch}: is a folder of this clone; take its rows along with "
                f"`cp -rn {scratch}/. {target} && rm -r {scratch}`, and run this again"
            )
        scratch.symlink_to(target, target_is_directory=True)
    with repo.config.edit("local") as config:
        config["cache"].update({"dir": str((folder / CACHE).absolute()), "shared": "group", "type": LINKS})


def is_shared(path: Path) -> bool:
    """Tell whether a folder hands its group on."""
    return bool(path.stat().st_mode & stat.S_ISGID)


def ignores_umask(path: Path) -> bool:
    """Tell whether what is made in a folder is the group's to change, whatever the umask."""
    try:
        return os.getxattr(path, ACCESS_LIST) == FOR_GROUP
    except OSError:
        return False


def _set_access_list(path: Path) -> None:
    try:
        os.setxattr(path, ACCESS_LIST, FOR_GROUP)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENOSYS):
            raise  # where there are no access lists, `fne doctor` asks for a umask instead


def _group(folder: Path, name: str | None) -> int:
    if name is None:
        if folder.is_dir() and is_shared(folder):
            return folder.stat().st_gid
        mine = []
        for number in sorted({os.getegid(), *os.getgroups()}):
            with suppress(KeyError):
                mine.append(grp.getgrgid(number).gr_name)
        raise InputError(
            f"{folder}: name the group to share it with: --group NAME; yours are {', '.join(mine)}"
        )
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise InputError(
            f"--group: there is no group '{name}'; make it with `sudo groupadd {name}`"
        ) from None
