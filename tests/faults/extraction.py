"""Fault injection for the extraction, the catalog and artifacts: `python -m tests.faults.extraction --help`.

Each command is one experiment with a seed. The tests run small versions of them.
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import click
import dvc.repo  # like torchvision, imported here so that forked children need not import it
import numpy as np
import torch
import torchvision
from click.testing import CliRunner
from PIL import Image as Picture
from safetensors.torch import save_file

from fne.cli import main as fne
from fne.cli.artifacts import KINDS
from fne.core.dvc import pipeline_outs
from fne.core.errors import InputError
from fne.extraction import run as extraction
from fne.extraction.finished_rows import Scratch
from fne.matching.model_file import read_model
from fne.store import rows as row_store
from fne.store.arrays import read_arrays
from fne.store.catalog import read_captions, read_images
from fne.store.rows import Rows
from fne.store.verify import kind_at
from fne.text.vocabulary import read_vocabulary
from stages.extract import main as stage
from tests.support.imports import ROOT
from tests.support.projects import SMALL, change_params, quick_project
from tests.support.projects import dvc as run_dvc
from tests.support.stages import COMMANDS

PRELOADED = (dvc.repo, torchvision)
FORMATS = ("JPEG", "PNG", "GIF", "TIFF", "BMP", "WEBP")


@click.group()
def main() -> None:
    """Inject faults and check that nothing is lost."""


@contextmanager
def extraction_project(images: int) -> Iterator[Path]:
    """A folder with drawn images, their catalog, and a network of two layers, which is fast to extract."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "params.yaml", folder)
        own = {
            "render": {"images": images, "side": 32},
            "extract": SMALL["extract"] | {"weights": "two.safetensors", "input": "torchvision", "shards": 5},
            "embed": {"source": "store"},  # where the extraction writes
        }
        change_params(folder, SMALL | own)
        generator = torch.Generator().manual_seed(0)
        shapes = {"features.0": (64, 3, 11, 11), "features.3": (192, 64, 5, 5)}
        weights = {
            f"{each}.weight": torch.rand(shape, generator=generator) - 0.5 for each, shape in shapes.items()
        }
        biases = {f"{each}.bias": torch.zeros(shape[0]) for each, shape in shapes.items()}
        save_file(weights | biases, folder / "two.safetensors")
        _run_stage(folder, "render")
        _run_stage(folder, "catalog")
        yield folder


@main.command()
@click.option("--rounds", default=200, show_default=True, help="How many processes to kill.")
@click.option(
    "--publishing", default=60, show_default=True, help="How many of them while they write the store."
)
@click.option("--images", default=60, show_default=True)
@click.option("--seed", default=0, show_default=True)
def kills(rounds: int, publishing: int, images: int, seed: int) -> None:
    """Kill the extraction (kill -9) repeatedly, at random moments and while it writes its store."""
    rng = random.Random(seed)
    with extraction_project(images) as folder:
        os.chdir(folder)
        started = time.perf_counter()
        _in_child(_extract, Path("uninterrupted"), Path("scratch-uninterrupted"))
        duration = time.perf_counter() - started
        expected = _contents(Path("uninterrupted"))
        lost, killed, while_publishing, complete = 0, 0, 0, 0
        while killed < rounds:
            publish = while_publishing < publishing and bool(complete or killed >= rounds - publishing)
            finished = _finished(Path("scratch"))
            moment = rng.uniform(0, 0.05) if publish else rng.uniform(0, duration)
            died = _in_child(
                _extract, Path("store"), Path("scratch"), kill_after=moment, kill_in_publication=publish
            )
            killed += died
            while_publishing += died and publish
            complete += not died
            lost += len(finished - _finished(Path("scratch")))
            recomputed = _appended() & finished
            assert not recomputed, f"{len(recomputed)} finished images were computed again"
            if len(_finished(Path("scratch"))) == images and not publish:
                shutil.rmtree("scratch")
        _in_child(_extract, Path("store"), Path("scratch"))
        assert not lost, f"{lost} finished images were lost"
        assert _contents(Path("store")) == expected, "the store differs from that of an uninterrupted run"
        left = [str(path) for path in Path().rglob("*.tmp")]
        assert not left, f"temporary files were left: {left}"
    click.echo(
        f"{killed} kills, {while_publishing} of them while publishing: nothing lost, store identical, no temporary files"
    )


