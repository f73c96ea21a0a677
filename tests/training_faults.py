"""Training that is killed again and again: `python -m tests.training_faults --help`.

The tests run a small version.
"""

import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from pathlib import Path

import click
import dvc.repo  # imported here, and torch with the stage, so that forked children have them at hand

from fne.matching import checkpoints
from stages.embed import main as embed
from stages.standardize import main as standardize
from stages.tokenize import main as tokenize
from stages.train import main as train
from tests.imports import ROOT
from tests.projects import SMALL, change_params
from tests.stages.conftest import COMMANDS, write_activations, write_catalog

PRELOADED = (dvc.repo,)
# Two phases of 3 steps an epoch: some seconds, of which every moment is as likely as the next.
TRAINING = {
    "embed_dim": 256,
    "word_dim": 64,
    "batch": 4,
    "loss": ["sum_hinge", "max_hinge"],
    "epochs": [60, 60],
    "patience": 60,
}


@click.command()
@click.option("--kills", default=50, show_default=True, help="How often to send SIGKILL.")
@click.option("--terminations", default=10, show_default=True, help="How often to send SIGTERM.")
@click.option("--epochs", default=60, show_default=True, help="Epochs of each of the two phases.")
@click.option("--seed", default=0, show_default=True)
def main(kills: int, terminations: int, epochs: int, seed: int) -> None:
    """Kill training at random moments; the model must end with the same bytes as that of an uninterrupted run."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        prepare(epochs)
        started = time.perf_counter()
        assert _train("uninterrupted") == 0, Path("printed").read_text()
        duration = time.perf_counter() - started
        expected = Path("uninterrupted/model").read_bytes()
        signals = [signal.SIGKILL] * kills + [signal.SIGTERM] * terminations
        chance.shuffle(signals)
        finished, resumed = 0, 0
        while signals:
            ended = _train("interrupted", signals[-1], chance.uniform(0, 0.6 * duration))
            resumed += "going on from" in Path("printed").read_text()
            if ended == 0:
                finished += 1
                assert Path("interrupted/model").read_bytes() == expected, "the weights differ"
                Path("interrupted/model").unlink()
            else:
                allowed = {signal.SIGKILL: [-signal.SIGKILL], signal.SIGTERM: [143, -signal.SIGTERM]}
                assert ended in allowed[signals[-1]], Path("printed").read_text()
                signals.pop()
        assert _train("interrupted") == 0, Path("printed").read_text()
        assert Path("interrupted/model").read_bytes() == expected, "the weights differ"
        assert history("interrupted") == history("uninterrupted"), "the histories differ"
        left = [str(path) for path in Path("scratch-interrupted").rglob("*") if path.is_file()]
        assert not left, f"files were left: {left}"
    click.echo(
        f"{kills} kills and {terminations} terminations, {resumed} runs went on, {finished + 1} came to their end: "
        "weights and history identical, no checkpoint left"
    )


def prepare(epochs: int) -> None:
    """Make everything that training needs, in the current folder."""
    shutil.copy(ROOT / "params.yaml", Path())
    change_params(Path(), SMALL | {"train": TRAINING | {"epochs": [epochs, epochs]}})
    write_activations()
    write_catalog()
    for name, stage in (("standardize", standardize), ("embed", embed), ("tokenize", tokenize)):
        stage.main(COMMANDS[name].split(), standalone_mode=False)


def _train(name: str, kill: int | None = None, after: float = 0.0) -> int:
    """Run the stage in a forked child; return its exit code, or minus the signal that ended it."""
    shutil.copy("params.yaml", f"{name}.yaml")
    change_params(Path(), {"runtime": {"scratch": f"scratch-{name}"}}, f"{name}.yaml")
    child = os.fork()
    if child == 0:
        os.dup2(os.open("printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        # As often as possible, so that kills meet half-written checkpoints too.
        checkpoints.Checkpoints.due = lambda self: True  # type: ignore[method-assign]
        code = 1
        try:
            arguments = [*COMMANDS["train"].split()[:3], f"{name}/model", f"{name}/history"]
            train.main([*arguments, "--params", f"{name}.yaml"])
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if kill is not None:
        time.sleep(after)
        os.kill(child, kill)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def history(name: str) -> dict[str, bytes]:
    """Return the files of a history."""
    folder = Path(name, "history")
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.tsv"))}


if __name__ == "__main__":
    main()
