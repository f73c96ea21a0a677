"""The one exception a user is meant to read."""

import click


class InputError(click.ClickException):
    """A mistake in the user's input: printed as one line, without a traceback.

    The message names the place, the fault with its value, and what is allowed or
    what to do. The exit code is 2, as for click's own usage errors.
    """

    exit_code = 2
