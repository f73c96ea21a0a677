import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from fne.cli import COMMANDS, main
from tests.support.imports import ROOT

SLOW = {"torch", "dvc", "numba", "numpy", "h5py", "pydantic", "ruamel", "PIL", "tqdm"}


def loaded(*arguments: str) -> set[str]:
    """Return the slow modules that a command imports."""
    code = (
        "import sys; from fne.cli import main; main(sys.argv[1:], standalone_mode=False); "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return SLOW & set(done.stderr.split())


def test_the_help_imports_no_slow_module():
    assert loaded("--help") == set()


def test_presets_import_only_what_the_settings_of_sections_need():
    assert loaded("preset", "--list") <= {"ruamel", "pydantic", "numpy", "h5py", "PIL"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_the_group_has_the_first_line_of_each_command(name):
    command = main.get_command(click.Context(main), name)
    summary = command.get_short_help_str(100)
    assert summary.endswith(".")
    assert f"{name:<9} {summary}" in CliRunner().invoke(main, ["--help"]).stdout
