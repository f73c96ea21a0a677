"""The pipelines and the packages are wired as they say."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from fne.core.stage import StageCommand
from fne.experiments.effective_settings import DEFAULT, PARAMS, RUNTIME, pipeline_params
from fne.experiments.effective_settings import PIPELINES as SECTIONS_BY_PIPELINE
from tests.support.imports import ROOT, all_imports, direct_imports

# Those that are off until they are copied to `dvc.yaml` have another name.
FILES = [ROOT / "dvc.yaml", *ROOT.glob("pipelines/*/dvc.yaml"), *ROOT.glob("pipelines/*/pipeline.yaml")]
PIPELINES = sorted(path.relative_to(ROOT) for path in FILES)
# By their addresses: every pipeline has a stage `check`.
STAGES: dict[str, dict[str, Any]] = {
    f"{path}:{name}": stage
    for path in PIPELINES
    for name, stage in YAML(typ="safe").load(ROOT / path)["stages"].items()
}
# The constant output of the stage `check` of each pipeline; that of the root also decides for the demo.
CHECKED = {
    "dvc.yaml": "checked/parameters.txt",
    "pipelines/demo/dvc.yaml": "checked/parameters.txt",
    "pipelines/tagging/dvc.yaml": "checked/tagging.txt",
    "pipelines/captioning/dvc.yaml": "checked/captioning.txt",
    "pipelines/finetuning/pipeline.yaml": "checked/finetuning.txt",
    "pipelines/tuned_tagging/pipeline.yaml": "checked/tuned_tagging.txt",
    "pipelines/tuned_captioning/pipeline.yaml": "checked/tuned_captioning.txt",
    "pipelines/imported/pipeline.yaml": "checked/imported.txt",
    "pipelines/layers/pipeline.yaml": "checked/layers.txt",
    "pipelines/text_network/pipeline.yaml": "checked/text_network.txt",
    "pipelines/judgments/dvc.yaml": "checked/judgments.txt",
}
# Stages that run the script of another one on other files.
SCRIPTS = {
    "evaluate_tuned": "evaluate",
    "score_tuned_captions": "score_captions",
    "score_tuned_tags": "score_tags",
    "tuned_captions_page": "captions_page",
    "tuned_tags_page": "tags_page",
}

BASE = {"core", "store"}
LEARNING = BASE | {"text", "training", "evaluation"}
# Who may import whom; `stages`, `cli` and `api.py` may import everything.
ALLOWED = {
    "core": {"core"},
    "store": BASE,
    "datasets": BASE | {"datasets"},
    "extraction": BASE | {"extraction"},
    "features": BASE | {"features"},
    "text": BASE | {"text"},
    "training": BASE | {"training"},
    "matching": LEARNING | {"matching"},
    "describing": LEARNING | {"describing"},
    # The image network that is fine-tuned is that of the extraction, and its rows become embeddings.
    "finetuning": LEARNING | {"extraction", "features", "matching", "describing", "finetuning"},
    # What a captioner wrote is read in its own form, and scored in the words that published scores expect.
    "evaluation": BASE | {"text", "matching", "describing", "evaluation"},
    # Layers are compared by the closed form, and with captions and labels.
    "probing": BASE | {"text", "matching", "evaluation", "probing"},
    # A study runs what the stages run, in one process.
    "experiments": LEARNING | {"datasets", "extraction", "features", "matching", "experiments"},
    # The words of sentences, and how much each matters for a model.
    "report": BASE | {"text", "matching", "describing", "evaluation", "experiments", "probing", "report"},
    # What makes the embedding of a new image and the vector of a sentence.
    "search": LEARNING
    | {"datasets", "extraction", "features", "matching", "describing", "finetuning", "search"},
    # The server: what a search computes, and how the report names what was made from what.
    "serve": BASE | {"search", "extraction", "finetuning", "matching", "text", "report", "serve"},
    # The self-test of a device computes rows and a training step.
    "sharing": BASE | {"datasets", "extraction", "features", "matching", "training", "sharing"},
    # What a data set has, which defaults have changed, and which finished work another version reuses.
    "projects": BASE | {"datasets", "describing", "experiments", "extraction", "training", "projects"},
}
# Packages that a validation needs, and that training stages depend on: nothing else of `evaluation` trains.
METRICS = ("fne", "evaluation", "metrics")
LEARNERS = ("matching", "describing", "finetuning")
# These can be called or list names, and import modules only when they are used.
INTERFACES = {Path("fne/__init__.py"), Path("fne/search/__init__.py")}
# It collects the sections of all packages.
ALL_SECTIONS = Path("fne/experiments/effective_settings.py")
IMPORTS = (ast.Import, ast.ImportFrom)
# Why an import stands inside a function: the end of its line.
REASON = re.compile(r"  # (\w+: slow to import|optional|imports this module|NumPy: reads the setting above)$")


def modules(folder: str) -> list[Path]:
    return [path.relative_to(ROOT) for path in sorted((ROOT / folder).rglob("*.py"))]


def first_inner_imports(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield each import inside a function that does not follow another one."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in (each for function in functions for each in ast.walk(function)):
        for _, block in ast.iter_fields(node):
            for before, each in pairwise([None, *block] if isinstance(block, list) else []):
                if isinstance(each, IMPORTS) and not isinstance(before, IMPORTS):
                    yield each


def script_of(stage: str) -> Path:
    name = stage.rpartition(":")[2]
    return Path(f"stages/{SCRIPTS.get(name, name)}.py")


def packages_of(stage: str) -> set[str]:
    """The packages of `fne` that a stage's imports reach."""
    return {each.parts[1] for each in all_imports(Path(f"stages/{stage}.py")) if each.parts[0] == "fne"}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_everything_it_imports(stage):
    script = script_of(stage)
    listed = {Path(each) for each in STAGES[stage]["deps"]}
    imported = {script} | all_imports(script)
    assert [str(each) for each in sorted(imported) if not listed & {each, *each.parents}] == []


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_no_folder_it_does_not_import(stage):
    script = script_of(stage)
    needed = {script} | all_imports(script)
    needed |= {parent for each in needed for parent in each.parents}
    listed = {Path(each) for each in STAGES[stage]["deps"] if each.startswith(("fne/", "stages/"))}
    assert sorted(str(each) for each in listed - needed) == []


