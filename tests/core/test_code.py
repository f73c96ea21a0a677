import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from fne.core import code
from fne.core.errors import InputError
from tests.support.imports import ROOT

LIBRARY = ("fne/", "stages/", "papers/")


def test_the_code_of_a_stage_is_what_its_pipelines_depend_on():
    """Two stages with one module depend on the same code, so that one digest is enough for both."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for path in code.shipped_pipelines().values():
        for stage in YAML(typ="safe").load(path)["stages"].values():
            name = re.search(r"stages\.(\w+)", stage["cmd"])[1]
            found.setdefault(name, set()).add(
                tuple(sorted(each for each in stage["deps"] if each.startswith(LIBRARY)))
            )
    assert {name: {places} for name, places in code.code_of_stages().items()} == found


@pytest.fixture
def library(tmp_path, monkeypatch) -> Path:
    """An installed library with one stage that depends on a folder."""
    package = tmp_path / "fne"
    for name, text in {
        "core/locks.py": "lock\n",
        "text/tokenizer.py": "cut\n",
        "stages/tokenize.py": "main\n",
        "shipped/dvc.yaml": "stages:\n  a:\n    cmd: python -m stages.tokenize x\n    deps:\n      - stages/tokenize.py\n      - fne/text\n",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    monkeypatch.setattr(code, "PACKAGE", package)
    monkeypatch.setattr(code, "IS_INSTALLED", True)
    monkeypatch.setattr(code, "SHIPPED", package / "shipped")
    return package


def digest() -> str:
    for each in (code.code_of_stages, code.code_digest, code._place_digest):
        each.cache_clear()
    return code.code_digest("tokenize")


@pytest.fixture(autouse=True)
def forget():
    yield
    for each in (code.code_of_stages, code.code_digest, code._place_digest):
        each.cache_clear()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("text/tokenizer.py", True),
        ("stages/tokenize.py", True),
        ("core/locks.py", False),
        ("text/__pycache__/a.pyc", False),
    ],
)
def test_a_digest_changes_with_the_code_of_its_stage_and_no_other(library, name, changes):
    before = digest()
    (library / name).parent.mkdir(exist_ok=True)
    (library / name).write_text("edited\n")
    assert (digest() != before) is changes


def test_a_new_file_and_a_moved_file_are_other_code(library):
    before = digest()
    (library / "text/tokenizer.py").rename(library / "text/cutter.py")
    moved = digest()
    (library / "text/empty.py").touch()
    assert len({before, moved, digest()}) == 3


def test_the_digest_does_not_depend_on_where_the_library_is():
    """An installed library and a checkout of the same code have the same digests: see tests/test_wheel.py."""
    assert code._place("stages/train.py") == ROOT / "stages/train.py"
    assert code._place("papers/fne") == ROOT / "papers/fne"


def test_a_stage_refuses_other_code_with_both_digests_and_the_command(library, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    now = digest()
    code.refuse_other_code("tokenize")  # no project of `fne init`
    Path("code.yaml").write_text(f"code:\n  tokenize: '{now}'\n")
    code.refuse_other_code("tokenize")
    Path("code.yaml").write_text("code:\n  tokenize: '0123456789abcdef'\n")
    with pytest.raises(InputError, match=rf"has code 0123456789abcdef, but .* has {now}; run `fne upgrade`"):
        code.refuse_other_code("tokenize")
    Path("code.yaml").write_text("code: {}\n")
    with pytest.raises(InputError, match="run `fne upgrade`"):
        code.refuse_other_code("tokenize")
