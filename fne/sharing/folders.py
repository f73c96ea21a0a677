"""Folders of one machine that the members of a group share: DVC's cache and the scratch folder.

All members may change everything in it, whatever their umask: the set-group-ID bit passes the group on to new
files, and a default access control list, if the file system has those, the permissions.
"""

import errno
import grp
import os
import stat
import struct
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any

from fne.core.dvc import open_repo
from fne.core.errors import InputError

CACHE, SCRATCH = "cache", "scratch"
MODE = 0o2770
# Links that avoid a second copy of each file; DVC tries them in this order.
LINKS = "reflink,hardlink,symlink,copy"
# Linux stores access control lists in an extended attribute: a version, then entries (who, permissions, id).
ACL = "system.posix_acl_default"
OWNER, GROUP, OTHERS = 0x01, 0x04, 0x20
GROUP_ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", who, permissions, 0xFFFFFFFF)
    for who, permissions in ((OWNER, 7), (GROUP, 7), (OTHERS, 0))
)


def share_with_group(folder: Path, group: str | None, scratch: Path) -> str:
    """Make a shared cache and scratch folder, let this project use them, and return the next steps."""
    with open_repo() as repo:
        own = Path(repo.cache.local_cache_dir)
        create_shared_folder(folder, group)
        use_shared_folder(repo, folder, scratch)
    lines = [f"{folder}: this clone now uses the cache and the scratch folder there; each colleague runs"]
    lines.append(f"  fne doctor --share {folder}")
    if own.is_dir() and own.resolve() != (folder / CACHE).resolve():
        source, target = quote(f"{own}/."), quote(str(folder / CACHE))
        lines.append(f"the contents of {own} are still there; to copy them, run")
        lines.append(f"  cp -rn {source} {target} && dvc checkout --relink")
        lines.append(f"this clone no longer uses {own}, but other clones and projects may: those whose")
        lines.append(
            "`dvc cache dir` prints it, and those with links into it; keep it unless you know them all"
        )
    return "\n".join(lines)


def create_shared_folder(folder: Path, group: str | None) -> None:
    """Create a folder with a cache and a scratch folder for a group; without one, join an existing folder."""
    number = _group(folder, group)
    for path in (folder, folder / CACHE, folder / SCRATCH):
        if path.is_symlink():
            raise InputError(
                f"{path}: is a symbolic link, which is not followed; name the folder that it leads to"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            _give_to_group(path, number)
        except OSError as error:
            raise InputError(
                f"{path}: cannot be shared ({error.strerror}); ask its owner, or run this with sudo"
            ) from None
        if not is_shared(path) or not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise InputError(f"{path}: is not shared with you; ask its owner to run this command")


def use_shared_folder(repo: Any, folder: Path, scratch: Path) -> None:
    """Let a clone use a shared folder by its local configuration; its scratch folder becomes a link."""
    target = (folder / SCRATCH).absolute()
    if scratch.resolve() != target.resolve():
        if scratch.is_symlink():
            scratch.unlink()
        elif scratch.exists():
            raise InputError(
                f"{scratch}: is a folder, and not a link to {target}; copy its rows with "
                f"`cp -rn {quote(f'{scratch}/.')} {quote(str(target))}`, rename it (other clones may use it "
                "too), then run this again"
            )
        scratch.symlink_to(target, target_is_directory=True)
    with repo.config.edit("local") as config:
        config["cache"].update({"dir": str((folder / CACHE).absolute()), "shared": "group", "type": LINKS})


def is_shared(path: Path) -> bool:
    """Return whether new files in a folder get the group of the folder."""
    return bool(path.stat().st_mode & stat.S_ISGID)


def ignores_umask(path: Path) -> bool:
    """Return whether the group may change new files in a folder, whatever the umask."""
    try:
        return os.getxattr(path, ACL) == GROUP_ACL
    except OSError:
        return False


def _give_to_group(path: Path, number: int) -> None:
    """Change group, mode and access control list of a folder that this user may change."""
    # Opened once: a link that takes its place meanwhile is not followed.
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.geteuid() in (0, os.fstat(handle).st_uid):
            os.fchown(handle, -1, number)
            os.fchmod(handle, MODE)
            _set_acl(handle)
    finally:
        os.close(handle)


def _set_acl(handle: int) -> None:
    try:
        os.setxattr(handle, ACL, GROUP_ACL)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENOSYS):
            raise  # without access control lists, `fne doctor` asks for a umask instead


def _group(folder: Path, name: str | None) -> int:
    if name is None:
        if folder.is_dir() and is_shared(folder):
            return folder.stat().st_gid
        mine = []
        for number in sorted({os.getegid(), *os.getgroups()}):
            with suppress(KeyError):
                mine.append(grp.getgrgid(number).gr_name)
        raise InputError(
            f"{folder}: name the group to share it with: --group NAME; your groups are {', '.join(mine)}"
        )
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise InputError(
            f"--group: there is no group '{name}'; create it with `sudo groupadd {name}`"
        ) from None
