import hashlib

from fne.extraction.fast_convolutions import winograd_kernels
from tests.support.imports import ROOT


def test_the_kernels_are_compiled_again_when_the_code_they_are_made_of_changes():
    """Numba keeps compiled code until the file of the loops changes, so that file names this digest."""
    folder = ROOT / "fne/extraction/fast_convolutions"
    content = b"".join((folder / f"{name}.py").read_bytes() for name in ("vector_code", "winograd_points"))
    assert hashlib.sha256(content).hexdigest()[:16] == winograd_kernels.COMPILED_FROM
