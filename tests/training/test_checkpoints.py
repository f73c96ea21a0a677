import os
import threading
import time

import pytest
import torch

from fne.training import checkpoints as module
from fne.training.checkpoints import open_checkpoints


def tensors(number):
    return {"weight": torch.full((3,), float(number))}


@pytest.fixture
def said():
    return []


def test_the_newest_is_loaded_and_two_are_kept(tmp_path, said):
    with open_checkpoints(tmp_path, {"seed": 0}, said.append) as checkpoints:
        assert checkpoints.load() is None
        for number in range(4):
            checkpoints.save({"step": number}, tensors(number))
        progress, found = checkpoints.load()
    assert progress == {"step": 3}
    assert torch.equal(found["weight"], tensors(3)["weight"])
    names = sorted(path.name for path in tmp_path.rglob("*.safetensors"))
    assert names == ["00000003.safetensors", "00000004.safetensors"]
    assert said == []


def test_other_settings_and_another_version_of_training_never_meet_them(tmp_path, said, monkeypatch):
    with open_checkpoints(tmp_path, {"seed": 0}, said.append) as checkpoints:
        checkpoints.save({"step": 1}, tensors(1))
    with open_checkpoints(tmp_path, {"seed": 1}, said.append) as checkpoints:
        assert checkpoints.load() is None
    monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
    with open_checkpoints(tmp_path, {"seed": 0}, said.append) as checkpoints:
        assert checkpoints.load() is None


def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_used(tmp_path, said):
    with open_checkpoints(tmp_path, {}, said.append) as checkpoints:
        checkpoints.save({"step": 1}, tensors(1))
        checkpoints.save({"step": 2}, tensors(2))
        newest = max(tmp_path.rglob("*.safetensors"))
        content = bytearray(newest.read_bytes())
        content[-2] ^= 1
        newest.write_bytes(content)
        assert checkpoints.load()[0] == {"step": 1}
        # What is saved next must not count as older than the damaged one.
        checkpoints.save({"step": 3}, tensors(3))
        assert checkpoints.load()[0] == {"step": 3}
    assert len(said) == 1
    assert said[0].startswith("a damaged checkpoint is removed: ")
    assert "damaged: expected" in said[0]


@pytest.mark.parametrize("finished", [False, True])
def test_what_killed_writers_left_is_removed(tmp_path, said, finished):
    with open_checkpoints(tmp_path, {}, said.append) as checkpoints:
        checkpoints.save({"step": 1}, tensors(1))
        [folder] = (tmp_path / "training").iterdir()
        (folder / ".00000002.safetensors.999999999.tmp").touch()
        if finished:
            checkpoints.remove()
        else:
            assert checkpoints.load()[0] == {"step": 1}
    left = [] if finished else ["00000001.safetensors", "lock"]
    assert sorted(path.name for path in folder.glob("*")) == left
    assert folder.exists() is not finished


def test_a_second_process_waits_naming_the_first(tmp_path, said, monkeypatch):
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.01)
    order = []

    def second():
        with open_checkpoints(tmp_path, {}, said.append) as checkpoints:
            order.append(("second", checkpoints.load()))
            # The folder, removed by the first, is there again, and the lock is of this folder.
            checkpoints.save({"step": 1}, tensors(1))

    with open_checkpoints(tmp_path, {}, said.append) as checkpoints:
        thread = threading.Thread(target=second)
        thread.start()
        deadline = time.monotonic() + 60
        while not said:
            assert time.monotonic() < deadline, "the second did not wait"
            time.sleep(0.01)
        checkpoints.save({"step": 9}, tensors(9))
        order.append("first")
        checkpoints.remove()
    thread.join()
    assert order == ["first", ("second", None)]
    assert said == [f"waiting for process {os.getpid()}, which trains the same model"]


def test_saving_is_due_after_a_while_only(tmp_path, said, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with open_checkpoints(tmp_path, {}, said.append) as checkpoints:
        assert not checkpoints.due()
        clock[0] += module.SECONDS
        assert checkpoints.due()
        checkpoints.save({}, tensors(1))
        assert not checkpoints.due()
