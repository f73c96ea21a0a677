import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from pydantic import Field, model_validator
from ruamel.yaml import YAML

from fne.core.errors import InputError
from fne.core.settings import (
    Section,
    file_of,
    flattened,
    load_key,
    load_params,
    load_runtime,
    load_section,
    one_of,
    parse_section,
    parse_yaml,
    put,
)
from fne.experiments.effective_settings import SECTIONS
from tests.support.imports import ROOT
from tests.support.parameters import names_allowed
from tests.support.projects import change_params
from tests.support.refusals import refused
from tests.support.settings import runtime


class Embed(Section):
    kind: Annotated[str, one_of(["layer", "fne"])]
    low: float
    high: float
    layers: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _ordered(self) -> "Embed":
        if self.low >= self.high:
            raise ValueError(f"low must be below high, got {self.low} and {self.high}")
        return self


def section(tmp_path: Path, text: str) -> Embed:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    return load_section(path, "embed", Embed)


def message(tmp_path: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        section(tmp_path, text)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message
    return caught.value.message.removeprefix(f"{tmp_path}/")


def test_the_exponent_that_dvc_writes_is_a_number(tmp_path):
    assert section(tmp_path, "embed: {kind: fne, low: -1e-05, high: 1, layers: 3}").low == -1e-5


def test_all_faults_of_a_section_come_in_one_message(tmp_path):
    assert message(tmp_path, "embed: {kind: fen, low: high, hgih: 1, layers: 0}") == (
        "params.yaml: section 'embed': kind: 'fen' is not one of 'fne', 'layer'; "
        "low: input should be a valid number, got 'high'; missing key 'high'; "
        "layers: input should be greater than or equal to 1, got 0; "
        "unknown key 'hgih' (did you mean 'high'?)"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("embed: {kind: fne, low: 0, high: 1, layers: 3, zzz: 1}",
         "section 'embed': unknown key 'zzz' (known keys: kind, low, high, layers)"),
        ("embed: {kind: fne, low: 2, high: 1, layers: 3}", "section 'embed': low must be below high, got 2.0 and 1.0"),
        ("train: {}",
         "section 'embed': missing key 'kind'; missing key 'low'; missing key 'high'; missing key 'layers'"),
        ("embed: 3", "section 'embed': expected keys and values"),
        ("embed: [", "not valid YAML: while parsing a flow node expected the node content, but found '<stream end>'"
         " at line 1, column 9: embed: [ ^ (line: 1)"),
        ("- 1", "expected keys and values, found list"),
        ("x: " + 1000 * "[", "not valid YAML: too deeply nested"),
    ],
)  # fmt: skip
def test_what_is_no_section_is_one_line_with_its_file(tmp_path, text, said):
    assert message(tmp_path, text) == f"params.yaml: {said}"


@pytest.mark.parametrize("value", [".nan", ".inf", "true", "'1'"])
def test_only_finite_numbers_are_numbers(tmp_path, value):
    assert "low: input should be" in message(
        tmp_path, f"embed: {{kind: fne, low: {value}, high: 1, layers: 3}}"
    )


class Deep(Section):
    dropout: float = Field(0.5, ge=0, lt=1)
    hidden: int = 512


class Columns(Section):
    image: str = "auto"


class Model(Section):
    common: ClassVar[tuple[str, ...]] = ("columns",)

    head: Annotated[str, one_of(["deep", "flat"])] = "flat"
    losses: list[str] = Field(["sum"])
    margin: float = 0.2
    deep: Deep = Deep()
    top: Deep = Deep()
    columns: Columns = Columns()


def model(content: object) -> Model:
    found, faults = parse_section({"model": content}, "model", Model)
    assert found is not None, faults
    return found


def faults(content: object) -> list[str]:
    return parse_section({"model": content}, "model", Model)[1]


@pytest.mark.parametrize("params", [{}, {"model": None}, {"model": {}}, {"model": {"deep": {}}}])
def test_what_a_file_does_not_say_has_its_default(params):
    assert parse_section(params, "model", Model) == (Model(), [])


def test_a_key_of_a_block_leaves_the_defaults_of_the_others():
    assert model({"deep": {"hidden": 8}}).deep == Deep(dropout=0.5, hidden=8)


