import json
from pathlib import Path

import pytest

from fne.core.errors import InputError, LinesError
from fne.core.terminal import harmless, printable, say
from tests.support.imports import ROOT

HOSTILE = "a\x1b[2J\x9b31m\r\x07\u202egpj.\udcff\x00\u2028b"


def test_no_control_character_reaches_the_terminal_and_escapes_are_those_of_json(capsys):
    assert harmless(HOSTILE).isprintable()
    assert harmless(HOSTILE).encode()
    assert json.loads(f'"{harmless(HOSTILE)}"') == HOSTILE
    assert InputError(f"{HOSTILE}: no such file").format_message().isprintable()
    say(HOSTILE, err=True)
    assert capsys.readouterr().err.rstrip("\n").isprintable()


def test_ordinary_text_of_any_language_stays_as_it_is():
    for text in ("Ein Hund läuft", "می\u200cروم", "a \N{WOMAN}\u200d\N{PERSONAL COMPUTER}", "one\ntwo"):
        assert harmless(text) == text


def test_a_printable_text_is_one_line():
    assert printable("a\nb\t c\x1b") == "a b c"


def test_a_line_break_in_the_name_of_a_file_forges_no_second_message():
    assert InputError("a\nError: b: no such file").format_message() == "a\\u000aError: b: no such file"
    assert LinesError("one\ntwo").format_message() == "one\ntwo"


@pytest.mark.parametrize("folder", ["fne", "stages"])
def test_everything_is_printed_by_one_function(folder):
    files = [path for path in (ROOT / folder).rglob("*.py") if path != ROOT / "fne/core/terminal.py"]
    found = [path for path in files if "click.echo" in Path(path).read_text()]
    assert found == []
