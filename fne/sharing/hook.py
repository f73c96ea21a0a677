"""The Git hook that stops a push whose data a colleague could not pull.

It runs after whatever hook was there before, such as the one of `dvc install`, which sends
the data: that one is kept beside it and called first.
"""

import shlex
import subprocess
import sys
from pathlib import Path

from fne.core.errors import InputError
from fne.store.files import replacing

HOOK = "pre-push"
BEFORE = "pre-push.before-fne"
MARK = "# Written by `fne verify --install-hook`"

# Git tells the hook which commits it pushes, one a line, on standard input.
SCRIPT = """\
#!/bin/sh
{mark}; {removal}
pushed=$(cat)
before="$(dirname "$0")/{before}"
if [ -x "$before" ]; then
    printf '%s\\n' "$pushed" | "$before" "$@" || exit $?
fi
set --
while read -r _ commit _; do
    case "$commit" in
        *[!0]*) set -- "$@" --rev "$commit" ;;
    esac
done <<END
$pushed
END
[ $# -eq 0 ] || exec {command} "$@"
"""


def install_hook(remote: str) -> str:
    """Write the hook for pushes that rely on `remote`; return how to remove it.

    Raises:
        InputError: outside a Git repository, or if an earlier hook cannot be kept.
    """
    hook = _hooks_folder() / HOOK
    before = hook.with_name(BEFORE)
    if hook.exists() and MARK not in hook.read_text(encoding="utf-8", errors="replace"):
        if before.exists():
            raise InputError(f"{hook} and {before} are both there, and neither is ours; remove one of them")
        hook.rename(before)
    removal = f"rm {shlex.quote(str(hook))}"
    if before.exists():
        removal = f"mv {shlex.quote(str(before))} {shlex.quote(str(hook))}"
    words = [sys.executable, "-m", "fne", "verify", "--remote", remote]
    command = " ".join(map(shlex.quote, words))
    with replacing(hook) as temporary:
        text = SCRIPT.format(mark=MARK, removal=f"remove it with: {removal}", before=BEFORE, command=command)
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(0o755)
    return removal


def _hooks_folder() -> Path:
    words = ["git", "rev-parse", "--git-path", "hooks"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True)  # noqa: S603  # constant words
    except (OSError, subprocess.CalledProcessError):
        raise InputError("no Git repository here; run this in the project") from None
    folder = Path(done.stdout.strip()).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder
