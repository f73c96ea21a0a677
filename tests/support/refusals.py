"""What must be refused."""

import re

import pytest

from fne.core.errors import InputError


def refused(*parts: str) -> pytest.RaisesExc[InputError]:
    """Expect an error with these parts in one line and in this order: the place, the fault, the remedy."""
    return pytest.raises(InputError, match=".*".join(map(re.escape, parts)))
