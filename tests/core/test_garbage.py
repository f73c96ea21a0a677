import subprocess
import sys

import pytest

CYCLE = """
import gc
class Node:
    def __del__(self):
        print("found", end=" ")
def leave(count):
    for _ in range(count):
        node = Node()
        node.itself = node
leave(1000)
print("then", end=" ")
"""


@pytest.mark.parametrize("start", ["import stages", "import fne.cli"])
def test_commands_and_stages_search_for_garbage_neither_often_nor_at_exit(start):
    printed = subprocess.run(
        [sys.executable, "-c", f"{start}\n{CYCLE}"], capture_output=True, text=True, check=True
    ).stdout
    assert printed == "then "


def test_garbage_of_long_processes_is_found():
    code = f"import stages\n{CYCLE}\nleave(60_000)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("then ")
    assert printed.count("found") > 40_000
