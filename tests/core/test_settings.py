import shutil
from pathlib import Path
from typing import Annotated

import pytest
import torch
from pydantic import Field, model_validator

from fne.core.device import prepare_device
from fne.core.errors import InputError
from fne.core.settings import Section, load_key, load_params, load_runtime, load_section, one_of, parse_yaml
from tests.support.imports import ROOT
from tests.support.projects import change_params
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


def test_an_unknown_key_like_no_other_lists_the_known_ones(tmp_path):
    text = "embed: {kind: fne, low: 0, high: 1, layers: 3, zzz: 1}"
    assert message(tmp_path, text).endswith("unknown key 'zzz' (known keys: kind, low, high, layers)")


def test_a_fault_of_the_whole_section_has_its_own_message(tmp_path):
    text = "embed: {kind: fne, low: 2, high: 1, layers: 3}"
    assert message(tmp_path, text) == "params.yaml: section 'embed': low must be below high, got 2.0 and 1.0"


@pytest.mark.parametrize("value", [".nan", ".inf", "true", "'1'"])
def test_only_finite_numbers_are_numbers(tmp_path, value):
    assert "low: input should be" in message(
        tmp_path, f"embed: {{kind: fne, low: {value}, high: 1, layers: 3}}"
    )


def test_a_missing_section_is_named(tmp_path):
    assert message(tmp_path, "train: {}") == "params.yaml: section 'embed': the section is missing"


def test_a_section_without_keys_is_named(tmp_path):
    assert message(tmp_path, "embed: 3") == "params.yaml: section 'embed': expected keys and values"


def test_a_file_that_is_not_yaml_is_refused_in_one_line(tmp_path):
    fault = message(tmp_path, "embed: [")
    assert fault == (
        "params.yaml: not valid YAML: while parsing a flow node expected the node content, but found "
        "'<stream end>' at line 1, column 9: embed: [ ^ (line: 1)"
    )


def test_a_file_that_is_not_a_mapping_is_refused(tmp_path):
    assert message(tmp_path, "- 1") == "params.yaml: expected keys and values, found list"


def test_a_key_of_another_section_is_read_or_reported_as_missing(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("catalog: {root: data}")
    assert load_key(path, "catalog", "root") == "data"
    with pytest.raises(InputError, match=r"section 'catalog': missing key 'seed'; run `fne check`"):
        load_key(path, "catalog", "seed")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory\)"):
        load_params(tmp_path)


def test_deep_nesting_is_refused(tmp_path):
    assert message(tmp_path, "x: " + 5000 * "[") == "params.yaml: not valid YAML: too deeply nested"


@pytest.mark.parametrize("text", ["a: &x {b: 1}\nc: *x", "a: &x [*x]"])
def test_aliases_are_refused_where_only_programs_write(text):
    with pytest.raises(InputError, match="^file: not valid YAML: aliases are not allowed here at line "):
        parse_yaml(text.encode(), "file", aliases=False)


def test_an_alias_of_a_few_values_may_be_used():
    assert parse_yaml(b"a: &x {b: 1}\nc: *x", "file") == {"a": {"b": 1}, "c": {"b": 1}}


def test_aliases_that_stand_for_too_many_values_are_refused_in_bounded_time():
    bomb = "a0: &a0 [0]\n" + "".join(
        f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(20)
    )
    for text in (bomb, "a: &x [*x]", "a: &x {b: *x}"):
        with pytest.raises(InputError, match=r"^file: its aliases \(`\*name`\) stand for too many values"):
            parse_yaml(text.encode(), "file")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file; run this in the project's folder"):
        load_params(tmp_path / "params.yaml")


def test_a_relative_scratch_folder_starts_at_dvcs_root(monkeypatch):
    monkeypatch.setenv("DVC_ROOT", "/project")
    assert runtime().scratch_folder() == Path("/project/.fne")


def test_an_absolute_scratch_folder_stays_as_it_is(monkeypatch):
    monkeypatch.setenv("DVC_ROOT", "/project")
    assert runtime(scratch="/shared/scratch").scratch_folder() == Path("/shared/scratch")


def test_auto_falls_back_to_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert prepare_device(runtime()).type == "cpu"


def test_cuda_without_a_gpu_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError) as caught:
        prepare_device(runtime(device="cuda"))
    assert caught.value.message == (
        "params.yaml: runtime.device is 'cuda', but torch finds no GPU here; use 'auto' or 'cpu'"
    )


def test_threads_are_set():
    before = torch.get_num_threads()
    try:
        prepare_device(runtime(device="cpu", threads=1))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def params(tmp_path, monkeypatch) -> Path:
    monkeypatch.delenv("FNE_ENGINE", raising=False)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return tmp_path / "params.yaml"


def test_the_engine_is_the_one_of_the_parameters(params):
    assert load_runtime(params).engine == "local"
    change_params(params.parent, {"runtime": {"engine": "ray"}})
    assert load_runtime(params).engine == "ray"


def test_the_environment_overrides_the_parameters(params, monkeypatch):
    monkeypatch.setenv("FNE_ENGINE", "ray")
    assert load_runtime(params).engine == "ray"


def test_an_empty_variable_counts_as_unset(params, monkeypatch):
    monkeypatch.setenv("FNE_ENGINE", "")
    assert load_runtime(params).engine == "local"


def test_an_unknown_engine_is_refused_with_the_choices(params, monkeypatch):
    change_params(params.parent, {"runtime": {"engine": "spark"}})
    with pytest.raises(InputError) as caught:
        load_runtime(params)
    assert caught.value.message == (
        f"{params}: section 'runtime': engine: 'spark' is not one of 'local', 'ray'"
    )
    change_params(params.parent, {"runtime": {"engine": "local"}})
    monkeypatch.setenv("FNE_ENGINE", "dask")
    with pytest.raises(InputError) as caught:
        load_runtime(params)
    assert caught.value.message == "FNE_ENGINE: 'dask' is not one of 'local', 'ray'"


@pytest.mark.parametrize(
    "value", ["9" * 5000, "2020-13-45", "!!int dog", "!!float dog", "!!timestamp dog", "!!binary é", "? [a]"]
)
def test_a_value_that_is_none_of_its_type_is_one_line(value):
    with pytest.raises(InputError, match=r"^params.yaml: not valid YAML: ") as caught:
        parse_yaml(f"train: {value}".encode(), "params.yaml")
    assert "\n" not in caught.value.message


def test_a_file_that_takes_minutes_to_parse_is_refused_by_its_size():
    with pytest.raises(InputError) as caught:
        parse_yaml(b"a: 1\n" * 2_000_001, "dvc.lock")
    assert caught.value.message == "dvc.lock: 10000005 bytes, more than the 10000000 that are read"
