import pytest

from fne.core.errors import InputError
from fne.datasets.table import read_table


def read(root, name, text):
    path = root / name
    path.write_text(text)
    return read_table(root, [path]).records


def fault(root, name, text):
    with pytest.raises(InputError) as caught:
        read(root, name, text)
    return caught.value.message.removeprefix(f"{root / name}: ")


def test_rows_of_one_image_belong_together(tmp_path):
    text = (
        "image,caption,split,tags\na.jpg,A dog,train,dog;snow\n"
        'b.jpg,"Hens, two",val,\na.jpg,Snow,train,cold\n'
    )
    first, second = read(tmp_path, "t.csv", text)
    assert (first.id, first.split, first.captions, first.tags) == (
        "a.jpg",
        "train",
        ("A dog", "Snow"),
        ("cold", "dog", "snow"),
    )
    assert (second.captions, second.tags, second.place) == (("Hens, two",), (), "line 3")


def test_columns_come_in_any_order_and_others_are_ignored(tmp_path):
    text = "\ufeffn, Caption ,IMAGE\r\n1,A dog,a.jpg\r\n"
    (record,) = read(tmp_path, "t.csv", text)
    assert (record.id, record.captions, record.split) == ("a.jpg", ("A dog",), None)


def test_a_very_long_caption_is_read(tmp_path):
    (record,) = read(tmp_path, "t.csv", f"image,caption\na.jpg,{'dog ' * 50_000}\n")
    assert len(record.captions[0]) == 200_000


def test_jsonl_may_hold_one_caption_or_many(tmp_path):
    text = (
        '{"image": "a.jpg", "caption": "A dog", "split": "train", "tags": ["dog"]}\n\n'
        '{"image": "a.jpg", "captions": ["Snow", null], "split": "train"}\n'
        '{"image": "b.jpg", "split": "val"}\n{"image": "c.jpg", "caption": null, "split": "val"}\n'
    )
    first, second, third = read(tmp_path, "t.jsonl", text)
    assert (first.captions, first.tags) == (("A dog", "Snow", None), ("dog",))
    assert (second.captions, third.captions, third.place) == ((), (None,), "line 5")


def test_a_line_separator_inside_a_caption_does_not_end_the_line(tmp_path):
    (record,) = read(tmp_path, "t.jsonl", '{"image": "a.jpg", "caption": "one\u2028two"}\n')
    assert record.captions == ("one\u2028two",)


def test_an_image_in_two_splits_is_an_error(tmp_path):
    text = "image,caption,split\na.jpg,A dog,train\na.jpg,Snow,test\n"
    assert fault(tmp_path, "t.csv", text) == (
        "line 3 puts 'a.jpg' in split 'test', line 2 in 'train'; "
        "an image has one split: change one of the lines"
    )


def test_a_missing_column_is_an_error_that_lists_the_columns(tmp_path):
    assert fault(tmp_path, "t.csv", "name;text\na.jpg;A dog\n") == (
        "no column 'image' and 'caption', found ['name;text']; "
        "the columns are image, caption, split, tags, separated by commas"
    )


def test_an_empty_file_is_an_error(tmp_path):
    assert fault(tmp_path, "t.csv", "").startswith("no column 'image' and 'caption', found []")


def test_all_rows_with_a_comma_too_many_are_named(tmp_path):
    text = "image,caption\na.jpg,Hens, two\nb.jpg,A dog\nc.jpg\n"
    assert fault(tmp_path, "t.csv", text) == (
        "line 2 has 3 fields, the header 2; line 4 has 1 fields, the header 2; "
        "quote captions that contain a comma"
    )


def test_a_quote_that_never_ends_is_an_error_and_not_one_giant_caption(tmp_path):
    text = 'image,caption\na.jpg,"A dog\nb.jpg,A cat\n'
    assert fault(tmp_path, "t.csv", text) == "line 3: unexpected end of data; fix the quotes of this line"


def test_all_faulty_lines_of_jsonl_are_named(tmp_path):
    text = '{"image": 7}\n{"caption": "A dog"}\n{"image": "a.jpg", "captions": "A dog", "tags": [1]}\n'
    assert fault(tmp_path, "t.jsonl", text) == (
        "line 1.image: input should be a valid string, got 7; line 2 has no 'image'; "
        "line 3.captions: input should be a valid list, got 'A dog'; "
        "line 3.tags.0: input should be a valid string, got 1; fix the file"
    )


def test_a_line_that_is_not_json_is_named(tmp_path):
    text = '{"image": "a.jpg"}\n{"image": NaN}\n'
    assert fault(tmp_path, "t.jsonl", text) == "line 2: not usable JSON: NaN is not a number; fix the file"


def test_text_that_is_not_utf8_is_an_error(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("image,caption\na.jpg,Café\n".encode("latin-1"))
    with pytest.raises(InputError, match="not valid UTF-8 at byte 23; save the file as UTF-8"):
        read_table(tmp_path, [path])
