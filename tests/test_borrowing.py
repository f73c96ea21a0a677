"""A feature store of another project: brought by DVC, verified, used, and never mixed with others."""

# ruff: noqa: F401, F811  # `run` is a fixture

from contextlib import chdir
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fne.cli import main
from fne.store.catalog import read_images, write_images
from fne.store.layout import Layer
from fne.store.rows import Rows
from tests.support.projects import change_params, commit, dvc, new_repository
from tests.support.remotes import overwrite
from tests.support.stages import Run, refusal, run, write_activations

BORROWED = "borrowed"
READY = ("standardize", "embed", "tokenize", "train")
# Each differs from the project's own store in one thing only; the values are equal.
OTHERS = {
    "weights": {"lineage": {"weights": {"digest": "f" * 64, "settings": {"kind": "file"}}}},
    "preprocessing": {"settings": {"resize": "shorter_side"}},
    "layers": {"layers": [Layer("conv", 1), Layer("fc7", 5)]},
}


@pytest.fixture(scope="module")
def lender(tmp_path_factory) -> Path:
    """A project of others with a store of activations, and their remote, which is a folder."""
    project = tmp_path_factory.mktemp("lender") / "project"
    project.mkdir()
    new_repository(project)
    dvc(project, "init", "--quiet")
    dvc(project, "remote", "add", "--quiet", "--default", "team", str(project.parent / "objects"))
    with chdir(project):
        write_activations(seed=7)
    dvc(project, "add", "--quiet", "features/activations")
    commit(project)
    dvc(project, "push", "--quiet")
    return project


@pytest.fixture
def borrower(run: Run) -> Path:
    new_repository(Path())
    dvc(Path(), "init", "--quiet")
    commit(Path())
    return Path.cwd()


def verify(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["verify", *arguments])


def test_an_imported_store_is_verified_and_used(lender, borrower, run):
    dvc(borrower, "import", "--quiet", str(lender), "features/activations", "--out", BORROWED)
    assert Path(f"{BORROWED}.dvc").is_file()
    assert (verify(BORROWED).output, verify(BORROWED).exit_code) == ("1 artifact verified, no faults\n", 0)
    change_params(borrower, {"embed": {"source": BORROWED}})
    assert run("standardize", "embed").exit_code == 0
    recorded = Rows.open(Path("features/embeddings")).artifact.lineage["activations"]
    assert recorded["digest"] == Rows.open(lender / "features/activations").artifact.digest

    (shard, *_) = sorted(Path(BORROWED).glob("*.h5"))
    overwrite(shard, bytes(shard.stat().st_size))
    assert run("standardize").stderr.startswith(f"Error: {shard}: damaged: expected ")
    fault = verify(BORROWED).stderr
    assert fault.startswith(f"{shard}: damaged: expected ")
    assert fault.endswith(f"run `mv {BORROWED} {BORROWED}.before && dvc checkout {BORROWED}`\n")


def test_a_store_that_was_only_fetched_is_verified_and_used(lender, borrower, run):
    # As where the lender's remote is a setting of its own clones only.
    remote = ["--remote-config", f"url={lender.parent / 'objects'}", "--remote", "team"]
    dvc(borrower, "get", "--quiet", *remote, str(lender), "features/activations", "--out", BORROWED)
    assert verify(BORROWED).exit_code == 0
    change_params(borrower, {"embed": {"source": BORROWED}})
    assert run(*READY, "encode").exit_code == 0
    (shard, *_) = sorted(Path(BORROWED).glob("*.h5"))
    shard.unlink()
    assert "no stage writes it; copy it again from where it came" in verify(BORROWED).stderr


@pytest.mark.parametrize("difference", OTHERS)
def test_statistics_of_one_store_are_not_used_for_another(run, difference):
    run("standardize")
    own = Rows.open(Path("features/activations")).artifact.digest
    other = write_activations(folder=BORROWED, **OTHERS[difference])
    change_params(Path(), {"embed": {"source": BORROWED}})
    message = refusal("embed")
    assert message.startswith(
        f"{BORROWED} holds activations {other[:12]}…, but features/statistics.h5 was made"
    )
    assert message.endswith(f"activations {own[:12]}…; run `dvc repro`")
    assert run("standardize", "embed").exit_code == 0


@pytest.mark.parametrize("difference", OTHERS)
def test_a_model_of_one_store_is_not_used_for_another(run, difference):
    run(*READY)
    own = Rows.open(Path("features/activations")).artifact.digest
    other = write_activations(folder=BORROWED, **OTHERS[difference])
    change_params(Path(), {"embed": {"source": BORROWED}})
    assert run("standardize", "embed").exit_code == 0
    message = refusal("encode")
    assert f"model.safetensors was made from activations {own[:12]}…, but features/embeddings " in message
    assert message.endswith(f"was made from activations {other[:12]}…; run `dvc repro`")


def test_a_store_of_other_image_files_is_refused(run):
    other = {"images": {"digest": "e" * 64, "settings": {}}}
    write_activations(folder=BORROWED, lineage=other)
    change_params(Path(), {"embed": {"source": BORROWED}})
    message = refusal("standardize")
    own = read_images(Path("data/images.jsonl"))[1].digest
    assert (
        f"{BORROWED} was made from images {'e' * 12}…, but data/images.jsonl holds images {own[:12]}…"
        in message
    )
    assert message.endswith(" below catalog.root, or set catalog.images to none")
    write_activations(lineage=other)
    change_params(Path(), {"embed": {"source": "features/activations"}})
    assert run("standardize").stderr.endswith(f"holds images {own[:12]}…; run `dvc repro`\n")


def test_without_image_files_a_store_of_any_is_taken(run):
    write_activations(folder=BORROWED, lineage={"images": {"digest": "e" * 64, "settings": {}}})
    write_images(Path("data/images.jsonl"), [])
    change_params(Path(), {"embed": {"source": BORROWED}})
    assert run(*READY, "encode").exit_code == 0
    found = CliRunner().invoke(main, ["search", "number 03"])
    assert found.exit_code == 0, found.output


def test_a_store_without_the_layers_that_are_asked_for_is_refused(run):
    write_activations(folder=BORROWED, layers=[Layer("fc6", 2), Layer("fc7", 4)])
    change_params(Path(), {"embed": {"source": BORROWED, "layers": ["conv", "fc7"]}})
    missing = f"{BORROWED}: has no layer 'conv'; it has fc6, fc7; see `embed.layers` in params.yaml"
    assert refusal("standardize", "embed") == missing
