"""What the documents say exists, and is drawn as it is."""

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from dvc.cli.parser import get_main_parser
from dvc.utils.hydra import apply_overrides
from ruamel.yaml import YAML

from benchmarks.__main__ import BENCHMARKS
from fne.cli import main as fne
from fne.commands.check import SECTIONS
from fne.core.params import parse_section
from fne.store.layout import Layer
from fne.store.writer import write_rows
from tests.imports import ROOT, module_path

README = (ROOT / "README.md").read_text(encoding="utf-8")
STAGES = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
PARAMS = YAML(typ="safe").load(ROOT / "params.yaml")
SUBJECTS = ("make", "fne", "dvc", "python", "pip", "source", "git")


def expanded(line: str) -> str:
    """Put in what the shell would put in for `$(fne …)`."""
    return re.sub(r"\$\(fne ([^)]*)\)", lambda found: _output_of_fne(found[1].split()), line)


def _output_of_fne(words: list[str]) -> str:
    result = CliRunner().invoke(fne, words)
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip()


def commands() -> list[list[str]]:
    """Return all commands of the README's blocks and of its running text, in words."""
    blocks = re.findall(r"^```\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL))
    found = [
        shlex.split(expanded(line), comments=True)
        for line in lines + inline
        if line.split(" ")[0] in SUBJECTS
    ]
    return [words for words in found if len(words) > 1]


def commands_of(subject: str) -> list[list[str]]:
    return [words[1:] for words in commands() if words[0] == subject]


def test_commands_are_found_at_all():
    assert {words[0] for words in commands()} == set(SUBJECTS)


@pytest.mark.parametrize("words", commands_of("make"), ids=" ".join)
def test_every_make_target_exists(words):
    assert re.search(rf"^{re.escape(words[0])}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("words", commands_of("fne"), ids=" ".join)
def test_every_fne_command_exists_with_its_options(words):
    command = fne.commands[words[0]]
    if words[1:] and "PATH" not in words:
        command.make_context(words[0], words[1:])  # parses, and does not run


@pytest.mark.parametrize("words", commands_of("dvc"), ids=" ".join)
def test_dvc_understands_every_command(words):
    get_main_parser().parse_args(words)


@pytest.mark.parametrize("words", commands_of("python"), ids=" ".join)
def test_every_python_module_exists(words):
    assert words[0] == "-m"
    assert module_path(words[1]) or Path(words[1], "__main__.py").exists()
    assert set(words[2:]) <= set(BENCHMARKS)


# Overrides that are valid only beside others of the same command.
QUANTILES = {"thresholds": "quantiles", "low": 0.4, "high": 0.6}
TOGETHER = dict.fromkeys(["embed.thresholds=quantiles", "embed.low=0.4", "embed.high=0.6"], QUANTILES)


def overrides() -> list[str]:
    passed = [
        words[place + 1] for words in commands_of("dvc") for place, word in enumerate(words) if word == "-S"
    ]
    named = re.findall(rf"`((?:{'|'.join(SECTIONS)})\.\w+=[^`\s]+)`", README)
    return sorted({*passed, *named} - {"key=value"})


@pytest.mark.parametrize("override", overrides())
def test_every_override_is_a_valid_parameter(override):
    key, values = override.split("=", 1)
    section, name = key.split(".")
    others = {**PARAMS[section], **TOGETHER.get(override, {})}
    sweep = [values] if values.startswith("[") else values.split(",")
    for value in sweep:
        changed: dict[str, Any] = others | {name: YAML(typ="safe").load(value)}
        assert name in PARAMS[section]
        assert parse_section({section: changed}, section, SECTIONS[section])[1] == []


def test_an_override_changes_its_own_line_and_no_other(tmp_path):
    """The parameter file is written as DVC would write it, so that `git diff` shows what was tried."""
    path = tmp_path / "params.yaml"
    path.write_text((ROOT / "params.yaml").read_text())
    apply_overrides(str(path), ["train.margin=0.123"])
    before, after = (ROOT / "params.yaml").read_text().splitlines(), path.read_text().splitlines()
    assert [new for old, new in zip(before, after, strict=True) if old != new] == ["  margin: 0.123"]


def stage_edges() -> set[tuple[str, str]]:
    """Which stage reads what which other stage writes, from dvc.yaml."""
    makers = {}
    for stage, block in STAGES.items():
        outs = [*block.get("outs", []), *(name for each in block.get("metrics", []) for name in each)]
        makers.update(dict.fromkeys(outs, stage))
    makers |= {"${catalog.root}": "render", "${embed.source}": "extract"}
    return {
        (makers[each], stage) for stage, block in STAGES.items() for each in block["deps"] if each in makers
    }


def test_the_picture_of_the_pipeline_is_that_of_dvc_yaml():
    (drawing,) = re.findall(r"```mermaid\n(.*?)```", README, flags=re.DOTALL)
    drawn = set()
    for line in drawing.splitlines()[1:]:
        chain = [each.strip() for each in line.split("-->")]
        drawn |= set(itertools.pairwise(chain))
    assert drawn == stage_edges()


def test_the_table_of_stages_is_that_of_dvc_yaml():
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", README, flags=re.MULTILINE)
    described = {stage: re.findall(r"`([\w./]+)`", writes) for stage, writes in rows if stage in STAGES}
    assert list(described) == list(STAGES)
    for stage, block in STAGES.items():
        outs = [*block.get("outs", []), *(name for each in block.get("metrics", []) for name in each)]
        assert sorted(each.rstrip("/") for each in described[stage]) == sorted(outs)


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "docs/sharing.md"]
)
def test_every_local_link_leads_somewhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert [link for link in links if not (ROOT / name).parent.joinpath(link).exists()] == []


def test_every_place_to_add_something_is_there():
    rows = re.findall(r"^\| an? [\w ]+ \| (.*) \| `(fne/[\w/]+\.py)` \|$", README, flags=re.MULTILINE)
    assert len(rows) == 7
    for what, place in rows:
        for table in re.findall(r"`([A-Z_]+)`", what):
            assert re.search(rf"^{table}\b.*= ", (ROOT / place).read_text(), flags=re.MULTILINE), (
                place,
                table,
            )


def test_the_way_to_take_rows_elsewhere_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    folder = Path("features/activations")
    write_rows(folder, "activations", [Layer("conv", 3)], "float32", [(0, ["a", "b"], rows)], {}, {})
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    assert (names["ids"], names["rows"].tolist()) == (["a", "b"], rows.tolist())
