"""Training that is killed again and again: `python -m tests.faults.training --help`.

The tests run a small version.
"""

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import click
import dvc.repo  # imported here, and torch with the stage, so that forked children have them at hand

from fne.matching.classifier_file import CLASSIFIER_FILE
from fne.matching.model_file import MODEL_FILE
from fne.training import checkpoints
from stages.embed import main as embed
from stages.finetune import main as finetune
from stages.standardize import main as standardize
from stages.tokenize import main as tokenize
from stages.train import main as train
from stages.train_captioner import main as train_captioner
from stages.train_tagger import main as train_tagger
from stages.tune_captioner import main as tune_captioner
from stages.tune_tagger import main as tune_tagger
from tests.support.captions import write_world
from tests.support.finetuning import write_describing_project, write_tunable_project
from tests.support.imports import ROOT
from tests.support.kills import run_forked
from tests.support.projects import SMALL, change_params
from tests.support.stages import COMMANDS, write_activations, write_catalog
from tests.support.tagging import scenes, write_project

PRELOADED = (dvc.repo,)
# Two phases of 3 steps an epoch: some seconds, of which every moment is as likely as the next.
TRAINING = {
    "embed_dim": 256,
    "word_dim": 64,
    "batch": 4,
    "loss": ["sum_hinge", "max_hinge"],
    "epochs": [60, 60],
    "patience": 60,
    # Forked processes cannot use the threads of OpenMP that another test has started.
    "threads": 1,
}
# The same with what draws random numbers in a step and keeps statistics: dropout and batch normalization.
BRANCHES = {"image_head": "mlp", "text_encoder": "bow_mlp", "embed_dim": 64}
# The instance loss first and the ranking loss afterwards, with a text CNN and momentum.
INSTANCE = {
    "image_head": "dual_path",
    "text_encoder": "text_cnn",
    "text_cnn.width": 0.02,
    "text_cnn.blocks": [1, 1, 1, 1],
    "text_cnn.positions": 8,
    "embed_dim": 64,
    "optimizer": "sgd_nesterov",
    "learning_rate": 0.01,
    "rank_weight": [0.0, 1.0],
    "image_class_weight": [1.0, 0.0],
    "text_class_weight": [1.0, 0.0],
    "words_rate": 0.1,
    "classifier_rate": 0.1,
    "gain_rate": 2.0,
    "keep": "last",
}


def prepare_matching(epochs: int, own: Mapping[str, object] | None = None) -> None:
    """Make everything that training needs, in the current folder."""
    shutil.copy(ROOT / "params.yaml", Path())
    shutil.copytree(ROOT / "weights", "weights")
    change_params(Path(), SMALL | {"train": TRAINING | dict(own or {}) | {"epochs": [epochs, epochs]}})
    write_activations()
    write_catalog()
    for name, stage in (("standardize", standardize), ("embed", embed), ("tokenize", tokenize)):
        stage.main(COMMANDS[name].split(), standalone_mode=False)


def prepare_tagger(epochs: int) -> None:
    """Make everything that the training of a tagger needs, in the current folder."""
    write_project(Path(), scenes(60), epochs=epochs, patience=epochs, dropout=0.3, user_tags="user")


def prepare_captioner(epochs: int) -> None:
    """Make everything that the training of a captioner needs, in the current folder."""
    shutil.copy(ROOT / "params.yaml", Path())
    own = {"threads": 1, "units": 48, "word_dim": 32, "batch": 32, "epochs": [epochs, epochs], "min_count": 1}
    change_params(Path(), SMALL | {"train_captioner": own | {"patience": epochs}})
    write_world(Path())


def prepare_network(epochs: int, kind: str = "") -> None:
    """Make everything that fine-tuning needs, in the current folder: photos, and a model of a network's rows."""
    shutil.copy(ROOT / "params.yaml", Path())
    shutil.copytree(ROOT / "weights", "weights")
    if not kind:
        write_tunable_project(Path(), epochs)
        return
    write_describing_project(Path(), kind)
    change_params(Path(), {f"tune_{kind}": {"epochs": [epochs, epochs]}})


# How each kind of training is prepared, its stage, and the names of what it writes.
MODEL, METRICS = ["model", "history"], ["model", "history", "metrics.json"]
KINDS: dict[str, tuple[Callable[[int], None], click.Command, list[str]]] = {
    "matching": (prepare_matching, train, METRICS),
    # Branches with dropout and batch normalization.
    "branches": (partial(prepare_matching, own=BRANCHES), train, METRICS),
    # A text CNN with instance loss, then with ranking loss.
    "instance": (partial(prepare_matching, own=INSTANCE), train, METRICS),
    # Phases separately and jointly, dropout; user tags.
    "tagger": (prepare_tagger, train_tagger, MODEL),
    "captioner": (prepare_captioner, train_captioner, MODEL),
    # An image network, with a model of matching and with the others.
    "network": (prepare_network, finetune, METRICS),
    "network-tagger": (partial(prepare_network, kind="tagger"), tune_tagger, MODEL),
    "network-captioner": (partial(prepare_network, kind="captioner"), tune_captioner, MODEL),
}


