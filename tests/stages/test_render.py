import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stages.render import main

PARAMS = {"seed": 0, "images": 8, "val_share": 0.25, "test_share": 0.25, "side": 32}


def write_params(folder: Path, **changes: object) -> Path:
    path = folder / "params.yaml"
    lines = [f"  {key}: {value}" for key, value in (PARAMS | changes).items()]
    path.write_text("\n".join(["render:", *lines, ""]))
    return path


def run(folder: Path, **changes: object) -> Result:
    params = write_params(folder, **changes)
    return CliRunner().invoke(
        main, [str(folder / "demo"), str(folder / "judged.txt"), "--params", str(params)]
    )


def test_the_stage_draws_the_data_set_and_prints_the_number_of_images_per_split(tmp_path):
    result = run(tmp_path)
    assert result.exit_code == 0
    images, pairs = result.output.splitlines()
    assert images == f"{tmp_path / 'demo'}: 8 images (4 train, 2 val, 2 test), five sentences each"
    assert (
        pairs
        == f"{tmp_path / 'judged.txt'}: {len((tmp_path / 'judged.txt').read_text().splitlines())} pairs with the grades of 3 judges"
    )
    assert len(list((tmp_path / "demo" / "images").iterdir())) == 8
    assert (tmp_path / "demo" / "dataset.json").is_file()


def test_two_processes_with_different_hash_seeds_write_the_same_bytes(tmp_path):
    params = write_params(tmp_path)
    digests = []
    for hash_seed in ("1", "2"):
        folder = tmp_path / hash_seed
        subprocess.run(
            [sys.executable, "-m", "stages.render", str(folder), f"{folder}.txt", "--params", str(params)],
            check=True,
            capture_output=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        contents = [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]
        assert len(contents) == 9
        digests.append([hashlib.sha256(content).hexdigest() for content in contents])
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"images": 0}, "images: input should be greater than or equal to 1, got 0"),
        ({"seed": -1}, "seed: input should be greater than or equal to 0, got -1"),
        ({"val_share": 0.0}, "val_share: input should be greater than 0, got 0.0"),
        ({"val_share": 0.5, "test_share": 0.5}, "val_share 0.5 and test_share 0.5 leave nothing for train; "),
        ({"images": 1}, "images 1 is too few: none is left for val and test"),
        ({"images": 20_000, "side": "large"}, "images: input should be less than or equal to 10000, got 20000; side: "),
    ],
)  # fmt: skip
def test_a_bad_section_is_one_line_with_every_fault_and_nothing_is_drawn(tmp_path, changes, fault):
    result = run(tmp_path, **changes)
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {tmp_path / 'params.yaml'}: section 'render': {fault}")
    assert result.output.count("\n") == 1
    assert not (tmp_path / "demo").exists()
