"""The pages about tags and about captions."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from fne.cli import main as fne
from fne.store.checksums import parse_metrics, write_metrics
from tests.support.projects import change_params
from tests.support.stages import invoke, refusal


@dataclass(frozen=True)
class Kind:
    """A page, what it is about, and what scores it."""

    name: str
    written: str  # in lineages
    model: str
    another: dict[str, object]  # settings that write something else
    scored: dict[str, object]  # settings that score something else
    scorers: list[str]

    @property
    def page(self) -> str:
        return f"{self.name}_page"

    @property
    def metrics(self) -> Path:
        return Path(f"metrics/{self.name}.json")

    @property
    def intervals(self) -> Path:
        return Path(f"metrics/{self.name.removesuffix('s')}_intervals.json")


KINDS = [
    Kind(
        "tags",
        "tags",
        "tagger",
        {"images": "all"},
        {"threshold": 0.25},
        ["label_metrics", "mean_average_precision", "average_precisions", "per_class"],
    ),
    Kind(
        "captions",
        "written_captions",
        "captioner",
        {"beam": 1},
        {"split": "val"},
        ["cider_d", "summarize", "caption_intervals", "mean_interval"],
    ),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request) -> Kind:
    """A page, in a folder in which everything but the page was made."""
    request.getfixturevalue(f"scored_{request.param.name}")
    return request.param


def test_two_runs_give_the_same_bytes_and_inspect_knows_the_page(kind):
    page = Path(f"report/{kind.name}.html")
    assert invoke(kind.page).exit_code == 0
    first = page.read_bytes()
    invoke(kind.page)
    assert page.read_bytes() == first
    assert CliRunner().invoke(fne, ["inspect", str(page)]).stdout.startswith(f"{page}: ")


def test_nothing_is_searched_or_scored_for_a_page_and_its_scores_are_those_of_the_files(kind, monkeypatch):
    change_params(Path(), {kind.page: {"examples": 2}})
    monkeypatch.delattr("fne.describing.write.search")
    for name in kind.scorers:
        monkeypatch.delattr(f"fne.evaluation.score_{kind.name}.{name}")
    result = invoke(kind.page)
    assert result.exit_code == 0, result.output
    page = Path(f"report/{kind.name}.html").read_text()
    assert page.count("<article") == 2
    if kind.name == "captions":
        found = parse_metrics(kind.metrics.read_bytes())["test_full"]["captioner"]
        assert f"<strong>{found['CIDEr-D']:.3f}</strong>" in page


def test_scores_of_other_words_are_refused(kind):
    change_params(Path(), {f"write_{kind.name}": kind.another})
    invoke(f"write_{kind.name}")
    found = refusal(kind.page)
    assert found.startswith(f"{kind.intervals} was made from {kind.written} ")
    assert f"but annotations/{kind.name}.jsonl holds {kind.written} " in found
    pipeline = {"tags": "tagging", "captions": "captioning"}[kind.name]
    assert found.endswith(f"; run `dvc repro pipelines/{pipeline}/dvc.yaml`")


def test_metrics_and_intervals_of_different_runs_are_refused(kind):
    first = kind.metrics.read_bytes()
    change_params(Path(), {f"score_{kind.name}": kind.scored})
    invoke(f"score_{kind.name}")
    kind.metrics.write_bytes(first)
    assert f"{kind.metrics} and {kind.intervals} are of different runs; run" in refusal(kind.page)


def test_damaged_scores_are_refused(kind):
    for path in (kind.metrics, kind.intervals):
        intact = path.read_bytes()
        path.write_bytes(intact.replace(b"test_full", b"tost_full", 1))
        assert f"{path}: damaged (its content does not match its seal)" in refusal(kind.page)
        path.write_bytes(intact)


def test_intervals_of_something_else_are_refused(kind):
    content = parse_metrics(kind.intervals.read_bytes())
    own = {"tags": ["tags", "image_f1", "confusions"], "captions": ["per_image"]}[kind.name]
    for key in ("made_from", "test_full", "validation", *own):
        write_metrics(kind.intervals, {name: value for name, value in content.items() if name != key})
        found = refusal(kind.page)
        assert f"not the scores of a {kind.model} (KeyError('{key}')); run `dvc repro" in found


def test_a_history_of_another_model_is_refused(kind):
    shutil.rmtree(".fne")
    model = f"models/{kind.model}.safetensors"
    shutil.move(model, "other")
    change_params(Path(), {f"train_{kind.model}": {"seed": 1}})
    assert invoke(f"train_{kind.model}").exit_code == 0
    shutil.move("other", model)
    assert f"models/{kind.model}_history was made from {kind.model} " in refusal(kind.page)
