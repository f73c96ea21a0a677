import os
import shutil
import signal
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fne.core import stage as publishing
from fne.core.dvc import content_md5
from fne.core.files import replacing_folder, write_text
from fne.core.options import INPUT, OUTPUT, InputFiles, OutputFiles, params_option
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


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("0.2", "0.4", "train.margin changed from 0.2 to 0.4"),
        # A key that begins to apply is a change.
        ("loss: sum_hinge", "loss: max_hinge", "train.loss changed from 'sum_hinge' to 'max_hinge'"),
    ],
)
def test_a_setting_that_changes_meanwhile_leaves_the_outputs_unpublished_and_finished_work_kept(
    old, new, said
):
    Path("file").write_text("old")
    result = run(edit(old, new))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: params.yaml: {said}")
    assert result.stderr.endswith(AFTER)
    assert Path("file").read_text() == "old"
    assert not Path("folder").exists()
    assert Path("scratch").read_text() == "kept"
    assert hidden() == []


def test_a_stage_uses_the_parameters_of_its_start():
    assert run(edit("0.2", "0.4")).stdout == "0.2\n"


@pytest.mark.parametrize(("old", "new"), [("workers: 2", "workers: 4"), ("train:", "# hi\ntrain:")])
def test_settings_of_other_sections_and_comments_may_change(old, new):
    assert run(edit(old, new)).exit_code == 0


def test_all_keys_of_a_section_that_is_listed_decide():
    params = load_params(Path("params.yaml"))
    assert listed_settings(params, ["train.max_hinge"]) == {"train.max_hinge.hardest": "query"}
    assert listed_settings(params, ["train"]) == {
        "train.margin": 0.2,
        "train.loss": "sum_hinge",
        "train.max_hinge.hardest": "query",
    }


@pytest.mark.parametrize("content", ["train: [", "", "train: {}\n", None])
def test_a_parameter_file_that_is_broken_or_removed_meanwhile_is_one_line(content):
    params = Path("params.yaml")
    result = run(params.unlink if content is None else lambda: params.write_text(content))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert not Path("file").exists()
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
    assert result.exit_code == 2
    assert "folder: a folder with other files is there and is not replaced; name another" in result.stderr
    assert Path("folder/thesis.tex").read_text() == "mine"
    Path("dvc.yaml").write_text("stages: {make: {cmd: x, outs: [folder]}}")
    assert run(lambda: None).exit_code == 0


def run_on_files(meanwhile, *written):
    """Run a stage that reads one file of a folder, and writes some of the files that it may write."""

    @stage("train")
    @click.argument("store", type=InputFiles("a", "optional"))
    @click.argument("folder", type=OutputFiles("model", "extra"))
    @params_option
    def main(store: Path, folder: Path, params: Path) -> None:
        for name in written:
            write_text(folder / name, "new")
        meanwhile()

    return CliRunner().invoke(main, ["store", "folder"], catch_exceptions=False)


def test_of_a_folder_only_the_named_files_are_watched():
    assert run_on_files(lambda: Path("store/b").write_text("unrelated"), "model").exit_code == 0
    result = run_on_files(lambda: Path("store/a").write_text("longer"), "model")
    assert (result.exit_code, "store/a has changed" in result.stderr) == (2, True)
    result = run_on_files(lambda: Path("store/optional").touch(), "model")
    assert (result.exit_code, "store/optional was added" in result.stderr) == (2, True)


def test_files_of_a_folder_are_published_together_and_those_of_the_user_stay():
    Path("folder").mkdir()
    for name in ("model", "extra", "thesis.tex"):
        Path("folder", name).write_text("old")
    seen = []
    result = run_on_files(lambda: seen.append(Path("folder/model").read_text()), "model")
    assert (result.exit_code, seen) == (0, ["old"])
    found = {path.name: path.read_text() for path in Path("folder").iterdir()}
    assert found == {"model": "new", "thesis.tex": "old"}, (
        "the file that was not written is of an earlier run"
    )


@pytest.mark.parametrize("written", [("model", "extra"), ()])
def test_a_stage_that_fails_or_writes_nothing_leaves_the_files_of_a_folder(written):
    Path("folder").mkdir()
    Path("folder/extra").write_text("old")
    run_on_files(edit("0.2", "0.4") if written else lambda: None, *written)
    assert {path.name: path.read_text() for path in Path("folder").iterdir()} == {"extra": "old"}


def test_a_killed_stage_leaves_the_files_of_a_folder_as_they_were_and_the_next_one_cleans_up():
    Path("folder").mkdir()
    Path("folder/model").write_text("old")
    child = os.fork()
    if child == 0:
        run_on_files(lambda: os.kill(os.getpid(), signal.SIGKILL), "model", "extra")
    os.waitpid(child, 0)
    assert sorted(path.name for path in Path("folder").iterdir()) == [
        f".extra.{child}.tmp",
        f".model.{child}.tmp",
        "model",
    ]
    assert Path("folder/model").read_text() == "old"
    assert run_on_files(lambda: None, "model", "extra").exit_code == 0
    assert sorted(path.name for path in Path("folder").iterdir()) == ["extra", "model"]
