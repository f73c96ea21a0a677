import os
from pathlib import Path

import pytest

from fne.core.code import code_digest
from fne.core.settings import read_yaml
from fne.projects import upgrade
from fne.projects.template import project_files
from fne.store.checksums import seal_metrics
from tests.support.commands import fne, refused


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch) -> Path:
    """A project without Git and DVC, which an upgrade does not need."""
    monkeypatch.chdir(tmp_path)
    for name, text in project_files(["tagging"], {}).items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    return tmp_path


def replace(name: str, *pairs: tuple[str, str]) -> None:
    text = Path(name).read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    Path(name).write_text(text)


def older(**digests: str) -> None:
    """Make the project one of an earlier version, which had other code for some stages."""
    replace(
        "code.yaml",
        *((f"{name}: '{code_digest(name)}'", f"{name}: '{digest}'") for name, digest in digests.items()),
    )
    replace("code.yaml", ("fne: ", "fne: 0.0."))


def test_without_a_new_version_nothing_changes():
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    lines = upgrade.upgrade_project(Path())
    assert [line.split()[0] for line in lines] == ["code.yaml:", "unchanged", "reused"]
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


def test_the_stages_with_other_code_are_named_and_their_digests_written():
    older(train="0" * 16, score_tags="1" * 16, finetune="2" * 16)
    lines = fne("upgrade").output.splitlines()
    assert lines[0].startswith("code.yaml: from fne 0.0.")
    # No pipeline of the project has a stage `finetune`.
    assert (
        lines[1]
        == "  run again   train, pipelines/tagging/dvc.yaml:score_tags; and stages whose inputs change then"
    )
    assert (
        "  reused      finished rows of images, training runs, sentences and tags in the scratch folder"
        in lines
    )
    assert read_yaml(Path("code.yaml"))["code"]["train"] == code_digest("train")


def test_finished_work_of_another_version_is_repeated():
    replace("code.yaml", ("training runs: '", "training runs: '0."))
    lines = upgrade.upgrade_project(Path())
    assert "  repeated    training runs: this version computes other results" in lines
    assert "  reused      finished rows of images, sentences and tags in the scratch folder" in lines


def test_settings_with_another_default_are_named_with_the_way_to_keep_them():
    record = {
        "params.yaml": {"train.margin": 0.7},
        "default": {"train.clip": 2.5, "train.gone": 1},
    }
    Path("metrics").mkdir()
    Path("metrics/settings.json").write_text(seal_metrics(record))
    assert [line for line in upgrade.upgrade_project(Path()) if line.startswith("  default")] == [
        "  default     train.clip: 2.5 is now 0.0; to keep it: -S '++train.clip=2.5'",
        "  default     train.gone: 1 does not apply any more",
    ]


def test_pipeline_files_are_replaced_unless_the_user_has_edited_them(monkeypatch):
    ours = Path("dvc.yaml").read_text()
    replace("pipelines/tagging/dvc.yaml", ("desc: Score", "desc: My score"))
    edited = Path("pipelines/tagging/dvc.yaml").read_text()
    made = upgrade.pipeline
    # A new version, with another text of each pipeline.
    monkeypatch.setattr(upgrade, "pipeline", lambda *arguments: made(*arguments) + "# new\n")
    assert upgrade.upgrade_project(Path())[-3:] == [
        "  replaced    dvc.yaml",
        "  replaced    pipelines/demo/dvc.yaml",
        "  edited      pipelines/tagging/dvc.yaml is yours; take over what is new in pipelines/tagging/dvc.yaml.new",
    ]
    assert Path("dvc.yaml").read_text() == ours + "# new\n"
    assert Path("pipelines/tagging/dvc.yaml").read_text() == edited
    # Another upgrade, without a new version, asks for nothing.
    assert "edited" not in "".join(upgrade.upgrade_project(Path()))


def test_a_damaged_record_is_written_again():
    Path("code.yaml").write_text("code: nonsense\n")
    assert "  unchanged   the code of 0 stages" in upgrade.upgrade_project(Path())
    assert read_yaml(Path("code.yaml"))["code"]["train"] == code_digest("train")


def test_a_clone_of_the_repository_is_told_what_to_do(tmp_path):
    os.chdir(tmp_path.parent)
    assert "`git pull` and `dvc repro`" in refused("upgrade")
