import json

import pytest
from click.testing import CliRunner

from benchmarks.flickr8k_halves import halves, main
from fne.datasets.readers.karpathy import read_karpathy

IDS = [f"{number}.jpg" for number in range(12)]


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """Write a token file and two lists of images."""
    monkeypatch.chdir(tmp_path)
    tokens = "".join(f"{each}#{number}\tdog {number} of {each}\n" for each in IDS for number in range(2))
    (tmp_path / "token.txt").write_text(tokens)
    (tmp_path / "train.txt").write_text("\n".join(IDS[:7]) + "\n")
    (tmp_path / "dev.txt").write_text("\n".join(IDS[7:]) + "\n")


def run(*arguments):
    return CliRunner().invoke(main, ["token.txt", "train.txt", "dev.txt", "--to", "halves", *arguments])


def test_the_halves_are_disjoint_complete_and_in_the_given_order():
    first, second = halves(IDS, seed=3)
    assert (len(first), len(second)) == (6, 6)
    assert sorted(first + second) == sorted(IDS)
    assert first == [each for each in IDS if each in first]


def test_the_halves_depend_on_the_seed_and_not_on_the_order_of_the_ids():
    assert sorted(halves(IDS[::-1], seed=0)[0]) == sorted(halves(IDS, seed=0)[0])
    assert len({tuple(halves(IDS, seed)[0]) for seed in range(5)}) == 5


def test_the_data_set_is_in_karpathys_format_with_all_captions(tmp_path):
    result = run("--seed", "0")
    assert result.output == "halves/dataset.json: 7 train, 2 val, 3 test images\n"
    records = read_karpathy(tmp_path, [tmp_path / "halves/dataset.json"]).records
    val, test = halves(IDS[7:], seed=0)
    splits = {
        split: [each.id for each in records if each.split == split] for split in ("train", "val", "test")
    }
    assert splits == {"train": IDS[:7], "val": val, "test": test}
    assert all(each.captions == (f"dog 0 of {each.id}", f"dog 1 of {each.id}") for each in records)


def test_the_same_seed_writes_the_same_bytes(tmp_path):
    run()
    before = (tmp_path / "halves/dataset.json").read_bytes()
    run("--seed", "0")
    assert (tmp_path / "halves/dataset.json").read_bytes() == before
    run("--seed", "1")
    assert json.loads((tmp_path / "halves/dataset.json").read_bytes()) != json.loads(before)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("dev.txt", "7.jpg\nx.jpg\n", "'x.jpg' has no caption; name images of token.txt"),
        ("dev.txt", "7.jpg\n3.jpg\n", "'3.jpg' is also in train.txt; an image can have only one split"),
        ("dev.txt", "7.jpg\n7.jpg\n", "'7.jpg' is listed more than once; remove the repetitions"),
        ("dev.txt", "7.jpg\n", "1 of at least two images; two halves need one image each"),
        (
            "token.txt",
            "7.jpg a dog\n",
            "line 1 '7.jpg a dog' is not 'name.jpg#0<TAB>caption'; fix or remove these",
        ),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    result = run()
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {name}: {message}")
    assert not (tmp_path / "halves").exists()
