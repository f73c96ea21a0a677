"""The pipeline and the packages are wired as they say."""

import ast
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.imports import ROOT, all_imports, direct_imports

STAGES = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]

# Who may import whom; `stages`, `commands`, `subcommands` and the command line may import everything.
ALLOWED = {
    "core": {"core"},
    "store": {"core", "store"},
    "datasets": {"core", "store", "datasets"},
    "activations": {"core", "store", "activations"},
    "features": {"core", "store", "features"},
    "captions": {"core", "store", "captions"},
    "ranking": {"core", "store", "ranking"},
    "matching": {"core", "store", "ranking", "matching"},
    # For search, what makes the embedding of a new image and the vector of a sentence.
    "retrieval": {
        "core",
        "store",
        "datasets",
        "activations",
        "features",
        "captions",
        "ranking",
        "matching",
        "retrieval",
    },
    "report": {"core", "store", "ranking", "paper", "report"},
    "paper": {"core", "store", "ranking", "paper"},
    "sharing": {"core", "store", "sharing"},
}


def modules(folder: str) -> list[Path]:
    return [path.relative_to(ROOT) for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_everything_it_imports(stage):
    script = Path(f"stages/{stage}.py")
    listed = {Path(each) for each in STAGES[stage]["deps"]}
    imported = {script} | all_imports(script)
    assert [str(each) for each in sorted(imported) if not listed & {each, *each.parents}] == []


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_no_module_it_does_not_import(stage):
    script = Path(f"stages/{stage}.py")
    needed = {script} | all_imports(script)
    needed |= {parent for each in needed for parent in each.parents}
    listed = {Path(each) for each in STAGES[stage]["deps"] if each.startswith(("fne/", "stages/"))}
    assert sorted(str(each) for each in listed - needed) == []


def test_every_stage_has_a_file_and_every_file_a_stage():
    assert sorted(STAGES) == sorted(path.stem for path in modules("stages") if path.stem != "__init__")


@pytest.mark.parametrize("stage", STAGES)
def test_commands_are_constant(stage):
    commands = STAGES[stage]["cmd"]
    assert "${" not in str(commands)
    assert f"python -m stages.{stage} " in (commands if isinstance(commands, str) else commands[-1])


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_names_its_artifacts_in_its_command(stage):
    """The data flow can be read off dvc.yaml: what a stage reads and writes stands in its command."""
    command = str(STAGES[stage]["cmd"])
    outs = [
        *STAGES[stage].get("outs", []),
        *(name for each in STAGES[stage].get("metrics", []) for name in each),
    ]
    # What the project itself ships is no artifact: its code, and the paper's printed results.
    ours = ("fne/", "stages/", "paper", "${")
    data = [each for each in STAGES[stage]["deps"] if not each.startswith(ours)]
    assert [each for each in outs + data if each not in command] == []


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_point_only_the_allowed_way(package):
    for module in modules(f"fne/{package}"):
        found = {each.parts[1] for each in direct_imports(module)}
        assert found <= ALLOWED[package], module


def test_every_package_has_its_place():
    packages = {path.parent.name for path in (ROOT / "fne").glob("*/__init__.py")}
    assert packages == set(ALLOWED) | {"commands", "subcommands"}


def test_packages_themselves_hold_nothing_but_a_docstring():
    """So that importing a module of a package means depending on that module only."""
    for path in [*modules("fne"), *modules("stages")]:
        if path.name == "__init__.py":
            body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
            assert [type(node) for node in body] == [ast.Expr], path


def test_tests_mirror_the_tree():
    for path in modules("tests"):
        # `tests/system` tests what many modules do together.
        if path.name.startswith("test_") and len(path.parts) > 2 and path.parts[1] != "system":
            subject = Path(*path.parts[1:-1], path.name.removeprefix("test_"))
            assert any((ROOT / base / subject).exists() for base in ("fne", ".")), path