@click.command()
@click.option("--kills", default=50, show_default=True, help="How often to send SIGKILL.")
@click.option("--terminations", default=10, show_default=True, help="How often to send SIGTERM.")
@click.option("--epochs", default=60, show_default=True, help="Epochs of each of the two phases.")
@click.option("--kind", type=click.Choice(list(KINDS)), default="matching", show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(
    kills: int,
    terminations: int,
    epochs: int,
    kind: str,
    seed: int,
) -> None:
    """Kill training at random moments; the model must end with the same bytes as that of an uninterrupted run."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        prepare, *stage = KINDS[kind]
        prepare(epochs)
        run = partial(_run, *stage)
        started = time.perf_counter()
        assert run("uninterrupted") == 0, Path("printed").read_text()
        duration = time.perf_counter() - started
        expected = model("uninterrupted").read_bytes()
        signals = [signal.SIGKILL] * kills + [signal.SIGTERM] * terminations
        chance.shuffle(signals)
        finished, resumed = 0, 0
        while signals:
            started = time.perf_counter()
            # Every other one after a checkpoint: small training runs spend most of their time before the first one.
            moment = None if len(signals) % 2 else chance.uniform(0, 0.6 * duration)
            ended = run("interrupted", signals[-1], moment)
            has_resumed = "resuming at" in Path("printed").read_text()
            resumed += has_resumed
            if ended == 0:
                finished += 1
                if not has_resumed:  # the first run may have compiled and imported much
                    duration = min(duration, time.perf_counter() - started)
                assert model("interrupted").read_bytes() == expected, "the weights differ"
                model("interrupted").unlink()
                shutil.rmtree("scratch-interrupted/trained")  # so that the next round trains again
            else:
                allowed = {signal.SIGKILL: [-signal.SIGKILL], signal.SIGTERM: [143, -signal.SIGTERM]}
                assert ended in allowed[signals[-1]], Path("printed").read_text()
                signals.pop()
        assert run("interrupted") == 0, Path("printed").read_text()
        resumed += "resuming at" in Path("printed").read_text()
        assert resumed, "no run went on from a checkpoint"
        assert model("interrupted").read_bytes() == expected, "the weights differ"
        assert history("interrupted") == history("uninterrupted"), "the histories differ"
        for one, other in zip(*map(classifiers, ("interrupted", "uninterrupted")), strict=True):
            assert one == other, "the classifiers differ"
        left = [str(path) for path in Path("scratch-interrupted/training").rglob("*") if path.is_file()]
        assert not left, f"files were left: {left}"
    click.echo(
        f"{kills} kills and {terminations} terminations, {resumed} runs went on, {finished + 1} came to their end: "
        "weights and history identical, no checkpoint left"
    )


def _run(
    stage: click.Command, outs: list[str], name: str, kill: int | None = None, after: float | None = None
) -> int:
    """Run a stage in a forked child; return its exit code, or minus the signal that ended it.

    It is killed after some seconds, or with None as soon as it has written a checkpoint.
    """
    shutil.copy("params.yaml", f"{name}.yaml")
    change_params(Path(), {"runtime": {"scratch": f"scratch-{name}"}}, f"{name}.yaml")
    inputs = COMMANDS[str(stage.callback.__module__).rpartition(".")[2]].split()[: -len(outs)]
    arguments = [*inputs, *(f"{name}/{each}" for each in outs), "--params", f"{name}.yaml"]

    def train_with_checkpoints() -> None:
        # As often as possible, so that kills meet half-written checkpoints too.
        checkpoints.Checkpoints.due = lambda self: True  # type: ignore[method-assign]
        stage.main(arguments)

    def saved() -> set[Path]:
        return {*Path(f"scratch-{name}/training").rglob("[0-9]*.safetensors")}

    before = saved()
    return run_forked(
        train_with_checkpoints, kill, (lambda: bool(saved() - before)) if after is None else after
    )


def model(name: str) -> Path:
    """Return the file of the model; that of a matching model is in a folder."""
    folder = Path(name, "model")
    return folder / MODEL_FILE if folder.is_dir() else folder


def classifiers(name: str) -> list[bytes]:
    """Return the classifier of an instance loss, which only a matching model has."""
    return [path.read_bytes() for path in Path(name).rglob(CLASSIFIER_FILE)]


def history(name: str) -> dict[str, bytes]:
    """Return the files of a history."""
    folder = Path(name, "history")
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.tsv"))}


if __name__ == "__main__":
    main()
