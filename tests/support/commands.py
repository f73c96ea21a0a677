"""Commands of `fne`, run in this process."""

from typing import Any

from click.testing import CliRunner, Result

from fne.cli import main


def fne(*words: object, **options: Any) -> Result:
    """Run a command."""
    return CliRunner().invoke(main, [str(word) for word in words], **options)


def refused(*words: object, **options: Any) -> str:
    """Run a command that must end as users' mistakes do; return what it said."""
    result = fne(*words, **options)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    return result.stderr
