"""What `import fne` offers."""

import subprocess
import sys

import pytest

import fne
from tests.support.imports import ROOT


def test_importing_fne_imports_neither_torch_nor_numba_nor_numpy():
    program = "import sys, fne; dir(fne); print(sorted({'torch', 'numba', 'numpy'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_reading_artifacts_imports_no_torch():
    program = "import sys, fne; [getattr(fne, name) for name in fne.__all__]; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize("name", fne.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert name in dir(fne)
    assert getattr(fne, name).__doc__


def test_nothing_else_is_listed():
    assert dir(fne) == sorted(fne.__all__)
    assert not hasattr(fne, "Any")


def test_other_names_are_errors():
    with pytest.raises(AttributeError, match="module 'fne' has no attribute 'open_shop'"):
        fne.open_shop  # noqa: B018