@main.command()
@click.option("--sizes", default=30, show_default=True, help="How many sizes of disk to try.")
@click.option("--images", default=60, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--mount", is_flag=True, help="Mount a small disk (as root) instead of limiting the size of files."
)
def disk(sizes: int, images: int, seed: int, mount: bool) -> None:
    """Fill the disk at different moments of the extraction."""
    rng = random.Random(seed)
    with extraction_project(images) as folder:
        os.chdir(folder)
        _in_child(_extract, Path("uninterrupted"), Path("scratch-uninterrupted"))
        expected = _contents(Path("uninterrupted"))
        needed = [path.stat().st_size for path in Path("uninterrupted").iterdir()]
        pages = sum(1 for path in Path("scratch-uninterrupted").rglob("*")) + sum(
            1 + size // 4096 for size in needed
        )
        small = Path("small")
        small.mkdir()
        for _ in range(sizes):
            if mount:
                limit = 4096 * rng.randrange(4, pages - 4)
                subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={limit}", "tmpfs", small], check=True)
            else:
                limit = rng.randrange(1, max(needed))
            try:
                code, message = _extract_limited(small, None if mount else limit)
                assert code == 2, f"exit code {code} at {limit} bytes: {message}"
                assert message.count("\n") == 1, message
                assert "; free some space and run again" in message, message
                assert not (small / "store").exists()
                if mount:
                    subprocess.run(["mount", "-o", "remount,size=1g", small], check=True)
                _in_child(_extract, small / "store", small / "scratch")
                assert _contents(small / "store") == expected, (
                    f"the store differs after a full disk at {limit} bytes"
                )
                assert not [*small.rglob("*.tmp")]
            finally:
                if mount:
                    subprocess.run(["umount", small], check=True)
                shutil.rmtree(small)
                small.mkdir()
    click.echo(f"{sizes} full disks: a clear error each, the run after it gives the same bytes")


@main.command()
@click.option("--files", default=5000, show_default=True, help="How many files to damage.")
@click.option("--seed", default=0, show_default=True)
def images(files: int, seed: int) -> None:
    """Build the catalog of damaged image files of all formats."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "photos").mkdir()
        originals = [_picture(rng, kind) for kind in FORMATS for _ in range(4)]
        for number in range(files):
            kind, content = originals[number % len(originals)]
            damaged = _damage(rng, bytearray(content))
            (folder / f"photos/{number:05d}.{kind.lower()}").write_bytes(damaged)
        shutil.copy(ROOT / "params.yaml", folder)
        change_params(
            folder, {"catalog": {"root": "photos", "max_rejects": files}, "runtime": {"workers": 2}}
        )
        start = time.perf_counter()
        done = _run_stage(folder, "catalog")
        seconds = time.perf_counter() - start
        assert "Traceback" not in done.stdout + done.stderr
        accepted = len(read_images(folder / "data/images.jsonl")[0])
        rejected = len((folder / "data/rejects.csv").read_text().splitlines()) - 1
        assert accepted + rejected == files, f"{accepted} accepted, {rejected} rejected"
    click.echo(
        f"{files} damaged files in {seconds:.0f} s: {rejected} rejected, {accepted} could be decoded, no crash"
    )


@main.command()
@click.option("--flips", default=1000, show_default=True, help="How many bits to flip, one at a time.")
@click.option(
    "--truncations", default=200, show_default=True, help="How many files to truncate, one at a time."
)
@click.option("--seed", default=0, show_default=True)
def artifacts(flips: int, truncations: int, seed: int) -> None:
    """Flip bits in all kinds of artifacts and truncate them; check that each is refused by name."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = quick_project(Path(name))
        run_dvc(folder, "repro")
        before = Path.cwd()
        os.chdir(folder)
        try:
            files = [*artifact_files()]
            assert CliRunner().invoke(fne, ["verify"]).exit_code == 0
            for number in range(flips + truncations):
                artifact, file = files[number % len(files)]
                damage_one(artifact, file, rng, flip=number < flips)
            assert CliRunner().invoke(fne, ["verify"]).exit_code == 0
        finally:
            os.chdir(before)
    click.echo(
        f"{flips} flipped bits and {truncations} cuts in {len(files)} files of "
        f"{len({artifact for artifact, _ in files})} artifacts: every one refused by name, no crash"
    )


def artifact_files() -> Iterator[tuple[Path, Path]]:
    """Yield every file of every artifact in the current project, without the drawn images."""
    for artifact in pipeline_outs():
        if artifact != Path("data/demo"):
            below = sorted(artifact.rglob("*")) if artifact.is_dir() else [artifact]
            yield from ((artifact, file) for file in below if file.is_file())


def damage_one(artifact: Path, file: Path, rng: random.Random, flip: bool) -> None:
    """Damage a file of an artifact, check that verification and consumer refuse it, and restore it."""
    original = file.read_bytes()
    place = rng.randrange(len(original))
    damaged = bytearray(original) if flip else original[:place]
    if flip:
        damaged[place] ^= 1 << rng.randrange(8)
    what = f"{file}: {'bit flipped at' if flip else 'cut at'} {place} of {len(original)}"
    file.unlink()  # it may be a link into the cache
    file.write_bytes(damaged)
    try:
        result = CliRunner().invoke(fne, ["verify", str(artifact)])
        assert result.exit_code == 2, f"{what}: verified with {result.exit_code}: {result.output}"
        assert isinstance(result.exception, SystemExit), f"{what}: {result.exception!r}"
        assert str(artifact) in result.stderr, f"{what}: not named: {result.stderr}"
        read = CONSUMERS.get(getattr(kind_at(artifact, KINDS), "name", None))
        assert read is None or _refuses(read, artifact), f"{what}: used by a stage"
    finally:
        file.write_bytes(original)


