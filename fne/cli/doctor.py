"""`fne doctor`: describe the machine and the scratch folder, find problems, remove rows, share folders.

A problem is one line that ends in `; fix: ` and the command or the change that fixes it. What works and
could be better, such as defaults of DVC, is listed below the problems, as advice.
"""

import json
import os
import platform
import shlex
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import torch

from fne.core.device import has_gpu
from fne.core.dvc import open_repo
from fne.core.errors import InputError
from fne.core.files import files_in, read_bytes, write_text
from fne.core.options import OUTPUT, params_option
from fne.core.params import Runtime, load_key, load_runtime
from fne.core.terminal import say
from fne.extraction.finished_rows import HARDWARE_SUFFIX, KIND
from fne.extraction.weights import Torchvision, parse_weights
from fne.sharing.device_check import format_report, report_content, run_device_test
from fne.sharing.doctor import run_advice, run_checks
from fne.sharing.folders import CACHE, create_shared_folder, use_shared_folder
from fne.store.journal import Journal
from fne.training.finished_runs import finished_trainings

# The settings of finished rows that the summary shows.
SUMMARY_KEYS = ("backbone", "crops", "resize", "activations", "precision", "algorithm", "device", "weights")
# Other folders of the scratch folder; all of them may be removed while nothing runs.
OTHER_FOLDERS = {"training": "unfinished training", "search": "indexes of searched folders"}
ADVICE = "advice, which nothing depends on:"
TRAININGS = "trainings"  # the name of finished trainings in --prune


@click.command()
@params_option
@click.option(
    "--prune",
    metavar="NAME",
    help="Remove finished rows from the scratch folder, by name or 'all', or finished 'trainings'.",
)
@click.option(
    "--share", type=OUTPUT, metavar="DIR", help="Share the cache and the scratch folder with a group, in DIR."
)
@click.option("--group", metavar="NAME", help="With --share, for a new DIR: the group that may use it.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="Test a device for about a minute.",
)
def doctor(
    params: Path, prune: str | None, share: Path | None, group: str | None, device: str | None
) -> None:
    """Describe the machine and the scratch folder, and list problems.

    Checks links, permissions, free space, the Git identity, DVC's remotes and locks, settings
    of params.yaml that the machine does not support, and weights. Every problem is one line
    that ends with the command that fixes it. Advice about what could be better follows.

    The scratch folder (runtime.scratch) keeps finished rows of the extraction, so that no
    image is computed twice. Clones and users can share it. It can be removed at any time:
    missing rows are computed again.

    --device computes drawn images with the settings of params.yaml and compares them with the
    plain algorithm on the CPU. It prints a table and advice for the section runtime, and
    writes a JSON file to the scratch folder; attach it to bug reports.
    """
    runtime = load_runtime(params)
    if device:
        say(check_device(runtime, params, device))
    elif share:
        say(share_with_group(runtime, share.absolute(), group))
    else:
        say(prune_rows(runtime, prune) if prune else diagnose(runtime, params))


def diagnose(runtime: Runtime, params: Path) -> str:
    """Return a description of the machine and the scratch folder, and the problems found."""
    scratch = runtime.scratch_folder()
    free = shutil.disk_usage(scratch if scratch.exists() else Path()).free
    gpu = torch.cuda.get_device_name() if has_gpu() else "none"
    lines = [
        f"python {platform.python_version()}, torch {torch.__version__}, dvc {version('dvc')}",
        f"GPU: {gpu}; torch threads: {runtime.threads or torch.get_num_threads()}",
        f"scratch folder {scratch}: {free / 1e9:.1f} GB free on its disk",
        *(_line(folder) for folder in _row_folders(scratch)),
        *_training_lines(scratch),
        *(
            f"  {title}: {size / 1e6:.1f} MB, in {scratch / name}"
            for name, title in OTHER_FOLDERS.items()
            if (size := _total_size(scratch / name))
        ),
    ]
    missing, download = _weights(params)
    faults, advice = _project_lines(scratch)
    problems = [*_unsupported_settings(runtime), *missing, *_damaged_rows(scratch), *faults]
    could = [*download, *advice]
    return "\n".join(
        [
            *lines,
            *(problems or ["no problems found"]),
            *[ADVICE] * bool(could),
            *(f"  {line}" for line in could),
        ]
    )


def check_device(runtime: Runtime, params: Path, device: str) -> str:
    """Run the self-test of a device, write its JSON file and return its table."""
    report = run_device_test(params, device)
    path = runtime.scratch_folder() / "doctor" / f"{device}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(report_content(report), indent=2) + "\n")
    return f"{format_report(report)}\n{path}: the same and more, for a bug report"


def share_with_group(runtime: Runtime, folder: Path, group: str | None) -> str:
    """Make a shared cache and scratch folder, let this project use them, and return the next steps."""
    with open_repo() as repo:
        own = Path(repo.cache.local_cache_dir)
        create_shared_folder(folder, group)
        use_shared_folder(repo, folder, runtime.scratch_folder())
    lines = [f"{folder}: this clone now uses the cache and the scratch folder there; each colleague runs"]
    lines.append(f"  fne doctor --share {folder}")
    if own.is_dir() and own.resolve() != (folder / CACHE).resolve():
        source, target = shlex.quote(f"{own}/."), shlex.quote(str(folder / CACHE))
        lines.append(f"the contents of {own} are still there; to copy them, run")
        lines.append(f"  cp -rn {source} {target} && dvc checkout --relink")
        lines.append(f"this clone no longer uses {own}, but other clones and projects may: those whose")
        lines.append(
            "`dvc cache dir` prints it, and those with links into it; keep it unless you know them all"
        )
    return "\n".join(lines)


