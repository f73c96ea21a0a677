"""Published folders: written from a project, carried away, checked, damaged, and taken into another project."""

import hashlib
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from fne.store.layout import Layer
from fne.store.rows import Rows, write_rows
from tests.support.commands import fne, refused

PUBLISH = ("publish", "features/activations", "features/embeddings", "--license", "cc-by-4.0", "--to")


@pytest.fixture
def project(finished, tmp_path, monkeypatch) -> Path:
    folder = shutil.copytree(finished, tmp_path / "project")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def published(project, tmp_path) -> Path:
    result = fne(*PUBLISH, tmp_path / "flickr")
    assert result.exit_code == 0, result.output
    return tmp_path / "flickr"


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_a_folder_has_the_shards_their_digests_and_nothing_of_the_data_set(project, published):
    found = files(published)
    for name in ("activations", "embeddings"):
        store = files(project / "features" / name)
        assert {file: content for file, content in found.items() if file.startswith(f"{name}/")} == {
            f"{name}/{file}": content for file, content in store.items()
        }
    listed = dict(reversed(line.split("  ")) for line in found.pop("SHA256SUMS").decode().splitlines())
    assert listed == {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}
    captions = [
        line
        for line in Path("data/captions.jsonl").read_text().splitlines()
        if "raw" in line or "caption" in line
    ]
    sentences = re.findall(r'"captions": \["([^"]+)"', "\n".join(captions))
    assert sentences
    assert not [each for each in sentences if any(each.encode() in content for content in found.values())]


def test_equal_stores_are_published_as_equal_bytes(published, tmp_path):
    assert fne(*PUBLISH, tmp_path / "again").exit_code == 0
    assert files(tmp_path / "again") == files(published)


def test_the_card_says_what_the_rows_are(published):
    text = (published / "README.md").read_text()
    _, head, body = text.split("---\n", 2)
    assert YAML(typ="safe").load(head)["license"] == "cc-by-4.0"
    for fact in (
        "alexnet",
        "untrained",
        "crops",
        "center",
        "24",
        Rows.open(published / "embeddings").artifact.digest[:16],
    ):
        assert fact in body, fact
    assert str(Path.cwd()) not in text


def test_a_license_in_words_is_a_name_for_the_hub(project, tmp_path):
    words = "For research: no 'redistribution'"
    assert fne("publish", "vectors/images", "--license", words, "--to", tmp_path / "x").exit_code == 0
    head = YAML(typ="safe").load((tmp_path / "x/README.md").read_text().split("---\n")[1])
    assert (head["license"], head["license_name"]) == ("other", words)


@pytest.mark.parametrize("store", ["activations", "embeddings"])
def test_the_lines_of_the_card_read_every_store_without_this_package(published, monkeypatch, store, capsys):
    monkeypatch.chdir(published)
    (lines,) = re.findall(r"```python\n(.*?)```", (published / "README.md").read_text(), flags=re.DOTALL)
    assert "fne" not in lines
    assert len(lines.splitlines()) <= 32
    names: dict = {}
    exec(lines.replace('Path("activations")', f'Path("{store}")'), names)
    rows = Rows.open(published / store)
    assert names["ids"] == rows.ids
    assert np.array_equal(names["rows"], rows.read(rows.ids))
    assert capsys.readouterr().out.startswith(f"({len(rows.ids)}, {rows.features})")


def test_a_folder_is_taken_into_a_project_with_its_origin(published, tmp_path, monkeypatch):
    (published / ".gitattributes").write_text("* lfs\n")  # a file of the Hub
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert fne("verify", published).output == "1 artifact verified, no faults\n"
    result = fne("import", published)
    assert result.exit_code == 0, result.output
    taken = Path("features/flickr")
    assert files(taken) == {
        name: content for name, content in files(published).items() if name != ".gitattributes"
    }
    assert (
        Rows.open(taken / "embeddings").artifact.lineage["activations"]["settings"]["backbone"] == "alexnet"
    )
    assert result.output.splitlines()[-3:] == [
        "next:",
        "  dvc add features/flickr",
        "  dvc exp run -S embed.source=features/flickr/activations",
    ]
    assert fne("verify", taken).exit_code == 0
    assert "a published folder, " in fne("inspect", taken).output
    assert "features/flickr: exists already" in refused("import", published)


