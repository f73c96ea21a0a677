import pytest

from fne.core.errors import InputError
from fne.datasets.table import IGNORED, read_table


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


def test_columns_of_other_names_are_counted_and_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",image,caption,image_id,caption_id,comment\n0,a.jpg,A dog,1,2,x\n")
    assert read_table(tmp_path, [path]).counts == {f"{IGNORED} ('image_id', 'caption_id', 'comment')": 3}
    path = tmp_path / "t.jsonl"
    path.write_text('{"image": "a.jpg", "a": 1, "b": 2}\n{"image": "a.jpg", "b": 1, "c": 2, "d": 3}\n')
    assert read_table(tmp_path, [path]).counts == {f"{IGNORED} ('a', 'b', 'c', …)": 4}


@pytest.mark.parametrize(
    ("name", "meant"),
    [("splits", "split"), ("spilt", "split"), ("captions", "caption"), ("iamge", "image"), ("tag", "tags")],
)
def test_a_column_that_looks_misspelt_is_an_error(tmp_path, name, meant):
    assert fault(tmp_path, "t.csv", f"image,caption,{name}\na.jpg,A dog,x\n") == (
        f"the header has the unknown name '{name}' (did you mean '{meant}'?); "
        "rename or remove it; known are image, caption, split, tags"
    )


def test_a_key_that_looks_misspelt_is_an_error_naming_its_first_line(tmp_path):
    text = '{"image": "a.jpg"}\n{"image": "b.jpg", "captoin": "A dog", "Split": "val"}\n' * 2
    assert fault(tmp_path, "t.jsonl", text) == (
        "line 2 has the unknown name 'captoin' (did you mean 'caption'?); "
        "line 2 has the unknown name 'Split' (did you mean 'split'?); "
        "rename or remove it; known are image, caption, split, tags, captions"
    )


def test_a_column_named_twice_is_an_error(tmp_path):
    assert fault(tmp_path, "t.csv", "image,caption,Caption ,,\na.jpg,A dog,Snow,,\n") == (
        "the column 'caption' stands twice; keep one of them"
    )


def test_a_caption_that_is_not_a_text_is_named_by_its_own_line(tmp_path):
    text = '{"image": "a.jpg", "caption": "A dog"}\n{"image": "a.jpg", "captions": [null, 3]}\n'
    assert fault(tmp_path, "t.jsonl", text) == (
        "line 2 'a.jpg' has a caption that is not a text but 3; fix these lines"
    )


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
        "line 3 puts 'a.jpg' in split 'test', line 2 in split 'train'; "
        "an image has one split: change one of the lines"
    )


def test_an_image_with_and_without_a_split_is_an_error(tmp_path):
    text = "image,caption,split\na.jpg,A dog,train\na.jpg,Snow, \n"
    assert fault(tmp_path, "t.csv", text) == (
        "line 3 puts 'a.jpg' in no split, line 2 in split 'train'; "
        "an image has one split: change one of the lines"
    )


def test_spaces_around_names_and_splits_do_not_count_and_a_blank_split_is_none(tmp_path):
    text = "image, caption, split\n a.jpg, A dog, train \n"
    assert [(each.id, each.split) for each in read(tmp_path, "t.csv", text)] == [("a.jpg", "train")]
    text = "image,caption,split\na.jpg,A dog,\nb.jpg,A cat, \n"
    assert [each.split for each in read(tmp_path, "t.csv", text)] == [None, None]
    text = '{"image": "a.jpg", "split": " val"}\n{"image": "b.jpg", "split": ""}\n'
    assert [each.split for each in read(tmp_path, "t.jsonl", text)] == ["val", None]


def test_rows_of_one_image_are_joined_however_its_name_is_spelled(tmp_path):
    (record,) = read(tmp_path, "t.csv", "image,caption\na/b.jpg,A dog\n./a//b.jpg,Snow\n")
    assert (record.id, record.captions) == ("a/b.jpg", ("A dog", "Snow"))


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
    text = 'image,caption\na.jpg,"A dog\nin snow"\n\nb.jpg,"A cat\nc.jpg,A cow\n'
    assert fault(tmp_path, "t.csv", text) == (
        "line 5: the record that begins here is not CSV: unexpected end of data; fix its quotes"
    )


def test_all_faulty_lines_of_jsonl_are_named(tmp_path):
    text = '{"image": 7}\n{"caption": "A dog"}\n{"image": "a.jpg", "captions": "A dog", "tags": [1]}\n'
    assert fault(tmp_path, "t.jsonl", text) == (
        "line 1.image: input should be a valid string, got 7; line 2 has no 'image'; "
        "line 3.captions: input should be a valid list, got 'A dog'; "
        "line 3.tags.0: input should be a valid string, got 1; fix the file"
    )


@pytest.mark.parametrize("line", ["null", "[]", "7"])
def test_a_line_that_is_no_object_is_an_error_in_plain_words(tmp_path, line):
    shown = "None" if line == "null" else line
    assert fault(tmp_path, "t.jsonl", line) == (
        f"line 1: input should be a JSON object, got {shown}; fix the file"
    )


def test_a_line_that_is_not_json_is_named(tmp_path):
    text = '{"image": "a.jpg"}\n{"image": NaN}\n'
    assert fault(tmp_path, "t.jsonl", text) == "line 2: not usable JSON: NaN is not a number; fix the file"


def test_text_that_is_not_utf8_is_an_error(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("image,caption\na.jpg,Café\n".encode("latin-1"))
    with pytest.raises(InputError, match="not valid UTF-8 at byte 23; save the file as UTF-8"):
        read_table(tmp_path, [path])
