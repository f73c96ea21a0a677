import subprocess
import sys

import pytest
from click.testing import CliRunner

from fne.cli import main
from tests.imports import ROOT

SLOW = {"torch", "dvc", "numba", "numpy", "h5py", "pydantic", "ruamel", "PIL", "tqdm"}


def loaded(*arguments: str) -> set[str]:
    """Return which slow modules are loaded when a command has been called."""
    code = (
        "import sys; from fne.cli import main; main(sys.argv[1:], standalone_mode=False); "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return SLOW & set(done.stderr.split())


@pytest.mark.parametrize("command", ["", *main.commands])
def test_no_help_waits_for_slow_modules(command):
    assert loaded(*command.split(), "--help") == set()


def test_a_preset_needs_no_slow_module_but_the_reader_of_yaml():
    assert loaded("preset", "--list") <= {"ruamel", "pydantic"}


def test_every_command_says_what_it_does_in_a_line_of_the_help():
    printed = CliRunner().invoke(main, ["--help"]).stdout
    for name, command in main.commands.items():
        summary = command.get_short_help_str(100)
        assert summary.endswith("."), name
        assert f"{name:<8} {summary}" in printed
