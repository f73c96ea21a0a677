"""The exception for mistakes in the user's input."""

import click

from fne.core.terminal import harmless


class InputError(click.ClickException):
    """A mistake in the user's input: printed as one line, without a traceback.

    The message names the place, the fault with its value, and what is allowed or what to do. The exit code is
    that of click's usage errors.
    """

    exit_code = 2
    keep = ""  # control characters that are not escaped

    def format_message(self) -> str:
        """Return the message, which may quote files of others: a line break could forge a second message."""
        return harmless(self.message, self.keep)


class LinesError(InputError):
    """Several mistakes, or one with lines to add to a file: the only error of more than one line."""

    keep = "\n"
