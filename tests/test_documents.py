"""What the documents name exists: commands, options, parameters, modules, links and headings."""

import copy
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from dvc.cli.parser import get_main_parser
from dvc.utils.hydra import apply_overrides
from ruamel.yaml import YAML

from benchmarks.__main__ import BENCHMARKS
from fne.cli import main as fne
from fne.cli.check import SECTIONS
from fne.core.settings import flattened, load_params, parse_section, put
from fne.datasets.demo.dataset import Render, describe_dataset
from fne.experiments.effective_settings import pipeline_of_section, pipeline_params
from fne.store.layout import Layer
from fne.store.rows import write_rows
from tests.support import generated_tables, parameters
from tests.support.imports import ROOT, module_path

# The documents for users, by their paths.
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
LINKING = [*DOCUMENTS, "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"]
README = DOCUMENTS["README.md"]
PARAMS = load_params(ROOT / "params.yaml")
SUBJECTS = ("make", "fne", "dvc", "python", "pip", "source", "git")


def expanded(line: str) -> str:
    """Put in what the shell would put in for `$(fne …)`."""
    return re.sub(r"\$\(fne ([^)]*)\)", lambda found: _output_of_fne(found[1].split()), line)


def _output_of_fne(words: list[str]) -> str:
    result = CliRunner().invoke(fne, words)
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip()


def commands() -> list[list[str]]:
    """Return all commands of the documents, of their blocks and of their running text, in words."""
    lines = [line for text in DOCUMENTS.values() for line in lines_of(text)]
    found = [shlex.split(expanded(line), comments=True) for line in dict.fromkeys(lines)]
    return [words for words in found if len(words) > 1]


