"""The command of a stage: outputs are published only if nothing that decides them changed meanwhile.

DVC records parameters and dependencies after a stage has ended. If someone edits `params.yaml` or replaces an
input while the stage runs, `dvc.lock` would describe a run that never happened, and the run cache would later
return its outputs to anyone who asks for the new values.

So a stage reads the parameter file once, and notes the state of its inputs and of its own code. Its outputs
are written under temporary names. They get their names at the end if everything is unchanged; otherwise they
are removed, and the stage exits with code 2. What the scratch folder keeps is not affected. A file that an
earlier run wrote and this one did not, such as word vectors, is then removed.

This does not cover the moment between that comparison and DVC's reading. Outputs therefore record what they
were made with, and readers compare that with `dvc.lock` (`fne.store.lineage`). The wrong entry of the run
cache stays until it is removed, as docs/troubleshooting.md says.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from fne.core.code import SHIPPED, refuse_other_code
from fne.core.dvc import NO_RECORDS, content_md5, pipeline_outs, project_path
from fne.core.errors import InputError
from fne.core.files import deferring
from fne.core.options import INPUT, OUTPUT, InputFiles, OutputFiles
from fne.core.settings import flattened, load_params, reading_once
from fne.core.signals import explain_interrupt
from fne.core.stat_cache import VerifiedFiles

SHOWN = 3  # changes in a message
AGAIN = "nothing was published; run `dvc repro` again, finished work is kept"
# A folder with one of these is a store or a history.
OWN_FILES = ("manifest.json", "history.json")
# The inputs of the running stage.
_inputs: list[Path] = []


class StageCommand(click.Command):
    """A command that reads arguments of the type `INPUT` or `InputFiles`, and publishes those of the others.

    Of a folder, only the named files count: an unrelated file in it may change while the stage runs.
    """

    def __init__(
        self,
        *args: Any,
        keys: Sequence[str],
        paths: Sequence[str],
        files: Sequence[Path],
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.keys = keys
        self.paths = paths
        self.files = files

    def places(self, ctx: click.Context) -> tuple[list[Path], list[Path]]:
        """Return the files and folders that the stage reads, and those that it writes."""
        inputs: list[Path] = [*self.files]
        outputs: list[Path] = []
        for each in self.params:
            path, kind = ctx.params[str(each.name)], each.type
            if isinstance(kind, InputFiles | OutputFiles):
                places = outputs if isinstance(kind, OutputFiles) else inputs
                places += [path / name for name in kind.names]
            elif kind in (INPUT, OUTPUT):
                (outputs if kind is OUTPUT else inputs).append(path)
            elif isinstance(kind, click.Tuple) and path:
                inputs += [place for place, own in zip(path, kind.types, strict=True) if own is INPUT]
        return inputs, outputs

    def invoke(self, ctx: click.Context) -> Any:
        """Run the stage and publish its outputs."""
        assert self.callback is not None
        refuse_other_code(Path(self.callback.__code__.co_filename).stem)
        inputs, outputs = self.places(ctx)
        refuse_foreign_folders(outputs)
        with (
            explain_interrupt(),
            publishing(ctx.params["params"], self.keys, self.paths, inputs, outputs),
        ):
            return super().invoke(ctx)


def stage(
    *keys: str, paths: Sequence[str] = (), files: Sequence[Path] = ()
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return the decorator of a stage's command, which takes `params_option`.

    Args:
        keys: the sections and keys that `dvc.yaml` lists for the stage, such as `train` and `embed.source`.
        paths: the keys whose values are inputs of the stage, such as `extract.weights`.
        files: further inputs, which are the same in every project.
    """
    return click.command(cls=StageCommand, keys=keys, paths=paths, files=files)


@contextmanager
def publishing(
    params: Path,
    keys: Sequence[str],
    paths: Sequence[str],
    inputs: Iterable[Path],
    outputs: Iterable[Path],
) -> Iterator[None]:
    """Publish outputs at the end of the block, if settings, inputs and code are the same as now.

    The values of `paths`, which are keys, are inputs, too.
    """
    with reading_once(params):
        content = load_params(params)
        settings = listed_settings(content, keys)
        named = [each for each in listed_settings(content, paths).values() if isinstance(each, str)]
        places = [*inputs, *map(Path, named)]
        before = file_states(places)

        def check() -> None:
            changes = [*_changed_settings(params, keys, settings), *_changed_files(before, places)]
            changes += _changed_code()
            if changes:
                more = f"; and {len(changes) - SHOWN} more changes" if len(changes) > SHOWN else ""
                raise InputError(f"{'; '.join(changes[:SHOWN])}{more}, while the stage ran; {AGAIN}")

        _inputs[:] = places
        try:
            with deferring(outputs, check):
                yield
        finally:
            _inputs.clear()


