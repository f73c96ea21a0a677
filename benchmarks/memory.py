"""The peak memory of the extraction, which must not grow with the data set."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ruamel.yaml import YAML

PROJECT = Path(__file__).parent.parent
SIZES = (100, 600)


def extraction_memory() -> float:
    """Compare the peak memory of extracting 100 and 600 images with AlexNet."""
    peaks = {images: _peak(images) for images in SIZES}
    print("images   peak memory, MB")
    for images, peak in peaks.items():
        print(f"{images:>6}   {peak / 1e6:>15,.0f}")
    return peaks[SIZES[0]] / peaks[SIZES[1]]


def _peak(images: int) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(PROJECT / "weights", folder / "weights")
        yaml = YAML()
        params = yaml.load(PROJECT / "params.yaml")
        params["render"].update(images=images, side=64)
        params["extract"].update(backbone="alexnet", crops="center")
        yaml.dump(params, folder / "params.yaml")
        _run(folder, "render", "data/demo")
        _run(folder, "catalog", "data/images.jsonl", "data/captions.jsonl", "data/rejects.csv")
        return _run(folder, "extract", "data/images.jsonl", "features/activations")


def _run(folder: Path, stage: str, *arguments: str) -> float:
    """Run a stage and return the peak memory of its process, in bytes."""
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-m", f"stages.{stage}", *arguments]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return usage.ru_maxrss * 1024.0