@pytest.mark.parametrize("stage", STAGES)
def test_code_is_listed_by_folders(stage):
    listed = [each for each in STAGES[stage]["deps"] if each.startswith("fne/")]
    assert [each for each in listed if not (ROOT / each).is_dir()] == []


@pytest.mark.parametrize("stage", STAGES)
def test_nothing_is_removed_before_the_parameters_were_checked(stage):
    pipeline, _, name = stage.rpartition(":")
    needed = CHECKED[pipeline]
    assert (needed in STAGES[stage]["outs"]) if name == "check" else (needed in STAGES[stage]["deps"])


def params_of(stage: str) -> list[tuple[str, str]]:
    """The parameters that a stage lists: the file and the key of each."""
    return [
        (file, key)
        for each in STAGES[stage]["params"]
        for file, keys in (each.items() if isinstance(each, dict) else [(PARAMS, [each])])
        for key in keys
    ]


def test_every_section_is_checked_by_its_own_pipeline():
    """What decides whether the image network can be tuned is checked by that pipeline, too."""
    tuning = ("finetuning", "tuned_captioning", "tuned_tagging")
    tunable = {(PARAMS, section) for section in ("catalog", "extract", "embed", "train")}
    for pipeline, sections in SECTIONS_BY_PIPELINE.items():
        file = "pipeline.yaml" if pipeline in ("imported", "layers", "text_network", *tuning) else "dvc.yaml"
        stage = "dvc.yaml:check" if pipeline == DEFAULT else f"pipelines/{pipeline}/{file}:check"
        own = {(pipeline_params(pipeline), section) for section in sections if section != RUNTIME}
        assert set(params_of(stage)) == own | (tunable if pipeline in tuning else set())


def test_nothing_is_extracted_before_the_splits_were_checked():
    """With many pipelines DVC orders stages that do not depend on each other by a hash."""
    assert "checked/splits.txt" in STAGES["dvc.yaml:extract"]["deps"]


def test_an_edit_of_training_code_never_runs_the_extraction():
    assert packages_of("extract") == {"core", "store", "extraction"}


@pytest.mark.parametrize("package", LEARNERS)
def test_an_edit_of_a_protocol_an_interval_or_a_baseline_never_trains(package):
    for module in modules(f"fne/{package}"):
        scored = [each for each in direct_imports(module) if each.parts[:2] == METRICS[:2]]
        assert [each for each in scored if each.parts[:3] != METRICS] == [], module


def test_metrics_import_nothing_but_themselves():
    for module in modules("fne/evaluation/metrics"):
        found = {
            each.parts[:3] if each.parts[1] == "evaluation" else each.parts[1]
            for each in direct_imports(module)
        }
        assert found <= {METRICS, "core"}, module


def test_the_trainer_knows_tasks_only_by_their_protocol():
    reached = {each.parts[1] for each in all_imports(Path("fne/training/run.py"))}
    assert reached == {"core", "store", "training"}