def damage(folder: Path, kind: str) -> str:
    """Damage a folder, and return what its fault says."""
    shard, digests = sorted((folder / "activations").glob("shard-*"))[0], folder / "SHA256SUMS"
    lines = digests.read_text()
    match kind:
        case "changed byte":
            content = bytearray(shard.read_bytes())
            content[-1] ^= 1
            shard.write_bytes(bytes(content))
            return rf"{shard}: damaged: expected \w+…, found \w+…"
        case "changed card":
            (folder / "README.md").write_text("# free for all\n")
            return r"README.md: SHA256SUMS says \w+…, found \w+…"
        case "file more":
            (folder / "activations/photo.jpg").touch()
            return r"activations/photo.jpg: SHA256SUMS does not name it"
        case "file less":
            shard.unlink()
            return rf"{shard}: is missing"
        case "link":
            shard.rename(folder.parent / "elsewhere")
            shard.symlink_to(folder.parent / "elsewhere")
            return rf"{shard}: is a link"
        case "upwards":
            digests.write_text(f"{lines}{'0' * 64}  ../params.yaml\n")
        case "upwards below a store":
            digests.write_text(f"{lines}{'0' * 64}  activations/../../params.yaml\n")
        case "absolute":
            digests.write_text(f"{lines}{'0' * 64}  /etc/passwd\n")
        case "twice":
            digests.write_text(lines + lines.splitlines()[0] + "\n")
        case "nonsense":
            digests.write_bytes(b"\xff\x00\n" + lines.encode())
        case "empty":
            digests.write_text("")
            return r"SHA256SUMS: does not name README.md"
        case "a shard that no manifest names":
            foreign = folder / "activations/shard-0999.h5"
            shutil.copy(shard, foreign)
            digests.write_text(
                f"{lines}{hashlib.sha256(foreign.read_bytes()).hexdigest()}  activations/{foreign.name}\n"
            )
            return r"'shard-0999.h5' does not belong to the store"
        case "another manifest":
            manifest = folder / "activations/manifest.json"
            manifest.write_text(manifest.read_text().replace("shard-0000.h5", "../shard.h5"))
            return r"manifest.json: SHA256SUMS says"
    return r"SHA256SUMS: line \d+ .* names no file of such a folder"


@pytest.mark.parametrize(
    "kind",
    [
        "changed byte",
        "changed card",
        "file more",
        "file less",
        "link",
        "upwards",
        "upwards below a store",
        "absolute",
        "twice",
        "nonsense",
        "empty",
        "a shard that no manifest names",
        "another manifest",
    ],
)
def test_a_folder_that_is_not_what_its_digests_say_is_refused(published, tmp_path, monkeypatch, kind):
    told = damage(published, kind)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    for command in ("verify", "import"):
        result = fne(command, published)
        assert result.exit_code == 2
        lines = result.stderr.splitlines()
        assert any(re.search(told, line) for line in lines), result.stderr
        assert len(lines) == 1, result.stderr
    assert [*Path().rglob("*")] == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("features/activations", "--to", "features", "--license", "mit"), "features: exists already"),
        (
            ("features/activations", "--to", "vectors/images/x", "--license", "mit"),
            "'encode' writes this folder",
        ),
        (("nowhere", "--to", "x", "--license", "mit"), "nowhere: no row store"),
        (("empty", "--to", "x", "--license", "mit"), "empty: has no rows"),
        (
            ("features/activations", "mine/activations", "--to", "x", "--license", "mit"),
            "folder name 'activations'",
        ),
        (("bad name", "--to", "x", "--license", "mit"), "folder 'bad name' is not published"),
    ],
)
def test_what_cannot_be_published_is_refused(project, words, told):
    write_rows(Path("empty"), "activations", [Layer("a", 1)], "float32", [], {}, {})
    shutil.copytree("features/activations", "mine/activations")
    shutil.copytree("features/activations", "bad name")
    Path("dvc.yaml").write_text("stages:\n  encode:\n    cmd: x\n    outs:\n    - vectors/images\n")
    message = refused("publish", *words)
    assert told in message
    assert message.count("\n") == 1
    assert not Path("x").exists()


def test_a_damaged_store_is_not_published(project):
    shard = next(Path("features/activations").glob("shard-*"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    assert "damaged" in refused("publish", "features/activations", "--to", "x", "--license", "mit")
    assert not Path("x").exists()


def test_a_store_itself_and_a_folder_of_something_else_cannot_be_imported_as_published(project):
    assert "has no SHA256SUMS; a folder that `fne publish` wrote is expected" in refused(
        "import", "features/activations"
    )
