from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field, model_validator

from fne.core.errors import InputError
from fne.core.params import Section, load_key, load_params, load_section, one_of


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


def test_a_fault_of_the_whole_section_is_said_in_its_own_words(tmp_path):
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
    assert fault.startswith("params.yaml: not valid YAML: ")
    assert "\n" not in fault


def test_a_file_without_sections_is_refused(tmp_path):
    assert message(tmp_path, "- 1") == "params.yaml: expected sections such as 'catalog:', found list"


def test_a_key_of_another_section_is_read_or_missed_by_name(tmp_path):
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


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file; run this in the project's folder"):
        load_params(tmp_path / "params.yaml")
