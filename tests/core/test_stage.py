import os
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fne.core import stage as publishing
from fne.core.dvc import content_md5
from fne.core.files import replacing_folder, write_text
from fne.core.options import INPUT, OUTPUT, params_option
from fne.core.settings import load_params
from fne.core.stage import file_states, input_digests, listed_settings, stage

PARAMS = (
    "train:\n  margin: 0.2\n  loss: sum_hinge\n  max_hinge:\n    hardest: query\n"
    "extract:\n  weights: weights.yaml\nruntime:\n  workers: 2\n"
)
AFTER = "while the stage ran; nothing was published; run `dvc repro` again, finished work is kept\n"


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(PARAMS)
    Path("weights.yaml").write_text("seed: 1\n")
    Path("store").mkdir()
    Path("store/a").write_text("one")
    Path("store/b").write_text("two")


def run(meanwhile):
    """Run a stage that writes a file, a folder and some scratch work, and call `meanwhile` before its end."""

    @stage("train", paths=["extract.weights"])
    @click.argument("store", type=INPUT)
    @click.argument("file", type=OUTPUT)
    @click.argument("folder", type=OUTPUT)
    @params_option
    def main(store: Path, file: Path, folder: Path, params: Path) -> None:
        write_text(file, "new")
        with replacing_folder(folder) as temporary:
            write_text(temporary / "part", "new")
        write_text(Path("scratch"), "kept")
        meanwhile()
        click.echo(load_params(params)["train"]["margin"])

    return CliRunner().invoke(main, ["store", "file", "folder"], catch_exceptions=False)


def edit(old, new):
    path = Path("params.yaml")
    return lambda: path.write_text(path.read_text().replace(old, new))


def hidden():
    return [path.name for path in Path().iterdir() if path.name.startswith(".")]


def test_outputs_have_no_names_before_the_stage_ends():
    seen = []
    result = run(lambda: seen.append((Path("file").exists(), Path("folder").exists())))
    assert (result.exit_code, seen) == (0, [(False, False)])
    assert Path("file").read_text() == Path("folder/part").read_text() == "new"
    assert hidden() == []


def test_a_setting_that_changes_meanwhile_leaves_the_outputs_unpublished_and_finished_work_kept():
    Path("file").write_text("old")
    result = run(edit("0.2", "0.4"))
    assert result.exit_code == 2
    assert result.stderr == f"Error: params.yaml: train.margin changed from 0.2 to 0.4, {AFTER}"
    assert Path("file").read_text() == "old"
    assert not Path("folder").exists()
    assert Path("scratch").read_text() == "kept"
    assert hidden() == []


def test_a_stage_uses_the_parameters_of_its_start():
    assert run(edit("0.2", "0.4")).stdout == "0.2\n"


@pytest.mark.parametrize(("old", "new"), [("workers: 2", "workers: 4"), ("train:", "# hi\ntrain:")])
def test_settings_of_the_speed_and_comments_may_change(old, new):
    assert run(edit(old, new)).exit_code == 0


def test_what_a_stage_lists_is_all_that_stands_in_the_file():
    params = load_params(Path("params.yaml"))
    block = {"train.max_hinge.hardest": "query"}
    assert listed_settings(params, ["train.max_hinge"]) == block
    assert listed_settings(params, ["train"]) == {"train.margin": 0.2, "train.loss": "sum_hinge"} | block


def test_a_key_that_begins_to_apply_is_a_change():
    result = run(edit("loss: sum_hinge", "loss: max_hinge"))
    assert result.exit_code == 2
    assert "train.loss changed from 'sum_hinge' to 'max_hinge'" in result.stderr


@pytest.mark.parametrize("content", ["train: [", "", "train: {}\n"])
def test_a_parameter_file_that_is_broken_meanwhile_is_one_line(content):
    result = run(lambda: Path("params.yaml").write_text(content))
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert not Path("file").exists()


def test_a_removed_parameter_file_is_one_line():
    result = run(Path("params.yaml").unlink)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert hidden() == []


def edit_in_place():
    state = Path("store/a").stat()
    Path("store/a").write_text("ONE")
    os.utime("store/a", ns=(state.st_atime_ns, state.st_mtime_ns))


def swap():
    Path("store/a").rename("store/c")
    Path("store/b").rename("store/a")
    Path("store/c").rename("store/b")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit_in_place, "store/a has changed (status change time "),
        (swap, "store/a was replaced by another file (inode "),
        (lambda: Path("store/a").write_text("longer"), "store/a has changed (size 3, now 6)"),
        (lambda: Path("store/a").unlink(), "store/a was removed"),
        (lambda: Path("store/new").touch(), "store/new was added"),
        (lambda: Path("weights.yaml").write_text("seed: 2\n"), "weights.yaml has changed (modification"),
    ],
)
def test_an_input_that_changes_meanwhile_is_refused(change, message):
    result = run(change)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.endswith(AFTER)
    assert not Path("file").exists()


def test_a_link_to_an_input_or_its_protection_is_no_change():
    def share():
        os.link("store/a", "elsewhere")
        Path("store/b").chmod(0o444)

    assert run(share).exit_code == 0


def test_many_changes_are_counted():
    Path("store/c").touch()
    result = run(
        lambda: [each.unlink() for each in Path("store").iterdir()] + [Path("weights.yaml").unlink()]
    )
    assert "; and 1 more changes, while the stage ran" in result.stderr


def test_code_that_changes_meanwhile_is_refused(monkeypatch):
    code = Path("module.py").resolve()
    code.write_text("")
    monkeypatch.setattr(publishing, "_CODE", file_states([code]))
    assert run(lambda: code.write_text("new")).exit_code == 0  # this process has not imported it
    shutil.rmtree("folder")
    monkeypatch.setitem(publishing.sys.modules, "module", type("module", (), {"__file__": str(code)}))
    result = run(lambda: code.write_text("newer"))
    assert (result.exit_code, "module.py has changed" in result.stderr) == (2, True)


def test_a_stage_that_fails_publishes_nothing():
    def fail():
        raise click.ClickException("no")

    assert run(fail).exit_code == 1
    assert not Path("file").exists()
    assert hidden() == []


def test_ctrl_c_publishes_nothing_and_says_that_the_same_command_continues():
    def interrupt() -> None:
        raise KeyboardInterrupt

    result = run(interrupt)
    assert result.exit_code == 1
    assert result.stderr == (
        "interrupted; finished work is kept, and the same command continues from there\n\nAborted!\n"
    )
    assert not Path("file").exists()


def test_a_stage_can_record_its_inputs_as_dvc_will():
    seen = []
    assert run(lambda: seen.append(input_digests())).exit_code == 0
    assert seen == [{"store": content_md5(Path("store")), "weights.yaml": content_md5(Path("weights.yaml"))}]
    assert input_digests() == {}


def test_a_folder_of_the_user_is_never_replaced_by_a_stage_that_is_called_by_hand():
    Path("folder").mkdir()
    Path("folder/thesis.tex").write_text("mine")
    result = run(lambda: None)
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: folder: a folder with other files is there and is not replaced; name another\n",
    )
    assert Path("folder/thesis.tex").read_text() == "mine"
    Path("dvc.yaml").write_text("stages: {make: {cmd: x, outs: [folder]}}")
    assert run(lambda: None).exit_code == 0
