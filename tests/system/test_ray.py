"""Extraction on real Ray clusters: two nodes on one machine, and clusters that a driver starts."""

import random
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from fne.core.errors import InputError
from fne.extraction.finished_rows import hardware_name, read_hardware
from fne.extraction.preprocess import RESIZES
from fne.extraction.read_images import read_pixels
from fne.store.catalog import Image, read_images
from stages.extract import main as extract
from tests.faults.extraction import extraction_project
from tests.faults.ray import (
    STORE,
    computing,
    contents,
    extract_locally,
    kill_one,
    lift_limit,
    processes,
    runs,
    start_driver,
    two_nodes,
    wait_for,
)
from tests.faults.ray_workers import POISON, SCRATCH, finished

pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")

IMAGES = 40


@pytest.fixture(scope="module")
def made():
    """A project with some images, and their store as a single process computes it."""
    with extraction_project(IMAGES) as folder:
        extract_locally(folder)
        yield folder


@pytest.fixture(scope="module")
def cluster():
    with two_nodes() as started:
        yield started


@pytest.fixture
def project(made, tmp_path) -> Path:
    """A copy of the project without finished rows."""
    shutil.copytree(made, tmp_path / "project", ignore=shutil.ignore_patterns("scratch-local"))
    return tmp_path / "project"


def end(driver: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for a driver, check its exit code and that Ray printed nothing, and return its output."""
    printed, errors = driver.communicate(timeout=300)
    assert driver.returncode == code, printed + errors
    assert "Traceback" not in errors, errors
    for line in (printed + errors).splitlines():
        assert not line.startswith(("(raylet", "(pid", "[20", "Usage stats")), line
    return printed + errors


def finish_locally(project: Path, monkeypatch) -> str:
    """Run the extraction in this process on the same scratch folder; return its output."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("FNE_ENGINE", "local")
    result = CliRunner().invoke(extract, ["data/images.jsonl", str(STORE)])
    assert result.exit_code == 0, result.output
    return result.stdout


def assert_store_is_that_of_one_process(project: Path) -> None:
    assert contents(project / STORE) == contents(project / "local")


def catalog(project: Path) -> list[Image]:
    return read_images(project / "data/images.jsonl")[0]


def test_a_killed_worker_changes_no_byte(project, made, cluster):
    ours = make_some_locally(made, project)
    driver = start_driver(project, "slow", cluster[0], limit=ours + 3)
    wait_for("rows are finished", lambda: finished(project) >= ours + 3)
    kill_one(project, random.Random(0))
    lift_limit(project)
    printed = end(driver)
    assert_store_is_that_of_one_process(project)
    assert f"Ray cluster at {cluster[0]}: 2 workers on 2 nodes, each with 1 CPU" in printed
    assert f"{ours} done, {IMAGES - ours} to do" in printed
    assert f"\n{IMAGES - ours} images in " in printed
    assert re.search(r"; [12] workers?, 1 restart, [0-9.]+ images/s per worker\n", printed), printed
    recorded = [read_hardware(path) for path in (project / SCRATCH).glob("activations/*/*.made")]
    assert {name for each in recorded for name in each.values()} == {hardware_name("cpu")}
    assert sum(map(len, recorded)) == IMAGES


def make_some_locally(made: Path, project: Path) -> int:
    """Copy some of the rows that one process computed into the scratch folder; return how many."""
    shutil.copytree(made / "scratch-local", project / SCRATCH, dirs_exist_ok=True)
    for path in sorted((project / SCRATCH).glob("activations/*/*.rows"))[::2]:
        path.unlink()
        path.with_suffix(".made").unlink()
    assert 0 < finished(project) < IMAGES
    return finished(project)


def test_termination_ends_the_workers_and_one_process_continues(project, cluster, monkeypatch):
    driver = start_driver(project, "slow", cluster[0], limit=10)
    wait_for("rows are finished", lambda: finished(project) >= 10)
    driver.send_signal(signal.SIGTERM)
    end(driver, code=143)
    wait_for("workers end", lambda: not processes(project))
    kept = finished(project)
    assert 10 <= kept < IMAGES
    assert f"{kept} done, {IMAGES - kept} to do" in finish_locally(project, monkeypatch)
    assert_store_is_that_of_one_process(project)


def test_an_image_that_kills_its_worker_is_named_and_the_rest_is_kept(project, cluster, monkeypatch):
    # In the order of their digests, as they are computed.
    poisonous = sorted(catalog(project), key=lambda image: image.sha256)[IMAGES // 2]
    (project / POISON).write_text(poisonous.id)
    printed = end(start_driver(project, "fragile", cluster[0]), code=2)
    path = f"data/demo/images/{Path(poisonous.path).name}"
    assert f"\nError: {path}: image '{poisonous.id}' killed its worker 3 times" in printed
    kept = finished(project)
    assert IMAGES // 2 <= kept < IMAGES
    assert f"{kept} done, {IMAGES - kept} to do" in finish_locally(project, monkeypatch)
    assert_store_is_that_of_one_process(project)


def test_a_faulty_image_gives_the_same_message_as_in_one_process(project, cluster, monkeypatch):
    image = catalog(project)[3]
    changed = project / "data/demo" / image.path
    changed.write_bytes(changed.read_bytes() + b"\0")
    printed = end(start_driver(project, "slow", cluster[0]), code=2)
    monkeypatch.chdir(project)
    with pytest.raises(InputError) as caught:
        read_pixels(image, Path("data/demo"), RESIZES["squash"])
    assert printed.endswith(f"\nError: {caught.value.message}\n")


def test_ctrl_c_leaves_nothing_running_and_loses_nothing(project, monkeypatch):
    driver = start_driver(project, "slow", None, limit=5)
    wait_for("rows are finished", lambda: finished(project) >= 5)
    started = descendants(driver.pid)
    assert {*processes(project)} < {*started}  # Ray's own processes besides the workers
    driver.send_signal(signal.SIGINT)
    printed = end(driver, code=1)
    assert printed.startswith("Ray cluster on this machine: 2 workers on 1 node, each with 1 CPU\n")
    assert printed.endswith("\nAborted!\n")
    assert [each for each in started if runs(each)] == []
    kept = finished(project)
    assert 5 <= kept < IMAGES
    assert f"{kept} done, {IMAGES - kept} to do" in finish_locally(project, monkeypatch)
    assert_store_is_that_of_one_process(project)


def test_the_workers_of_a_killed_driver_end(project):
    driver = start_driver(project, "slow", None, limit=5)
    wait_for("rows are finished", lambda: finished(project) >= 5)
    driver.kill()
    driver.communicate()
    wait_for("workers end", lambda: not processes(project))
    assert 5 <= finished(project) < IMAGES


def test_the_units_of_a_killed_node_are_computed_on_another(project, cluster):
    """The last test: it leaves one node."""
    address, nodes = cluster
    driver = start_driver(project, "slow", address, limit=10)
    wait_for("both workers compute", lambda: len(computing(project)) == 2)
    wait_for("rows are finished", lambda: finished(project) >= 10)
    (worker_node,) = nodes.worker_nodes
    nodes.remove_node(worker_node, allow_graceful=False)
    wait_for("its worker ends", lambda: len(processes(project)) == 1)
    lift_limit(project)
    assert "1 restart" in end(driver)
    assert_store_is_that_of_one_process(project)


def descendants(process: int) -> list[int]:
    """Return the child processes of a process, recursively."""
    found = [process]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found[1:]
