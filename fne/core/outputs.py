"""Files that a user names as outputs of a command: only the command's own earlier output is replaced."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from fne.core.errors import InputError
from fne.core.files import readable_os_errors

# Bytes at the beginning of a file by which a command recognizes its own output.
HEAD = 4096


def check_output(path: Path, option: str, is_own: Callable[[bytes], bool], *inputs: Path) -> None:
    """Refuse to replace anything but an earlier output, which `is_own` knows by its first `HEAD` bytes."""
    hint = f"choose another name with {option}, or remove it first"
    with readable_os_errors(path):
        try:
            found = path.lstat()
        except FileNotFoundError:
            return
        if stat.S_ISLNK(found.st_mode) and not path.exists():
            raise InputError(f"{path}: is a link to a file that does not exist; {hint}")
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{path}: exists and is not a regular file; {hint}")
        # Not Path.exists(), which raises an error for a name that is too long: a query may be a sentence.
        if any(os.path.exists(each) and path.samefile(each) for each in inputs):  # noqa: PTH110
            raise InputError(
                f"{path}: is an input of this command and is not replaced; choose another name with {option}"
            )
        with path.open("rb") as file:
            if not is_own(file.read(HEAD)):
                raise InputError(
                    f"{path}: exists, and this command did not write it, so it is not replaced; {hint}"
                )
