from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from fne.store.layout import Layer
from fne.store.rows import Rows
from tests.support.commands import fne, refused
from tests.support.features import store

FIRST = np.arange(6, dtype=np.float32).reshape(3, 2)
SECOND = np.arange(3, dtype=np.float32).reshape(3, 1)


@pytest.fixture(autouse=True)
def _stores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store(Path("a"), FIRST, [Layer("conv", 2)])
    store(Path("b"), SECOND, [Layer("pool", 1)])


def run(*arguments: str) -> Result:
    return fne("join", *arguments)


def test_stores_are_joined_and_the_next_steps_are_printed():
    result = run("a", "b")
    assert result.exit_code == 0
    size = sum(path.stat().st_size for path in Path("features/joined").iterdir())
    assert result.output.splitlines() == [
        f"features/joined: 3 rows of 3 values (float32), {size:,} bytes",
        "  a    conv",
        "  b    pool",
        "next:",
        "  dvc add features/joined    # keep it in DVC, for colleagues and for experiments in temporary copies",
        "  dvc exp run -S embed.source=features/joined",
    ]
    rows = Rows.open(Path("features/joined"), "activations")
    assert np.array_equal(rows.read(["r00", "r01", "r02"]), np.concatenate([FIRST, SECOND], axis=1))


def test_joining_again_replaces_the_store():
    assert run("a", "b", "--to", "mine").exit_code == 0
    assert run("b", "a", "--to", "mine").exit_code == 0
    assert [layer.name for layer in Rows.open(Path("mine")).layers] == ["pool", "conv"]


def test_what_a_stage_writes_and_a_folder_of_something_else_are_never_replaced():
    Path("dvc.yaml").write_text("stages: {extract: {cmd: x, outs: [features/activations]}}")
    said = "Error: features/activations: stage 'extract' writes this folder; choose another one with --to\n"
    assert refused("join", "a", "b", "--to", "features/activations") == said
    Path("photos").mkdir()
    said = refused("join", "a", "b", "--to", "photos")
    assert said.startswith("Error: photos: exists and is not an intact row store of activations; ")


def test_a_missing_id_names_the_option():
    store(Path("c"), FIRST[:2], [Layer("fc", 2)])
    assert "c: lacks 1 of the 3 ids of all stores, the first is 'r02'" in refused("join", "a", "c")
    assert run("a", "c", "--common").exit_code == 0


def test_rows_are_added_to_a_store():
    store(Path("more"), FIRST, [Layer("conv", 2)])
    result = run("a", "more", "--rows")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[1:3] == ["  a    3 rows", "  more    3 rows"]
    refused("join", "a", "b", "--rows")
    both = refused("join", "a", "b", "--rows", "--common")
    assert "--common is for joining layers; --rows keeps all images" in both
