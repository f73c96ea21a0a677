import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from fne.core.errors import InputError
from fne.core.params import load_params
from fne.store.elsewhere import CrashedError, StalledError, elsewhere

LONG = 3600.0


@pytest.fixture(autouse=True)
def _no_process_is_left():
    yield
    assert multiprocessing.active_children() == []


def test_items_come_in_their_order():
    assert list(elsewhere(iter, (["a", "b", "c"],), LONG)) == ["a", "b", "c"]


def test_the_work_is_done_in_another_process():
    [process] = elsewhere(map, (eval, ["__import__('os').getpid()"]), LONG)
    assert process != os.getpid()


def test_a_refusal_is_told_as_it_is():
    with pytest.raises(InputError, match="^nowhere.yaml: no such file"):
        list(elsewhere(map, (load_params, [Path("nowhere.yaml")]), LONG))


def test_an_item_that_takes_too_long_is_not_waited_for():
    items = elsewhere(map, (time.sleep, [0, LONG]), 0.5)
    assert next(items) is None
    with pytest.raises(StalledError):
        next(items)


@pytest.mark.parametrize("end", [signal.SIGSEGV, signal.SIGKILL])
def test_a_crash_of_the_process_is_told(end):
    with pytest.raises(CrashedError):
        list(elsewhere(map, (signal.raise_signal, [end]), LONG))


def test_a_reader_that_has_enough_ends_the_process():
    items = elsewhere(iter, (list(range(1_000_000)),), LONG)
    assert next(items) == 0
    items.close()
