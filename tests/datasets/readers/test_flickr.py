import pytest

from fne.datasets.readers.flickr import UNLISTED, read_flickr
from tests.support.refusals import refused

TOKENS = "a.jpg#0\tA dog .\na.jpg#1\tA black dog .\nb.jpg#0\tA cat\nc.jpg#0\tA cow\nd.jpg.1#0\tA hen\n"


def write(root, **lists):
    (root / "Flickr8k.token.txt").write_text(TOKENS)
    for name, text in lists.items():
        (root / f"Flickr_8k.{name}.txt").write_text(text)
    return root / "Flickr8k.token.txt"


def read(token):
    return read_flickr(token.parent, [token])


def test_images_are_those_of_the_lists_and_others_are_counted(tmp_path):
    reading = read(write(tmp_path, trainImages="a.jpg\nz.jpg\n", devImages="b.jpg\n", testImages="c.jpg\r\n"))
    assert [(record.id, record.split, record.captions) for record in reading.records] == [
        ("a.jpg", "train", ("A dog .", "A black dog .")),
        ("z.jpg", "train", ()),
        ("b.jpg", "val", ("A cat",)),
        ("c.jpg", "test", ("A cow",)),
    ]
    assert reading.counts == {UNLISTED: 1}


def test_the_short_names_of_flickr30k_are_read(tmp_path):
    for name, text in (("results_20130124.token", TOKENS), ("train.txt", "a\n"), ("val.txt", "b\n")):
        (tmp_path / name).write_text(text)
    records = read(tmp_path / "results_20130124.token").records
    assert [(record.id, record.split) for record in records] == [("a.jpg", "train"), ("b.jpg", "val")]


@pytest.mark.parametrize(
    ("lists", "parts"),
    [
        ({"trainImages": "a.jpg\nb.jpg\n", "testImages": "c.jpg\nb.jpg\n"},
         ["Flickr_8k.testImages.txt: line 2 'b.jpg' is also in Flickr_8k.trainImages.txt", "remove the other"]),
        ({"trainImages": "a.jpg\nb.jpg\na.jpg\n"}, ["line 3 'a.jpg' is also on line 1"]),
        ({"devImages": "a.jpg", "valImages": "b.jpg"},
         ["several lists for split 'val': Flickr_8k.devImages.txt, Flickr_8k.val"]),
        ({}, ["no split list", "looked for *trainImages.txt, train.txt", "add trainImages.txt, devImages.txt"]),
    ],
)  # fmt: skip
def test_lists_that_are_missing_or_contradict_each_other_are_an_error(tmp_path, lists, parts):
    with refused(f"{tmp_path}", *parts):
        read(write(tmp_path, **lists))


def test_all_malformed_lines_are_reported(tmp_path):
    token = write(tmp_path, trainImages="a.jpg\n")
    token.write_text("a.jpg#0\tA dog .\na.jpg A dog\n\nb.jpg#x\tA cat\n")
    with refused(
        f"{token}: line 2 'a.jpg A dog' is not ", "; line 4 'b.jpg#x\\tA cat' is not ", "; fix or remove"
    ):
        read(token)


def test_different_spellings_of_a_path_are_the_same_image(tmp_path):
    token = tmp_path / "x.token.txt"
    token.write_text("./a.jpg#0\tA dog\n")
    (tmp_path / "TRAIN.TXT").write_text("a.jpg\n")
    assert [(each.id, each.captions) for each in read(token).records] == [("a.jpg", ("A dog",))]