def lines_of(text: str) -> list[str]:
    """Return the command lines of a document, as they are written."""
    blocks = re.findall(r"^```\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return [line for line in lines + inline if line.split(" ")[0] in SUBJECTS]


def commands_of(subject: str) -> list[list[str]]:
    return [words[1:] for words in commands() if words[0] == subject]


def test_commands_are_found_at_all():
    assert {words[0] for words in commands()} == set(SUBJECTS)


@pytest.mark.parametrize("words", commands_of("make"), ids=" ".join)
def test_every_make_target_exists(words):
    assert re.search(rf"^{re.escape(words[0])}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("words", commands_of("fne"), ids=" ".join)
def test_every_fne_command_exists_with_its_options(words):
    command = fne.get_command(click.Context(fne), words[0])
    assert command is not None
    if words[1:] and "PATH" not in words:
        command.make_context(words[0], words[1:])  # parses, and does not run


@pytest.mark.parametrize("words", commands_of("dvc"), ids=" ".join)
def test_dvc_understands_every_command(words):
    get_main_parser().parse_args(words)


@pytest.mark.parametrize("words", commands_of("python"), ids=" ".join)
def test_every_python_module_exists(words):
    assert words[0] == "-m"
    assert module_path(words[1]) or Path(words[1], "__main__.py").exists()
    if words[1] == "benchmarks":
        assert set(words[2:]) <= set(BENCHMARKS)


def overrides_of_commands() -> list[list[str]]:
    """Return the overrides of every command that has some."""
    found = [
        [words[place + 1] for place, word in enumerate(words) if word == "-S"]
        for subject in ("dvc", "fne")
        for words in commands_of(subject)
    ]
    return [each for each in found if each and each != ["key=value"]]


@pytest.mark.parametrize("overrides", overrides_of_commands(), ids=" ".join)
def test_every_override_of_a_command_fits_its_file_and_is_valid_beside_the_others(overrides):
    params = copy.deepcopy(PARAMS)
    given, named = set(flattened(PARAMS)), set()
    for override in overrides:
        place, value = override.split("=", 1)
        file, _, key = place.rpartition(":")
        section, own = key.lstrip("+").split(".", 1)
        assert (file or "params.yaml") == pipeline_params(pipeline_of_section(section)), override
        assert key.startswith("++") or key in given, override
        first = value if value.startswith("[") else value.split(",")[0]  # the first of a sweep
        put(params.setdefault(section, {}), own, YAML(typ="safe").load(first))
        named.add(section)
    for section in named:
        assert parse_section(params, section, SECTIONS[section])[1] == []


def values_in_texts() -> list[tuple[str, str]]:
    """Return the keys that a text names with a value."""
    pattern = rf"`((?:{'|'.join(SECTIONS)})\.[\w.]+)=([^`\s]+)`"
    return sorted({each for text in DOCUMENTS.values() for each in re.findall(pattern, text)})


@pytest.mark.parametrize(("key", "value"), values_in_texts())
def test_every_value_that_a_text_names_is_one_of_its_key(key, value):
    section, own = key.split(".", 1)
    content: dict[str, Any] = {}
    put(content, own, YAML(typ="safe").load(value))
    assert parse_section({section: content}, section, SECTIONS[section])[1] == []


def keys_in_texts() -> list[str]:
    """Return the keys that the documents name, with or without a value."""
    pattern = rf"[`+ ]((?:{'|'.join(SECTIONS)})\.[a-z][a-z_]*(?:\.\w+)*)[`=]"
    texts = [text for name, text in DOCUMENTS.items() if name != "docs/parameters.md"]
    found = {each for text in texts for each in re.findall(pattern, text)}
    return sorted(each for each in found if not each.endswith(".py"))


@pytest.mark.parametrize("key", keys_in_texts())
def test_every_key_that_a_document_names_exists(key):
    section, own = key.split(".", 1)
    known = set(flattened(SECTIONS[section]().model_dump()))
    assert own in known or own in SECTIONS[section].nested()


def test_an_override_changes_its_own_line_and_no_other(tmp_path):
    """The parameter file is written as DVC would write it, so that `git diff` shows what was tried."""
    path = tmp_path / "params.yaml"
    path.write_text((ROOT / "params.yaml").read_text())
    apply_overrides(str(path), ["train.margin=0.123"])
    before, after = (ROOT / "params.yaml").read_text().splitlines(), path.read_text().splitlines()
    (changed,) = [new for old, new in zip(before, after, strict=True) if old != new]
    assert changed.startswith("  margin: 0.123 # ")


@pytest.mark.parametrize("name", LINKING)
def test_every_local_link_leads_to_a_file_and_a_heading(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if "://" in link:
            continue
        file, _, heading = link.partition("#")
        target = (ROOT / name).parent / file if file else ROOT / name
        assert target.exists(), link
        if heading:
            assert heading in anchors(target.read_text(encoding="utf-8")), link


def anchors(text: str) -> set[str]:
    """Return the names under which a page of Markdown links to its headings."""
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_links_to_every_document():
    assert [name for name in DOCUMENTS if name != "README.md" and f"({name})" not in README] == []


def test_the_readme_stays_short():
    """What serves one situation only stands under `docs/`."""
    assert len(README.split()) <= 1100


def test_activation_comes_before_the_first_command_that_needs_it():
    blocks = re.findall(r"^```\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    programs = [line.split()[0] for line in "\n".join(blocks).splitlines() if line.strip()]
    needing = [place for place, program in enumerate(programs) if program in ("fne", "dvc", "pip", "python")]
    assert programs.index("source") < needing[0]


def test_queries_for_the_demo_have_hits_in_it():
    images = describe_dataset(Render(**PARAMS["render"]))["images"]
    captions = {each["raw"].casefold() for image in images for each in image["sentences"]}
    names = {image["filename"] for image in images}
    queries = [words[-1] for words in commands_of("fne") if words[0] == "search"]
    sentences = [query for query in queries if query.endswith(".")]
    scenes = [query for query in queries if query.startswith("scene-")]
    assert sentences
    assert set(sentences) <= captions
    assert scenes
    assert set(scenes) <= names


def test_every_place_to_add_something_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| an? [\w ]+ \| (.*) \| (`fne/.*`) \|$", text, flags=re.MULTILINE)
    assert len(rows) >= 8
    for what, places in rows:
        files = [ROOT / place for place in re.findall(r"`(fne/[\w/]+\.py)`", places)]
        sources = [file.read_text(encoding="utf-8") for file in files]
        for table in re.findall(r"`([A-Z_]+)`", what):
            found = [re.search(rf"^{table}\b.*= ", source, flags=re.MULTILINE) for source in sources]
            assert any(found), (places, table)


def test_what_is_generated_is_current():
    """`make docs` writes it again."""
    assert DOCUMENTS["docs/parameters.md"] == parameters.page()
    for path in generated_tables.PAGES:
        assert path.read_text(encoding="utf-8") == generated_tables.page(path)


def test_the_python_examples_run_one_after_the_other(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(finished, tmp_path / "project"))
    names: dict[str, Any] = {}
    examples = re.findall(r"```python\n(.*?)```", DOCUMENTS["docs/search.md"], flags=re.DOTALL)
    for example in examples:
        exec(example, names)
    assert len(examples) >= 6
    assert names["scores"].shape == (2, 2)
    assert len(names["answer"].matches) == 5


def test_the_way_to_take_rows_elsewhere_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    folder = Path("features/activations")
    write_rows(folder, "activations", [Layer("conv", 3)], "float32", [(0, ["a", "b"], rows)], {}, {})
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENTS["docs/formats.md"], flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    assert (names["ids"], names["rows"].tolist()) == (["a", "b"], rows.tolist())


def test_hosted_continuous_integration_runs_the_test_targets():
    """The workflow has the targets of `.ci/run`, each in a job of its own."""
    workflow = YAML(typ="safe").load(ROOT / ".github/workflows/test.yml")["jobs"]["test"]
    targets = re.findall(r"^make (\S+)$", (ROOT / ".ci/run").read_text(), flags=re.MULTILINE)
    assert workflow["strategy"]["matrix"]["target"] == targets == ["test", "test-system"]
    assert workflow["steps"][-1]["run"] == "make ${{ matrix.target }}"


def test_the_line_that_compares_experiments_is_narrow_and_the_same_everywhere():
    texts = [README, DOCUMENTS["docs/experiments.md"], CliRunner().invoke(fne, ["--help"]).stdout]
    [pattern] = {
        drop for text in texts for drop in re.findall(r"exp show --only-changed --drop '([^']*)'", text)
    }
    assert all(f"exp show --only-changed --drop '{pattern}'" in text for text in texts)
    names = [
        name
        for path in (ROOT / "metrics").glob("*.json")
        if not path.name.endswith(("settings.json", "imported.json", "_intervals.json"))  # no metrics of DVC
        for name, value in flattened(YAML(typ="safe").load(path)).items()
        if not re.match(pattern, name) and not isinstance(value, list)  # DVC shows no lists
    ]
    assert "validation.rsum" in names
    assert len(names) < 12, names
    kept = ("embed.layers", "train.margin", "catalog.root", "metrics/tuning.json:validation.rsum")
    assert not any(re.match(pattern, key) for key in kept)
    assert re.match(pattern, "fne/core")