def refuse_foreign_folders(outputs: Iterable[Path]) -> None:
    """Refuse an output that would replace a folder of the user, for stages that are called by hand."""
    for path in outputs:
        if not path.is_dir() or not any(path.iterdir()) or any((path / name).exists() for name in OWN_FILES):
            continue
        if project_path(path) not in pipeline_outs():
            raise InputError(f"{path}: a folder with other files is there and is not replaced; name another")


def input_digests(records: VerifiedFiles = NO_RECORDS) -> dict[str, str]:
    """Return the MD5 of each input of the running stage by its path, both as DVC will record them.

    An output holds them for comparison with `dvc.lock`: an input may be replaced before DVC reads it.
    """
    found = {_input_name(path): content_md5(path, records) for path in _inputs if path.exists()}
    records.compact()
    return found


def _input_name(path: Path) -> str:
    """Return the path of an input in the project, wherever it is installed with the library."""
    return str(path.relative_to(SHIPPED) if path == SHIPPED / "papers" else project_path(path))


def listed_settings(params: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return the values of sections and keys, by their names for `-S`; what is missing is left out."""
    found: dict[str, Any] = {}
    for key in keys:
        section, _, rest = key.partition(".")
        content = params.get(section)
        if not isinstance(content, dict):
            continue
        for name, value in flattened(content).items():
            if not rest or name == rest or name.startswith(f"{rest}."):
                found[f"{section}.{name}"] = value
    return found


def file_states(places: Iterable[Path]) -> dict[Path, os.stat_result]:
    """Return the state of each file at or below `places`; links to folders are not followed below them."""
    found: dict[Path, os.stat_result] = {}
    # No recursion: folders can be nested deeper than Python's recursion limit.
    waiting = list(places)
    while waiting:
        place = waiting.pop()
        try:
            state = place.stat()
            if stat.S_ISDIR(state.st_mode):
                with os.scandir(place) as entries:
                    waiting += [
                        Path(each.path) for each in entries if not (each.is_symlink() and each.is_dir())
                    ]
                continue
        except OSError:
            continue  # the stage says what is missing, and a later difference is detected
        found[place] = state
    return found


def _changed_settings(params: Path, keys: Sequence[str], before: Mapping[str, Any]) -> list[str]:
    with reading_once(params):
        now = listed_settings(load_params(params), keys)
    missing = "no value"
    return [
        f"{params}: {key} changed from {before.get(key, missing)!r} to {now.get(key, missing)!r}"
        for key in dict.fromkeys([*before, *now])
        if before.get(key, missing) != now.get(key, missing)
    ]


def _changed_files(before: Mapping[Path, os.stat_result], places: Iterable[Path]) -> list[str]:
    now = file_states(places)
    changes = [
        f"{path} {change}" for path, state in before.items() if (change := _change(state, now.get(path)))
    ]
    return changes + [f"{path} was added" for path in now if path not in before]


def _change(before: os.stat_result, now: os.stat_result | None) -> str | None:
    """Return how a file has changed, or None; see `fne.core.stat_cache`."""
    if now is None:
        return "was removed"
    if not os.path.samestat(before, now):
        return f"was replaced by another file (inode {before.st_ino}, now {now.st_ino})"
    for what, key in (("size", "st_size"), ("modification time", "st_mtime_ns")):
        if getattr(before, key) != getattr(now, key):
            return f"has changed ({what} {getattr(before, key)}, now {getattr(now, key)})"
    # DVC links and protects objects of its cache, which changes their status and not their content.
    linked = (before.st_nlink, before.st_mode) != (now.st_nlink, now.st_mode)
    if before.st_ctime_ns != now.st_ctime_ns and not linked:
        return f"has changed (status change time {before.st_ctime_ns}, now {now.st_ctime_ns})"
    return None


def _changed_code() -> list[str]:
    """Compare the modules that this process has imported."""
    imported = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    loaded = {path: state for path, state in _CODE.items() if str(path) in imported}
    return _changed_files(loaded, loaded)


# At import, which is as close as possible to the moment when Python reads the modules.
_PACKAGE = Path(__file__).parent.parent
_CODE = file_states([*_PACKAGE.rglob("*.py"), *_PACKAGE.parent.glob("stages/*.py")])