def _refuses(read: Callable[[Path], object], artifact: Path) -> bool:
    try:
        read(artifact)
    except InputError as error:
        return str(artifact) in error.message
    return False


def _read_rows(store: Path) -> None:
    rows = Rows.open(store)
    rows.read(rows.ids)


def _run_stage(folder: Path, stage: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", f"stages.{stage}", *COMMANDS[stage].split()]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=3600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def _extract(store: Path, scratch: Path) -> None:
    """Run the stage in this process, and record each image whose row is written."""
    write = extraction.write_claimed

    def recorded(claims: list[extraction._Claim], rows: np.ndarray, hardware: str) -> None:
        for claim, row in zip(claims, rows, strict=True):
            with Path("appended").open("a") as file:
                file.write(f"{claim.digest}\n")
            write([claim], row[None], hardware)

    extraction.write_claimed = recorded
    # One parameter file per scratch folder: a child killed while it writes a common one would break the next.
    stage.main(["data/images.jsonl", str(store), "--params", f"{scratch.name}.yaml"], standalone_mode=False)


def _in_child(
    run: Callable[..., None],
    *arguments: Path,
    kill_after: float | None = None,
    kill_in_publication: bool = False,
) -> bool:
    """Run a function in a forked child, which need not import torch; return whether it was killed."""
    Path("appended").write_text("")
    shutil.copy("params.yaml", scratch_params := f"{arguments[1].name}.yaml")
    # Nothing is extracted for a store that nobody embeds.
    own = {"embed": {"source": str(arguments[0])}, "runtime": {"scratch": str(arguments[1])}}
    change_params(Path(), own, scratch_params)
    reader, note = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open("printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        publish = row_store._write_shard

        def signaled(*arguments: object) -> object:
            os.write(note, b".")
            return publish(*arguments)

        row_store._write_shard = signaled
        code = 1
        try:
            run(*arguments)
            code = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(note)
    if kill_in_publication:
        os.read(reader, 1)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(reader)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0, f"the extraction failed:\n{Path('printed').read_text()}"
    return False


def _extract_limited(folder: Path, limit: int | None) -> tuple[int, str]:
    """Run the stage, optionally with a limit on the size of files; return its exit code and error message."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    own = {"embed": {"source": str(folder / "store")}, "runtime": {"scratch": str(folder / "scratch")}}
    change_params(Path(), own)
    done = subprocess.run(
        [sys.executable, "-m", "stages.extract", "data/images.jsonl", str(folder / "store")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: limit and resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    return done.returncode, done.stderr


def _finished(folder: Path) -> set[str]:
    digests = [image.sha256 for image in read_images(Path("data/images.jsonl"))[0]]
    return {
        digest
        for kind in folder.glob("activations/*/kind.json")
        for digest in _open_scratch(kind).rows(digests)
    }


def _open_scratch(kind: Path) -> Scratch:
    description = json.loads(kind.read_text())
    features = description.pop("features")
    return Scratch(kind.parent.parent, description, features)


def _appended() -> set[str]:
    return set(Path("appended").read_text().split())


def _contents(store: Path) -> dict[str, bytes]:
    Rows.open(store, "activations")
    return {path.name: path.read_bytes() for path in sorted(store.iterdir())}


def _picture(rng: random.Random, kind: str) -> tuple[str, bytes]:
    size = rng.randrange(16, 64), rng.randrange(16, 64)
    picture = Picture.frombytes("RGB", size, rng.randbytes(3 * size[0] * size[1]))
    buffer = BytesIO()
    picture.save(buffer, kind)
    return kind, buffer.getvalue()


def _damage(rng: random.Random, content: bytearray) -> bytes:
    """Flip, delete, repeat, insert or overwrite some bytes."""
    for _ in range(rng.randrange(1, 6)):
        place = rng.randrange(len(content))
        length = rng.randrange(1, 40)
        match rng.randrange(5):
            case 0:
                content[place] ^= 1 << rng.randrange(8)
            case 1:
                del content[place : place + length]
            case 2:
                content[place:place] = content[place : place + length]
            case 3:
                content[place:place] = rng.randbytes(length)
            case 4:
                content[place : place + 4] = b"\xff\xff\xff\x7f"
        if not content:
            break
    return bytes(content)


CONSUMERS: dict[str, Callable[[Path], object]] = {
    "row stores": _read_rows,
    "images.jsonl": read_images,
    "captions.jsonl": read_captions,
    "vocabulary.json": read_vocabulary,
    ".h5": read_arrays,
    ".safetensors": read_model,
}


if __name__ == "__main__":
    main()
