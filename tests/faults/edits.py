"""Files that change while a stage reads them: `python -m tests.faults.edits --help`.

Each round runs one stage on a finished project of 20 images, and edits, swaps, replaces or truncates a
parameter or an input at a random moment. Afterwards the record that DVC would write is compared with
what was computed. The tests run a small version.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import torch
from click.testing import CliRunner
from ruamel.yaml import YAML

from fne.cli import main as fne
from fne.core.dvc import content_md5
from fne.core.options import INPUT, OUTPUT
from fne.core.settings import load_params, read_yaml
from fne.core.stage import listed_settings
from tests.support.imports import ROOT
from tests.support.projects import SMALL, change_params
from tests.support.stages import COMMANDS

WORLD: dict[str, dict[str, Any]] = {
    **SMALL,
    "render": {"images": 20, "side": 64, "val_share": 0.2, "test_share": 0.3},
    "train": {"threads": 1, "embed_dim": 16, "word_dim": 8, "batch": 4, "epochs": 3},
    "baseline": {"threads": 1},
}
STAGES = (
    "catalog", "extract", "standardize", "embed", "tokenize", "train", "encode", "baseline",
    "evaluate", "report",
)  # fmt: skip
# A setting of each stage, with another value.
SETTINGS: dict[str, tuple[str, str, Any]] = {
    "catalog": ("catalog", "max_rejects", 3),
    "extract": ("extract", "crops", "five"),
    "embed": ("embed", "low", -0.5),
    "tokenize": ("tokenize", "min_count", 2),
    "train": ("train", "margin", 0.4),
    "baseline": ("evaluate", "split", "val"),
    "evaluate": ("evaluate", "split", "val"),
    "report": ("report", "seed", 7),
}
TEMPLATE = Path("../template")
TUNING = "pipelines/finetuning/params.yaml"
# A process that reads a memory map of a truncated file gets SIGBUS; it has published nothing then.
TRUNCATED_MAP = -signal.SIGBUS


@click.command()
@click.option("--rounds", default=200, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--stage", "only", type=click.Choice(STAGES), multiple=True, help="Only these stages.")
def main(rounds: int, seed: int, only: tuple[str, ...]) -> None:
    """Change settings and inputs during stages; no record may disagree with what was computed."""
    chance = random.Random(seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        Path(name, "project").mkdir()
        os.chdir(Path(name, "project"))
        prepare()
        durations = {stage: rehearse(stage) for stage in only or STAGES}
        outcomes: Counter[str] = Counter()
        started = time.perf_counter()
        for number in range(rounds):
            stage = chance.choice(only or STAGES)
            outcomes[play(stage, durations[stage], chance, f"round {number}, {stage}")] += 1
        seconds = (time.perf_counter() - started) / max(1, rounds)
        os.chdir(ROOT)
    found = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    click.echo(
        f"{rounds} rounds of {seconds:.1f} s: {found}; no undetected disagreement, file lost or traceback"
    )


def prepare() -> None:
    """Run the whole pipeline in the current folder, and keep the result in `TEMPLATE`."""
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, name)
    shutil.copytree(ROOT / "weights", "weights")
    Path(TUNING).parent.mkdir(parents=True)
    shutil.copy(ROOT / TUNING, TUNING)
    change_params(Path(), WORLD)
    for stage in ("render", *STAGES):
        code, printed = run(stage)
        assert code == 0, printed
    record(*STAGES)
    shutil.copytree(".", TEMPLATE, ignore=shutil.ignore_patterns(".fne", "printed"))


def rehearse(stage: str) -> float:
    """Return how long a stage takes; its outputs must be the same again."""
    started = time.perf_counter()
    code, printed = run(stage)
    assert code == 0, printed
    return time.perf_counter() - started


def play(stage: str, duration: float, chance: random.Random, place: str) -> str:
    """Run a stage and change something meanwhile; return how it ended."""
    inputs, outputs = paths(stage)
    expected = {path: content_md5(path) for path in outputs}
    for path in outputs:  # as DVC does before it runs a stage
        remove(path)
    edit, touched, what = choose_edit(stage, inputs, chance)
    others = {path: content_md5(path) for path in files(inputs) if path not in touched}
    # Also after the end of the stage, when DVC has not read its record yet.
    code, printed = run(stage, chance.uniform(0, 1.2 * duration), edit)
    place = f"{place}, {what}: {printed}"
    assert "Traceback" not in printed, place
    assert code in (0, 2, TRUNCATED_MAP), f"{place} exit code {code}"
    assert {path: content_md5(path) for path in others} == others, f"{place} lost files"
    if code == 0:
        outcome = judge(stage, outputs, expected, place)
    else:
        assert not any(path.exists() for path in outputs), f"{place} published outputs"
        assert code != 2 or printed.count("Error: ") == 1, place
        outcome = "refused" if code == 2 else "killed by the truncated map"
    restore()
    for path in outputs:
        remove(path)
    code, printed = run(stage)  # with the scratch folder that the round leaves
    assert code == 0, f"{place}, then {printed}"
    assert {path: content_md5(path) for path in outputs} == expected, f"{place} left wrong work behind"
    left = list(Path().rglob(".*.tmp"))
    assert not left, f"{place} left {left}"
    return outcome


def judge(stage: str, outputs: list[Path], expected: dict[Path, str], place: str) -> str:
    """Return whether published outputs are those of the recorded state, or the difference is detected."""
    found = {path: content_md5(path) for path in outputs}
    record(stage)
    verified = CliRunner().invoke(fne, ["verify"])
    if verified.exit_code == 2:
        return "refused by verify"
    assert verified.exit_code == 0, f"{place} {verified.output}"
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        change_params(Path(), {"runtime": {"scratch": scratch}})
        # Images that change after the catalog was published are refused when they are read.
        if stage == "catalog" and run("extract")[0] == 2:
            return "refused by the next stage"
        for path in outputs:
            remove(path)
        code, printed = run(stage)
    if code == 2:  # what the stage read has changed after it was published: the next run says so
        return "refused by the next run"
    assert code == 0, f"{place} {printed}"
    again = {path: content_md5(path) for path in outputs}
    assert again == found, f"{place} disagrees with the record, and nothing says so"
    return "unaffected" if found == expected else "computed with the new state"


def choose_edit(
    stage: str, inputs: list[Path], chance: random.Random
) -> tuple[Callable[[], None], list[Path], str]:
    """Return a change, the files that it touches, and its name."""
    kinds = ["flip", "truncate", "replace", "swap"] + ["setting"] * (4 if stage in SETTINGS else 0)
    kind = chance.choice(kinds)
    if kind == "setting":
        section, key, value = SETTINGS[stage]
        return lambda: change_params(Path(), {section: {key: value}}), [Path("params.yaml")], kind
    first, second = chance.choices(files(inputs), k=2)
    place = chance.random()
    edits: dict[str, Callable[[], None]] = {
        "flip": lambda: flip(first, place),
        "truncate": lambda: os.truncate(first, int(first.stat().st_size * place)),
        "replace": lambda: replace(first, place),
        "swap": lambda: swap(first, second),
    }
    return edits[kind], [first, second], f"{kind} {first}" + f" and {second}" * (kind == "swap")


def flip(path: Path, place: float) -> None:
    """Change a bit in place, and put the modification time back."""
    state = path.stat()
    with path.open("r+b") as file:
        offset = int((state.st_size - 1) * place)
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def replace(path: Path, place: float) -> None:
    """Put another file of the same size and time at a path."""
    other = path.with_name("other")
    shutil.copy2(path, other)
    flip(other, place)
    other.replace(path)


def swap(first: Path, second: Path) -> None:
    """Swap two files."""
    between = first.with_name("between")
    first.rename(between)
    if second != first:
        second.rename(first)
    between.rename(second)


def run(stage: str, delay: float = 0, meanwhile: Callable[[], None] | None = None) -> tuple[int, str]:
    """Run a stage in a forked process; return its exit code, negative for a signal, and what it printed."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            file = Path("printed").open("w", buffering=1)  # noqa: SIM115 - until the process ends
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            sys.stdout = sys.stderr = file  # tests have put others there
            import_module(f"stages.{stage}").main(COMMANDS[stage].split())
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if meanwhile is not None:
        time.sleep(delay)
        meanwhile()
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), Path("printed").read_text()