def prune_rows(runtime: Runtime, name: str) -> str:
    """Remove the rows in one folder of the scratch folder, or in all, and return the freed size.

    Raises:
        InputError: if there are no such rows, or if a process is using them.
    """
    if name == TRAININGS:
        return prune_trainings(runtime.scratch_folder())
    folders = _row_folders(runtime.scratch_folder())
    chosen = [folder for folder in folders if name in ("all", folder.name)]
    if not chosen:
        known = ", ".join([*(folder.name for folder in folders), TRAININGS])
        raise InputError(f"no rows '{name}' in {runtime.scratch_folder()}; existing rows: {known}")
    freed = sum(_size(folder) for folder in chosen)
    for folder in chosen:
        _remove_rows(folder)
    return f"removed {len(chosen)} kinds of rows, {freed / 1e6:.1f} MB"


def prune_trainings(scratch: Path) -> str:
    """Remove all finished trainings and return the freed size; they are trained again when needed."""
    files = finished_trainings(scratch)
    freed = sum(each.path.stat().st_size for each in files)
    for each in files:
        each.path.unlink(missing_ok=True)
    return f"removed {len(files)} finished trainings, {freed / 1e6:.1f} MB"


def _training_lines(scratch: Path) -> Iterator[str]:
    """Describe finished trainings; `fne doctor --prune trainings` removes them."""
    for each in finished_trainings(scratch):
        size = each.path.stat().st_size / 1e6
        yield f"  finished training {each.path.stem[:12]}: {each.summary}, {size:.1f} MB"


def _unsupported_settings(runtime: Runtime) -> Iterator[str]:
    """Find settings that this machine does not support."""
    cores = os.cpu_count() or 1
    if runtime.device == "cuda" and not has_gpu():
        yield "runtime.device is cuda, but torch finds no GPU; fix: set it to auto in params.yaml"
    for key in ("threads", "workers"):
        if (value := getattr(runtime, key)) > cores:
            yield f"runtime.{key} is {value}, but there are {cores} cores; fix: reduce it in params.yaml"


def _weights(params: Path) -> tuple[list[str], list[str]]:
    """Find weights that are missing, and weights that are still to be downloaded."""
    path = Path(load_key(params, "extract", "weights"))
    backbone = load_key(params, "extract", "backbone")
    if not path.is_file():
        return [f"extract.weights: {path}: no such file; fix: dvc pull {path}"], []
    if path.suffix in (".yaml", ".yml") and isinstance(named := parse_weights(path), Torchvision):
        if backbone not in named.sha256:
            return [], []  # `fne check` says so
        from torchvision.models import get_model_weights  # torchvision: slow to import

        file = get_model_weights(backbone)[named.name].url.rpartition("/")[2]
        if not Path(torch.hub.get_dir(), "checkpoints", file).is_file():
            return [], [f"{path}: {file} is not downloaded yet; fix: dvc repro extract, which downloads it"]
    return [], []


def _project_lines(scratch: Path) -> tuple[list[str], list[str]]:
    """Find problems of Git, DVC and the folders, and what could be better; none outside a DVC project."""
    if not Path(".dvc").is_dir():
        return [], []
    try:
        with open_repo() as repo:
            return run_checks(repo, scratch), run_advice(repo, scratch)
    except InputError as error:
        return [error.message], []


def _remove_rows(folder: Path) -> None:
    """Remove the rows in a folder while holding all its locks; the lock files stay."""
    features = _settings(folder)["features"]
    journals = [Journal(path.with_suffix(".rows"), features) for path in sorted(folder.glob("*.lock"))]
    held = []
    try:
        for journal in journals:
            if not journal.lock():
                raise InputError(
                    f"{folder}: process {journal.owner()} is using it; wait for the process or stop it"
                )
            held.append(journal)
        for journal in journals:
            for path in (journal.path, journal.path.with_suffix(HARDWARE_SUFFIX)):
                path.unlink(missing_ok=True)
    finally:
        for journal in held:
            journal.unlock()


def _row_folders(scratch: Path) -> list[Path]:
    return sorted(
        path.parent
        for path in scratch.glob(f"activations/*/{KIND}")
        if any(path.parent.glob("*.rows")) and _settings(path.parent)
    )


def _damaged_rows(scratch: Path) -> Iterator[str]:
    """Find entries of the scratch folder that are no rows, or whose description is damaged."""
    for path in sorted(scratch.glob("activations/*")):
        if path.is_symlink() or not path.is_dir() or ((path / KIND).exists() and not _settings(path)):
            command = f"rm -r {shlex.quote(str(path))}"
            yield f"{path}: no rows of fne, or their description is damaged; fix: {command}"


def _settings(folder: Path) -> dict[str, Any]:
    """Return the description of rows; empty if it is damaged."""
    try:
        settings = json.loads(read_bytes(folder / KIND))
        usable = isinstance(settings["features"], int) and settings["features"] > 0
    except (InputError, ValueError, TypeError, KeyError, RecursionError):
        return {}
    return dict(settings) if usable else {}


def _line(folder: Path) -> str:
    settings = _settings(folder)
    shown = ", ".join(str(settings[key])[:12] for key in SUMMARY_KEYS if key in settings)
    size = _size(folder)
    rows = size // (settings["features"] * 4 + 64)
    return f"  {folder.name}  {rows} rows, {size / 1e6:.1f} MB: {shown}"


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.rows") if path.is_file())


def _total_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in files_in(folder)) if folder.is_dir() else 0
