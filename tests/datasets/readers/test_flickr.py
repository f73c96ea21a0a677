import pytest

from fne.core.errors import InputError
from fne.datasets.readers.flickr import UNLISTED, read_flickr

TOKENS = "a.jpg#0\tA dog .\na.jpg#1\tA black dog .\nb.jpg#0\tA cat\nc.jpg#0\tA cow\nd.jpg.1#0\tA hen\n"


def write(root, **lists):
    (root / "Flickr8k.token.txt").write_text(TOKENS)
    for name, text in lists.items():
        (root / f"Flickr_8k.{name}.txt").write_text(text)
    return root / "Flickr8k.token.txt"


def read(token):
    return read_flickr(token.parent, [token])


def test_images_are_those_of_the_lists_and_others_are_counted(tmp_path):
    reading = read(write(tmp_path, trainImages="a.jpg\n", devImages="b.jpg\n", testImages="c.jpg\r\n"))
    assert [(record.id, record.split, record.captions) for record in reading.records] == [
        ("a.jpg", "train", ("A dog .", "A black dog .")),
        ("b.jpg", "val", ("A cat",)),
        ("c.jpg", "test", ("A cow",)),
    ]
    assert reading.counts == {UNLISTED: 1}


def test_lists_are_optional(tmp_path):
    assert len(read(write(tmp_path, trainImages="a.jpg\n")).records) == 1


def test_the_short_names_of_flickr30k_are_read(tmp_path):
    token = tmp_path / "results_20130124.token"
    token.write_text(TOKENS)
    (tmp_path / "train.txt").write_text("a\n")
    (tmp_path / "val.txt").write_text("b\n")
    assert [(record.id, record.split) for record in read(token).records] == [
        ("a.jpg", "train"),
        ("b.jpg", "val"),
    ]


def test_a_listed_image_without_captions_is_kept(tmp_path):
    records = read(write(tmp_path, trainImages="a.jpg\nz.jpg\n")).records
    assert (records[1].id, records[1].captions) == ("z.jpg", ())


def test_an_image_in_two_lists_is_an_error(tmp_path):
    token = write(tmp_path, trainImages="a.jpg\nb.jpg\n", testImages="c.jpg\nb.jpg\n")
    with pytest.raises(InputError) as caught:
        read(token)
    assert caught.value.message == (
        f"{tmp_path}/Flickr_8k.testImages.txt: line 2 'b.jpg' is also in Flickr_8k.trainImages.txt; "
        "an image can have only one split; remove the other entry"
    )


def test_an_image_twice_in_one_list_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"line 3 'a.jpg' is also on line 1"):
        read(write(tmp_path, trainImages="a.jpg\nb.jpg\na.jpg\n"))


def test_all_malformed_lines_are_reported(tmp_path):
    token = write(tmp_path, trainImages="a.jpg\n")
    token.write_text("a.jpg#0\tA dog .\na.jpg A dog\n\nb.jpg#x\tA cat\n")
    with pytest.raises(InputError) as caught:
        read(token)
    assert caught.value.message == (
        f"{token}: line 2 'a.jpg A dog' is not 'name.jpg#0<TAB>caption'; "
        "line 4 'b.jpg#x\\tA cat' is not 'name.jpg#0<TAB>caption'; fix or remove these lines"
    )


def test_no_list_at_all_is_an_error_that_says_what_was_looked_for(tmp_path):
    with pytest.raises(InputError) as caught:
        read(write(tmp_path))
    assert caught.value.message == (
        f"{tmp_path}: no split list in the folder of the token file; looked for *trainImages.txt, train.txt, "
        "*devImages.txt, *valImages.txt, dev.txt, val.txt, *testImages.txt, test.txt; "
        "add trainImages.txt, devImages.txt and testImages.txt, with one image name per line"
    )


def test_different_spellings_of_a_path_are_the_same_image(tmp_path):
    token = tmp_path / "x.token.txt"
    token.write_text("./a.jpg#0\tA dog\n")
    (tmp_path / "TRAIN.TXT").write_text("a.jpg\n")
    assert [(each.id, each.captions) for each in read(token).records] == [("a.jpg", ("A dog",))]


def test_two_lists_for_one_split_are_an_error(tmp_path):
    with pytest.raises(
        InputError, match=r"several lists for split 'val': Flickr_8k.devImages.txt, Flickr_8k.val"
    ):
        read(write(tmp_path, devImages="a.jpg", valImages="b.jpg"))