def paths(stage: str) -> tuple[list[Path], list[Path]]:
    """Return the inputs and outputs of a stage."""
    command = import_module(f"stages.{stage}").main
    names = [each for each in command.params if isinstance(each, click.Argument)]
    positional, options = COMMANDS[stage].split(), []
    if "--reader" in positional:
        at = positional.index("--reader")
        positional, options = positional[:at], positional[at + 1 :]
    given = dict(zip(names, positional, strict=True))
    inputs = [
        Path(path) for path in [*(path for each, path in given.items() if each.type is INPUT), *options]
    ]
    params = load_params(Path("params.yaml"))
    inputs += [Path(value) for value in listed_settings(params, command.paths).values()]
    return inputs, [Path(path) for each, path in given.items() if each.type is OUTPUT]


def files(places: list[Path]) -> list[Path]:
    """Return all files at or below some places."""
    found = [each for place in places for each in ([place] if place.is_file() else place.rglob("*"))]
    return sorted(each for each in found if each.is_file())


def record(*stages: str) -> None:
    """Write to `dvc.lock` what DVC records about stages that have just ended."""
    lock = Path("dvc.lock")
    recorded = json.loads(lock.read_text())["stages"] if lock.exists() else {}
    for stage in stages:
        inputs, outputs = paths(stage)
        recorded[stage] = {
            "params": parameters(stage),
            "deps": [{"path": str(path), "md5": content_md5(path)} for path in inputs if path.exists()],
            "outs": [{"path": str(path), "md5": content_md5(path)} for path in outputs],
        }
    lock.write_text(json.dumps({"stages": recorded}))


def parameters(stage: str) -> dict[str, dict[str, Any]]:
    """Return the parameters of a stage as DVC records them: by file and key."""
    found: dict[str, dict[str, Any]] = {}
    for listed in YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"][stage].get("params", []):
        for file, keys in ({"params.yaml": [listed]} if isinstance(listed, str) else listed).items():
            params = read_yaml(Path(file))
            found.setdefault(file, {}).update({key: value(params, key) for key in keys})
    return found


def value(params: dict[str, Any], key: str) -> Any:
    """Return a section or a nested key, by the name that a pipeline file has for it."""
    found: Any = params
    for part in key.split("."):
        found = found[part]
    return found


def restore() -> None:
    """Put every file back as it was, except the scratch folder."""
    for path in Path().iterdir():
        if path.name != ".fne":
            remove(path)
    shutil.copytree(TEMPLATE, ".", dirs_exist_ok=True)


def remove(path: Path) -> None:
    """Remove a file or folder, if there is one."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
