"""A small matching data set, and threads for gradients."""

import pytest
import torch

from tests.support.pairs import pairs

__all__ = ["pairs"]


@pytest.fixture(autouse=True, scope="session")
def threads_for_gradients() -> None:
    """Let torch start its threads for gradients before it pretends to have a GPU.

    Otherwise it starts one for that GPU too, and processes that later tests fork cannot compute gradients.
    """
    torch.ones((), requires_grad=True).backward()