def test_the_block_of_a_variant_that_is_not_chosen_is_checked_and_does_not_apply():
    given = {"deep": {"dropout": 0.1}}
    assert faults({"deep": {"dropout": 2}}) == ["deep.dropout: input should be less than 1, got 2"]
    assert model(given).effective() == {
        "head": "flat", "losses": ["sum"], "margin": 0.2, "columns": {"image": "auto"},
    }  # fmt: skip
    assert model(given | {"head": "deep"}).effective()["deep"] == {"dropout": 0.1, "hidden": 512}
    assert "top" in model({"losses": ["sum", "top"]}).effective()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"deep": {"dropuot": 0.1}}, "unknown key 'deep.dropuot' (did you mean 'deep.dropout'?)"),
        ({"deep": {"zzz": 1}}, "unknown key 'deep.zzz' (known keys: dropout, hidden)"),
        ({"dropout": 0.1}, "unknown key 'dropout' (did you mean 'deep.dropout' or 'top.dropout'?)"),
        ({"deep": {"hidden": "wide"}}, "deep.hidden: input should be a valid integer, got 'wide'"),
        ({"deep": 3}, "deep: expected keys and values, got 3"),
        ({"deep": ["dropout"]}, "deep: expected keys and values, got ['dropout']"),
    ],
)
def test_a_fault_in_a_block_names_the_block_and_the_key(content, fault):
    assert faults(content) == [fault]


def test_nested_keys_become_one_level():
    assert flattened({"a": 1, "b": {"c": [2], "d": {"e": 3}}, "f": {}}) == {"a": 1, "b.c": [2], "b.d.e": 3}


def test_a_nested_key_is_set_and_leaves_the_others_of_its_block():
    block = {"hardest": "query"}
    content = {"max_hinge": block, "empty": None}
    put(content, "max_hinge.k", 2)
    put(content, "top_k_hinge.k", 3)
    put(content, "empty.k", 4)
    assert content == {
        "max_hinge": {"hardest": "query", "k": 2}, "top_k_hinge": {"k": 3}, "empty": {"k": 4},
    }  # fmt: skip
    assert block == {"hardest": "query"}


@pytest.fixture
def pipelines(tmp_path) -> Path:
    """A parameter file with those of two pipelines beside it."""
    (tmp_path / "params.yaml").write_text("train: {margin: 0.2}\n")
    for name, text in {"a": "embed: {kind: fen}\n", "b": "model: {margin: 1.0}\n"}.items():
        (tmp_path / "pipelines" / name).mkdir(parents=True)
        (tmp_path / "pipelines" / name / "params.yaml").write_text(text)
    return tmp_path


def test_the_parameters_of_pipelines_are_read_with_those_of_the_root_and_a_fault_names_its_file(pipelines):
    path = pipelines / "params.yaml"
    assert load_params(path) == {
        "train": {"margin": 0.2}, "embed": {"kind": "fen"}, "model": {"margin": 1.0},
    }  # fmt: skip
    assert load_section(path, "model", Model).margin == 1.0
    files = {name: file_of(path, name).relative_to(pipelines).as_posix() for name in ("train", "model")}
    assert files == {"train": "params.yaml", "model": "pipelines/b/params.yaml"}
    with refused("pipelines/a/params.yaml: section 'embed': kind: 'fen' is not"):
        load_section(path, "embed", Embed)


def test_a_section_in_two_files_is_refused_with_both(pipelines):
    (pipelines / "pipelines/b/params.yaml").write_text("train: {margin: 0.1}\n")
    with refused("pipelines/b/params.yaml: ", "'train' stands in ", "/params.yaml too; remove one of them"):
        load_params(pipelines / "params.yaml")


# A condition by the hidden layer needs the concept head that has one. A start by a closed form is that form.
HIDDEN = {"hidden": ["concept_head", "condition"]}
CLOSED_FORMS = {"cca": ["method", "start"], "ridge": ["method", "start"]}
MEANT_BY_BOTH = {"train": CLOSED_FORMS, "train_tagger": HIDDEN, "train_captioner": HIDDEN}


@pytest.mark.parametrize("name", SECTIONS)
def test_a_value_that_is_the_name_of_a_block_means_this_block_wherever_it_is_allowed(name):
    """A value chooses the block with its name, so two keys may not mean two variants by one name."""
    schema = SECTIONS[name]
    assert set(schema.common) <= set(schema.nested())
    assert all(not block.nested() for block in schema.nested().values())
    keys = [key for key in schema.model_fields if key not in schema.nested()]
    choosing: dict[str, list[str]] = {block: [] for block in schema.nested()}
    for key in keys:
        for block in set(choosing) & set(names_allowed(schema, key)):
            choosing[block].append(key)
    several = {block: found for block, found in choosing.items() if len(found) > 1}
    assert several == MEANT_BY_BOTH.get(name, {})


@pytest.mark.parametrize("name", SECTIONS)
def test_every_key_has_a_default_and_a_meaning(name):
    for schema in (SECTIONS[name], *SECTIONS[name].nested().values()):
        for key, field in schema.model_fields.items():
            assert not field.is_required(), key
            assert key in schema.nested() or field.description, key


HEAVY = {"torch", "torchvision", "numba", "dvc", "sklearn"}
LIGHT = sorted({schema.__module__ for schema in SECTIONS.values()})


