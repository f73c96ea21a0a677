"""A small captioned world, read once."""

import pytest

from tests.support.captions import inputs, write_world


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    return folder


@pytest.fixture(scope="module")
def read(world):
    return inputs(world)
