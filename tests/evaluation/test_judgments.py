from importlib.metadata import PackageNotFoundError

import pytest

from fne.core.errors import InputError
from fne.evaluation.judgments import CROWD, EXPERTS, TABLE, read_judgments
from fne.store.catalog import Captioned
from tests.support.imports import ROOT
from tests.support.refusals import refused

CATALOG = [
    Captioned(f"{name}.jpg", split, (f"a {name}", f"the {name}"), ())
    for name, split in (("ant", "train"), ("bee", "test"), ("cat", "test"), ("dog", "val"))
]
SCORED = CATALOG[1:3]
EXPERT = "bee.jpg\tbee.jpg#0\t4\t4\t3\nbee.jpg\tcat.jpg#1\t1\t2\t1\n"
VOTES = "bee.jpg\tbee.jpg#0\t1\t3\t0\nbee.jpg\tcat.jpg#1\t0.333333\t1\t2\n"
GRADES = "image,caption,grade\nbee.jpg,bee.jpg#1,0.5\ncat.jpg,the bee,-2\n"


def read(tmp_path, text, scored=SCORED):
    path = tmp_path / "judged.txt"
    path.write_text(text)
    return read_judgments(path, CATALOG, scored)


@pytest.mark.parametrize(
    ("text", "kind", "captions", "grades", "judges", "acceptable"),
    [
        (EXPERT, EXPERTS, ["bee.jpg#0", "cat.jpg#1"], [11 / 3, 4 / 3], 3, 3.0),
        (VOTES, CROWD, ["bee.jpg#0", "cat.jpg#1"], [1, 0.333333], 0, 0.5),
        (GRADES, TABLE, ["bee.jpg#1", "bee.jpg#1"], [0.5, -2], 0, -0.75),
        (GRADES.replace(",", "\t"), TABLE, ["bee.jpg#1", "bee.jpg#1"], [0.5, -2], 0, -0.75),
        ("\ufeff" + GRADES, TABLE, ["bee.jpg#1", "bee.jpg#1"], [0.5, -2], 0, -0.75),
    ],
)
def test_each_format_is_recognized_by_its_content(tmp_path, text, kind, captions, grades, judges, acceptable):
    found = read(tmp_path, text)
    assert (found.kind, found.captions, found.left_out) == (kind, captions, [])
    assert found.grades == pytest.approx(grades)
    assert found.judges.shape == (2, judges)
    assert found.acceptable(0.0) == acceptable
    assert found.acceptable(2.5) == 2.5


def test_pairs_outside_the_split_are_left_out_with_the_reason(tmp_path):
    more = "ant.jpg\tbee.jpg#0\t1\t1\t1\nbee.jpg\tdog.jpg#0\t1\t1\t1\nyak.jpg\tbee.jpg#0\t1\t1\t1\n"
    more += "bee.jpg\tbee.jpg#7\t1\t1\t1\n"
    found = read(tmp_path, EXPERT + more)
    assert len(found.images) == 2
    assert found.left_out == [
        ("ant.jpg", "bee.jpg#0", "image is in train"),
        ("bee.jpg", "dog.jpg#0", "caption is in val"),
        ("yak.jpg", "bee.jpg#0", "image is not in the catalog"),
        ("bee.jpg", "bee.jpg#7", "caption is not in the catalog"),
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            EXPERT + "bee.jpg\tbee.jpg#1\t4\t5\t3\n",
            ["line 3: grades 4 5 3 are not whole numbers from 1 to 4", "fix"],
        ),
        (
            EXPERT + "bee.jpg\tbee.jpg#1\t4\t3.5\t3\n",
            ["line 3: grades 4 3.5 3 are not whole", "fix or remove"],
        ),
        (
            EXPERT + "bee.jpg\tbee.jpg#1\t4\n",
            ["line 3: 'bee.jpg\\tbee.jpg#1\\t4' is not image, x.jpg#0 and three"],
        ),
        (VOTES + "bee.jpg\tbee.jpg#1\t0.9\t1\t2\n", ["line 3: 0.9 is not the fraction of 1 yes and 2 no"]),
        (EXPERT + EXPERT, ["line 3: bee.jpg, bee.jpg#0 has a grade in line 1 already"]),
        (
            GRADES + "cat.jpg,a cat,high\n",
            ["line 4: 'cat.jpg,a cat,high' is not an image, a caption and a number"],
        ),
        (GRADES + "cat.jpg,a cat,nan\n", ["line 4: 'cat.jpg,a cat,nan' is not an image"]),
        ("", ["no judged pairs; use the formats of docs/data.md"]),
        (
            "dog.jpg\tdog.jpg#0\t4\t4\t4\n",
            ["none of its 1 pairs is in split 'test'", "1 are in 'val'; set evaluate.split to val"],
        ),
        (
            "yak.jpg\tyak.jpg#0\t4\t4\t4\n",
            ["none of its 1 pairs is in split 'test'", "must be those of the data set"],
        ),
    ],
)
def test_faults_are_named_with_their_line_and_what_to_do(tmp_path, text, parts):
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    lines = caught.value.message.splitlines()
    assert all(line.startswith(f"{tmp_path / 'judged.txt'}: ") for line in lines)
    assert all(part in caught.value.message for part in parts)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "package: other\nversion: 1\ntruth: eccv",
            "expected `package: eccv-caption`, its `version`, and `truth`",
        ),
        ("package: eccv-caption\nversion: 0.1.0\ntruth: all", "`truth`: eccv or cxc"),
    ],
)
def test_a_file_that_names_another_package_is_refused(tmp_path, text, fault):
    path = tmp_path / "named.yaml"
    path.write_text(text)
    with refused(str(path), fault):
        read_judgments(path, CATALOG, SCORED)


def test_a_missing_package_or_another_version_is_named(tmp_path, monkeypatch):
    path = ROOT / "pipelines/judgments/eccv.yaml"

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("fne.evaluation.judgments.version", missing)
    with refused(str(path), "needs eccv-caption; run `pip install -e '.[judgments]'`"):
        read_judgments(path, CATALOG, SCORED)
    monkeypatch.setattr("fne.evaluation.judgments.version", lambda name: "9.9")
    with refused(str(path), "needs eccv-caption 0.1.0, 9.9 is installed"):
        read_judgments(path, CATALOG, SCORED)
