"""Fixtures and settings of all tests."""

import hypothesis
import pytest
import torch

from fne.core import stat_cache

# Nothing is timed in tests: the first call of a kernel compiles, and machines are busy.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tests run side by side, and their tensors are small: more threads would wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_verified_files() -> None:
    """A stage that ran in this process has named its scratch folder."""
    stat_cache.use(None)
