import csv
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.neighbors import NearestNeighbors

from examples.classify import CLASSIFIERS, heat_map, labels, main, neighbors
from fne.store.catalog import Captioned, write_captions
from fne.store.layout import Layer
from fne.store.rows import write_rows

IDS = [f"{number:02d}.jpg" for number in range(40)]
DOGS = np.arange(40) % 3 == 0


def catalog(splits=("train",) * 40):
    return [
        Captioned(each, split, ("x",), ("dog",) if dog else ())
        for each, dog, split in zip(IDS, DOGS, splits, strict=True)
    ]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """Write embeddings and a layer `fc7` that encode the tag of an image, and a layer `conv` of noise."""
    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    noise[:, 2:] = 0.1 * noise[:, 2:] + np.where(DOGS, 1, -1)[:, None]
    shown = np.where(DOGS[:, None], 1, -1).astype(np.int8).repeat(4, axis=1)
    for name, layers, dtype, values in (
        ("embeddings", [Layer("conv", 4)], "ternary", shown),
        ("activations", [Layer("conv", 2), Layer("fc7", 4)], "float32", noise),
    ):
        write_rows(Path("features", name), name, layers, dtype, [(0, IDS, values)], {}, {})
    write_captions(Path("data/captions.jsonl"), catalog())


def run(*arguments):
    return CliRunner().invoke(main, ["--repeats", "2", *arguments])


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_layers_that_encode_a_tag_classify_better_than_noise(classifier):
    result = run("--classifier", classifier, "--layer", "all")
    assert result.exit_code == 0, result.output
    header, _, first, mean, best = result.stdout.splitlines()
    assert header == "| tag | images | embedding | conv | fc7 | best |"
    name, images, full, conv, fc7, winner = [cell.strip() for cell in first.split("|")[1:-1]]
    assert (name, images, float(full), float(fc7), winner) == ("dog", "14", 100, 100, "embedding")
    assert float(conv) < 75
    assert mean == first.replace("dog | 14", "mean of 1 | ")
    assert best == "best for: embedding 1"


def test_average_precision_and_a_single_split_are_possible():
    write_captions(Path("data/captions.jsonl"), catalog(["train"] * 25 + ["val"] * 5 + ["test"] * 10))
    result = run("--score", "precision", "--split", "--layer", "conv", "--layer", "fc7")
    assert result.exit_code == 0, result.output
    cells = [cell.strip() for cell in result.stdout.splitlines()[2].split("|")[1:-1]]
    assert (cells[2], cells[4]) == ("100.0", "100.0")
    assert float(cells[3]) < 90


def test_the_vote_is_that_of_the_six_nearest_by_euclidean_distance():
    generator = np.random.default_rng(0)
    train, judged, has = generator.normal(size=(30, 3)), generator.normal(size=(5, 3)), np.arange(30) % 2 == 0
    _, nearest = NearestNeighbors(n_neighbors=6, algorithm="brute").fit(train).kneighbors(judged)
    scores, predicted = neighbors(train, has, judged, 0)
    np.testing.assert_allclose(scores, has[nearest].mean(axis=1))
    assert predicted.tolist() == (scores > 0.5).tolist()


def test_the_table_is_written_and_drawn(tmp_path):
    result = run("--layer", "all", "--output", "t.csv", "--plot", "t.svg")
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert [(row["tag"], row["images"], float(row["fc7"])) for row in rows] == [("dog", "14", 100.0)]
    picture = (tmp_path / "t.svg").read_text()
    assert picture.startswith("<svg ")
    assert "dog, fc7: 100.0" in picture


def test_names_are_escaped_in_the_picture():
    assert "&lt;b&gt;" in heat_map(["fc7"], {"<b>": [60.0]})


def test_another_layer_can_be_chosen_and_an_unknown_one_is_an_error():
    assert run("--layer", "conv", "--tags", "1").exit_code == 0
    assert "has no layer 'fc8'; it has conv, fc7" in run("--layer", "fc8").output


def test_images_without_tags_are_labeled_by_their_folder():
    assert labels(Captioned("dogs/1.jpg", "gallery", (), ())) == {"dogs"}
    assert labels(Captioned("1.jpg", "gallery", (), ("cat",))) == {"cat"}
    assert labels(Captioned("1.jpg", "gallery", (), ())) == set()


def test_too_few_images_are_an_error():
    said = "no tag or folder has at least 20 images with it and 20 without it; use fewer --folds"
    assert said in run("--folds", "20").output
    assert "no tag or folder has in the splits train and test" not in run("--split").stdout
    assert run("--split").exit_code == 1
