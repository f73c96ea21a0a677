"""The Git hook that stops a push whose data a colleague could not pull.

An existing hook, such as the one of `dvc install`, which sends the data, is kept and runs first.

Where `core.hooksPath` is set, other repositories may use that folder, so nothing is written there. The hook
goes to a folder in this clone's `.git`, to which the clone's own `core.hooksPath` then points, and the other
hooks in it call those of the folder that was used before.
"""

import shlex
import subprocess
import sys
from pathlib import Path

from fne.core.errors import InputError
from fne.core.files import read_bytes, readable_os_errors, replacing

HOOK = "pre-push"
BEFORE = "pre-push.before-fne"
MARK = "# Written by `fne verify --install-hook`"
# The folder below `.git` for a clone with `core.hooksPath`, and the keys that remember what was set before.
FOLDER = "fne-hooks"
SETTING = "core.hooksPath"
USED_BEFORE, LOCAL_BEFORE = "fne.hooksUsedBefore", "fne.hooksPathBefore"
# The hooks that Git runs for everyone who works in a clone.
OTHERS = (
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit"),
    *("prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge"),
    *("post-rewrite", "pre-auto-gc", "sendemail-validate", "reference-transaction", "post-index-change"),
)

# Git passes the pushed commits to the hook on standard input, one per line. Not every branch has the project.
SCRIPT = """\
#!/bin/sh
{mark}; {removal}
pushed=$(cat)
before={before}
if [ -x "$before" ]; then
    printf '%s\\n' "$pushed" | "$before" "$@" || exit $?
fi
cd {project} 2>/dev/null && [ -d .dvc ] || exit 0
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
CALL = """\
#!/bin/sh
{mark}; calls the hook of the folder that was used before
[ ! -x {before} ] || exec {before} "$@"
"""


def install_hook(remote: str) -> str:
    """Install the hook that checks `remote`; return the command that removes it."""
    git = Path(_git("rev-parse", "--git-common-dir")).absolute()
    setting = _git("config", "--type=path", "--get", "--default", "", SETTING)
    # A relative path starts where Git runs the hooks.
    used = Path(_git("rev-parse", "--show-toplevel"), setting) if setting else git / "hooks"
    if used.resolve() == (git / "hooks").resolve():
        return _install_beside(git / "hooks" / HOOK, remote)
    return _install_own_folder(git / FOLDER, used, remote)


def _install_beside(hook: Path, remote: str) -> str:
    """Install the hook in the clone's own folder of hooks, with an existing one beside it."""
    before = hook.with_name(BEFORE)
    if hook.exists() and MARK not in read_bytes(hook).decode(errors="replace"):
        if before.exists():
            raise InputError(f"{hook} and {before} exist, and fne wrote neither; remove one of them")
        with readable_os_errors(hook):
            hook.rename(before)
    removal = shlex.join(["mv", str(before), str(hook)] if before.exists() else ["rm", str(hook)])
    _write_hook(hook, f'"$(dirname "$0")/{BEFORE}"', removal, remote)
    return removal


def _install_own_folder(folder: Path, used: Path, remote: str) -> str:
    """Install the hook in a folder of this clone only, and call all hooks of the folder used before."""
    if used != folder:
        _git("config", "--local", USED_BEFORE, str(used))
        local = _git("config", "--local", "--get", "--default", "", SETTING)
        if local:
            _git("config", "--local", LOCAL_BEFORE, local)
    used = Path(_git("config", "--local", "--get", USED_BEFORE))
    local = _git("config", "--local", "--get", "--default", "", LOCAL_BEFORE)
    restore = [SETTING, local] if local else ["--unset", SETTING]
    commands = [["git", "config", "--local", *restore], ["rm", "-r", str(folder)]]
    removal = " && ".join(map(shlex.join, commands))
    for name in OTHERS:
        _write_script(folder / name, CALL.format(mark=MARK, before=shlex.quote(str(used / name))))
    _write_hook(folder / HOOK, shlex.quote(str(used / HOOK)), removal, remote)
    _git("config", "--local", SETTING, str(folder))
    return removal


def _write_hook(hook: Path, before: str, removal: str, remote: str) -> None:
    command = shlex.join([sys.executable, "-m", "fne", "verify", "--remote", remote])
    # Git runs a hook in the root of the work tree, and the project may be in a folder of it.
    project = shlex.quote(_git("rev-parse", "--show-prefix") or ".")
    text = f"remove it with: {removal}"
    _write_script(
        hook, SCRIPT.format(mark=MARK, removal=text, before=before, project=project, command=command)
    )


def _write_script(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(0o755)


def _git(*words: str) -> str:
    """Return what a Git command prints."""
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=True)  # noqa: S603, S607
    except (OSError, subprocess.CalledProcessError) as error:
        if words[0] == "config":
            reason = " ".join(str(getattr(error, "stderr", "") or error).split())
            raise InputError(f"Git's configuration of this clone cannot be changed: {reason}") from None
        raise InputError(f"{Path.cwd()}: not in a Git repository; run this in the project's folder") from None
    return done.stdout.strip()