def test_every_stage_has_a_file_and_every_file_a_stage():
    scripts = {path for path in modules("stages") if path.stem != "__init__"}
    assert {script_of(stage) for stage in STAGES} == scripts


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_is_described_in_a_line(stage):
    assert 20 <= len(STAGES[stage].get("desc", "")) <= 110


@pytest.mark.parametrize("stage", STAGES)
def test_commands_are_constant(stage):
    commands = STAGES[stage]["cmd"]
    assert "${" not in str(commands)
    assert f"python -m stages.{script_of(stage).stem} " in commands


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_names_its_artifacts_in_its_command(stage):
    """The data flow can be read off dvc.yaml: what a stage reads and writes stands in its command.

    Of a folder that it names, the stage watches exactly the files that dvc.yaml lists.
    """
    name = script_of(stage).stem
    command = import_module(f"stages.{name}").main
    if not isinstance(command, StageCommand) or name == "check":
        return  # a check has no inputs
    arguments = str(STAGES[stage]["cmd"]).split()[3:]
    inputs, outputs = command.places(command.make_context(name, [*arguments]))
    listed = [
        each
        for key in ("outs", "metrics")
        for entry in STAGES[stage].get(key, [])
        for each in (entry if isinstance(entry, dict) else [entry])
    ]
    # What the project itself ships is not an artifact: its code, and the papers' printed results. That
    # something was checked is none either.
    ours = ("fne/", "stages/", "papers/", "checked/", "${")
    data = [Path(each) for each in STAGES[stage]["deps"] if not each.startswith(ours)]
    read = [each for each in inputs if each not in command.files]
    for places, paths in ((read, data), (outputs, [Path(each) for each in listed])):
        assert [each for each in places if not {each, *each.parents} & {*paths}] == []
        watched = {parent for each in places for parent in (each, *each.parents)}
        assert [each for each in paths if each not in watched and str(each) not in arguments] == []


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_point_only_the_allowed_way(package):
    for module in modules(f"fne/{package}"):
        if module not in {*INTERFACES, ALL_SECTIONS}:
            found = {each.parts[1] for each in direct_imports(module)}
            assert found <= ALLOWED[package], module


def test_stages_import_modules_and_never_names_of_the_package_itself():
    for module in [*modules("fne"), *modules("stages")]:
        for node in ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.ImportFrom) and node.module == "fne"), module


def test_there_are_no_import_cycles():
    graph = {module: direct_imports(module) for module in modules("fne") if module not in INTERFACES}
    finished: set[Path] = set()

    def visit(module: Path, path: tuple[Path, ...]) -> None:
        assert module not in path, " -> ".join(str(each) for each in [*path, module])
        if module not in finished:
            for each in graph[module]:
                visit(each, (*path, module))
            finished.add(module)

    for module in graph:
        visit(module, ())


def test_an_import_inside_a_function_says_why_it_is_there():
    for module in [*modules("fne"), *modules("stages")]:
        text = (ROOT / module).read_text(encoding="utf-8")
        lines = text.splitlines()
        found = [(module, lines[each.lineno - 1]) for each in first_inner_imports(ast.parse(text))]
        assert [place for place in found if not REASON.search(place[1])] == []


def test_every_package_has_its_place():
    packages = {path.parent.name for path in (ROOT / "fne").glob("*/__init__.py")}
    assert packages == set(ALLOWED) | {"cli"}


def test_packages_themselves_hold_nothing_but_a_docstring():
    """So that importing a module of a package means depending on that module only."""
    families = {Path("fne/cli/__init__.py"), Path("fne/datasets/readers/__init__.py"), *INTERFACES}
    families.add(Path("stages/__init__.py"))  # what holds for the process, before a stage imports torch
    for path in [*modules("fne"), *modules("stages")]:
        if path.name == "__init__.py" and path not in families:
            body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
            assert [type(node) for node in body] == [ast.Expr], path


def test_tests_mirror_the_tree():
    for path in modules("tests"):
        # These test what many modules do together.
        together = len(path.parts) == 2 or path.parts[1] in ("system", "faults", "gpu")
        if together or not path.name.startswith("test_"):
            continue
        subject = Path(*path.parts[1:-1], path.name.removeprefix("test_"))
        package = Path(*path.parts[1:-1], "__init__.py")
        names = {subject, *(subject.with_name(name.format(subject.stem)) for name in ("{}_.py", "__{}__.py"))}
        names |= {package} if subject.stem == path.parts[-2] else set()
        assert any((ROOT / base / each).exists() for base in ("fne", ".") for each in names), path