def test_settings_are_read_and_the_default_parameters_checked_without_torch_and_numba():
    program = f"""
import sys
import fne.training.settings, {", ".join(LIGHT)}
print(*(sys.modules.keys() & {HEAVY!r}))
from pathlib import Path
from fne.cli.check import check_params
check_params(Path("params.yaml"))
print(*(sys.modules.keys() & {HEAVY!r}))
"""
    read, checked = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True).splitlines()
    assert read == ""
    assert set(checked.split()) & {"torch", "torchvision", "numba"} == set()


def test_a_key_of_another_section_is_read_or_reported_as_missing(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("catalog: {root: data}")
    assert load_key(path, "catalog", "root") == "data"
    with refused("section 'catalog': missing key 'seed'; run `fne check`"):
        load_key(path, "catalog", "seed")


def test_a_folder_and_a_missing_file_are_refused(tmp_path):
    with refused("cannot be read (Is a directory)"):
        load_params(tmp_path)
    with refused("no such file; run this in the project's folder"):
        load_params(tmp_path / "params.yaml")


@pytest.mark.parametrize("text", ["a: &x {b: 1}\nc: *x", "a: &x [*x]"])
def test_aliases_of_a_few_values_may_be_used_but_not_where_only_programs_write(text):
    with refused("file: not valid YAML: aliases are not allowed here at line "):
        parse_yaml(text.encode(), "file", aliases=False)
    assert parse_yaml(b"a: &x {b: 1}\nc: *x", "file") == {"a": {"b": 1}, "c": {"b": 1}}


def test_aliases_that_stand_for_too_many_values_are_refused_in_bounded_time():
    bomb = "a0: &a0 [0]\n" + "".join(
        f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(20)
    )
    for text in (bomb, "a: &x [*x]", "a: &x {b: *x}"):
        with refused("file: its aliases (`*name`) stand for too many values"):
            parse_yaml(text.encode(), "file")


@pytest.mark.parametrize(
    ("changes", "expected"), [({}, "/project/.fne"), ({"scratch": "/shared/scratch"}, "/shared/scratch")]
)
def test_a_relative_scratch_folder_starts_at_dvcs_root(monkeypatch, changes, expected):
    monkeypatch.setenv("DVC_ROOT", "/project")
    assert runtime(**changes).scratch_folder() == Path(expected)


def test_the_engine_is_the_one_of_the_parameters_unless_the_environment_names_another(tmp_path, monkeypatch):
    monkeypatch.delenv("FNE_ENGINE", raising=False)
    params = Path(shutil.copy(ROOT / "params.yaml", tmp_path))
    assert load_runtime(params).engine == "local"
    change_params(tmp_path, {"runtime": {"engine": "ray"}})
    assert load_runtime(params).engine == "ray"
    for value, engine in (("local", "local"), ("", "ray")):
        monkeypatch.setenv("FNE_ENGINE", value)
        assert load_runtime(params).engine == engine
    monkeypatch.setenv("FNE_ENGINE", "dask")
    with refused("FNE_ENGINE: 'dask' is not one of 'local', 'ray'"):
        load_runtime(params)
    monkeypatch.delenv("FNE_ENGINE")
    change_params(tmp_path, {"runtime": {"engine": "spark"}})
    with refused("section 'runtime': engine: 'spark' is not one of 'local', 'ray'"):
        load_runtime(params)


@pytest.mark.parametrize("text", ["[", "{a: ", "- ", "? ", ": ", "-\t", "[{b: "], ids=repr)
def test_values_in_values_without_end_are_refused_and_crash_nothing(text):
    with refused("file: not valid YAML: "):
        parse_yaml(f"a:\n {text * 100_000}".encode(), "file")


def test_files_of_the_project_are_the_same_in_both_parsers():
    files = [
        path for end in ("yaml", "lock") for path in (*ROOT.glob(f"*.{end}"), *ROOT.glob(f"p*/**/*.{end}"))
    ]
    for path in files:
        content = path.read_bytes()
        assert parse_yaml(content, path.name) == YAML(typ="safe", pure=True).load(content), path


@pytest.mark.parametrize(
    "value", ["9" * 5000, "2020-13-45", "!!int dog", "!!float dog", "!!timestamp dog", "!!binary é", "? [a]"]
)
def test_a_value_that_is_none_of_its_type_is_one_line(value):
    with refused("params.yaml: not valid YAML: ") as caught:
        parse_yaml(f"train: {value}".encode(), "params.yaml")
    assert "\n" not in caught.value.message


def test_a_file_that_takes_minutes_to_parse_is_refused_by_its_size():
    with refused("dvc.lock: 10000005 bytes, more than the 10000000 that are read"):
        parse_yaml(b"a: 1\n" * 2_000_001, "dvc.lock")
