"""Modules of a package without the package's own code.

Importing a module first runs the `__init__` of every package above it. NLTK's imports
all of NLTK and with it SciPy and scikit-learn, two seconds for a word tokenizer that
needs a tenth of one.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec


@contextmanager
def bare_packages(*names: str) -> Iterator[None]:
    """Let modules of these packages be imported without running the packages themselves.

    Afterwards the packages and their modules count as never imported, so that who imports them later gets
    them whole; what was taken from them stays usable. Where the first one is imported already, nothing
    is changed.

    Args:
        names: a package and packages within it, the outer ones first.
    """
    root = names[0]
    if root in sys.modules:
        yield
        return
    try:
        for name in names:
            spec = find_spec(name)
            if spec is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            sys.modules[name] = module_from_spec(spec)
        yield
    finally:
        for name in [each for each in sys.modules if each == root or each.startswith(f"{root}.")]:
            del sys.modules[name]
