import pytest

from fne.datasets.readers.table import AUTOMATIC, IGNORED, RENAMED, read_table
from tests.support.refusals import refused


def read(root, name, text):
    path = root / name
    path.write_text(text)
    return read_table(root, [path]).records


def test_rows_of_one_image_are_joined_also_for_different_spellings_of_its_path(tmp_path):
    text = (
        "image,caption,split,tags\na/a.jpg,A dog,train,dog;snow\n"
        'b.jpg,"Hens, two",val,\n./a//a.jpg,Snow,train,cold\n'
    )
    first, second = read(tmp_path, "t.csv", text)
    assert (first.id, first.split, first.captions) == ("a/a.jpg", "train", ("A dog", "Snow"))
    assert first.tags == ("cold", "dog", "snow")
    assert (second.captions, second.tags, second.place) == (("Hens, two",), (), "line 3")


def test_columns_can_have_any_order_and_others_are_ignored(tmp_path):
    text = "\ufeffn, Caption ,IMAGE\r\n1,A dog,a.jpg\r\n"
    (record,) = read(tmp_path, "t.csv", text)
    assert (record.id, record.captions, record.split) == ("a.jpg", ("A dog",), None)


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
@pytest.mark.parametrize(("image", "caption"), [("filepath", "title"), ("file_name", "text")])
def test_columns_of_other_programs_are_recognized_whatever_separates_them(
    tmp_path, delimiter, image, caption
):
    text = "\n".join(delimiter.join(each) for each in [("n", image, caption), ("0", "a.jpg", "A dog")])
    path = tmp_path / "t.tsv"
    path.write_text(f"{text}\n")
    reading = read_table(tmp_path, [path])
    assert [(each.id, each.captions) for each in reading.records] == [("a.jpg", ("A dog",))]
    assert reading.counts == {
        f"{IGNORED} ('n')": 1,
        f"{RENAMED} ('{image}' as image, '{caption}' as caption)": 2,
    }


def test_keys_of_other_programs_are_recognized_in_json_lines(tmp_path):
    text = '{"file_name": "a.jpg", "text": "A dog"}\n{"file_name": "b.jpg", "text": "Hens"}\n'
    assert [each.captions for each in read(tmp_path, "t.jsonl", text)] == [("A dog",), ("Hens",)]
    text = '{"file_name": "a.jpg", "captions": ["A dog"], "title": "ignored"}\n'
    assert [each.captions for each in read(tmp_path, "t.jsonl", text)] == [("A dog",)]


def test_a_column_that_the_user_names_is_used_and_one_of_the_usual_name_is_not(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("image,caption,Long,photo\nthumb.jpg,Dog,A brown dog,a.jpg\n")
    columns = AUTOMATIC.model_copy(update={"image": "photo", "caption": "long"})
    reading = read_table(tmp_path, [path], columns)
    assert [(each.id, each.captions) for each in reading.records] == [("a.jpg", ("A brown dog",))]
    assert reading.counts == {
        f"{IGNORED} ('other image', 'other caption')": 2,
        f"{RENAMED} ('photo' as image, 'long' as caption)": 2,
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [("t.csv", "image,caption\na.jpg,A dog\n"), ("t.jsonl", '{"image": "a.jpg", "caption": "A dog"}\n')],
)
def test_a_named_column_that_is_missing_is_an_error(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    with refused(
        f"{path}: catalog.columns.caption is 'title', which is not a column; found 'image', 'caption'"
    ):
        read_table(tmp_path, [path], AUTOMATIC.model_copy(update={"caption": "title"}))


def test_columns_of_other_names_are_counted_and_listed(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",image,caption,image_id,caption_id,comment\n0,a.jpg,A dog,1,2,x\n")
    assert read_table(tmp_path, [path]).counts == {f"{IGNORED} ('image_id', 'caption_id', 'comment')": 3}
    path = tmp_path / "t.jsonl"
    path.write_text('{"image": "a.jpg", "a": 1, "b": 2}\n{"image": "a.jpg", "b": 1, "c": 2, "d": 3}\n')
    assert read_table(tmp_path, [path]).counts == {f"{IGNORED} ('a', 'b', 'c', …)": 4}


@pytest.mark.parametrize(
    ("name", "text", "length"),
    [
        ("t.csv", f"image,caption\na.jpg,{'dog ' * 50_000}\n", 200_000),
        ("t.jsonl", '{"image": "a.jpg", "caption": "one\u2028two"}\n', 7),
    ],
)
def test_a_very_long_caption_is_read_and_a_line_separator_does_not_end_the_line(tmp_path, name, text, length):
    (record,) = read(tmp_path, name, text)
    assert [len(each) for each in record.captions] == [length]


def test_a_row_of_jsonl_can_have_one_caption_or_several(tmp_path):
    text = (
        '{"image": "a.jpg", "caption": "A dog", "split": "train", "tags": ["dog"]}\n\n'
        '{"image": "a.jpg", "captions": ["Snow", null], "split": "train"}\n'
        '{"image": "b.jpg", "split": "val"}\n{"image": "c.jpg", "caption": null, "split": "val"}\n'
    )
    first, second, third = read(tmp_path, "t.jsonl", text)
    assert (first.captions, first.tags) == (("A dog", "Snow", None), ("dog",))
    assert (second.captions, third.captions, third.place) == ((), (None,), "line 5")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["no column 'image' and 'caption' or 'tags', found []"]),
        ("name;text\na.jpg;A dog\n",
         ["no column 'image', found ['name', 'text']; the columns are image, caption", "in catalog.columns"]),
        ("filepath,title,text\na.jpg,Dog,A dog\n",
         ["'title' and 'text' may each be the column 'caption'; set catalog.columns.caption"]),
        ("image,caption,Caption ,,\na.jpg,A dog,Snow,,\n", ["the column 'caption' occurs twice; keep only one"]),
        ("image,caption\na.jpg,Hens, two\nb.jpg,A dog\nc.jpg\n",
         ["line 2 has 3 fields, the header 2; line 4 has 1 fields, the header 2", "contain a comma"]),
        ("image;caption\na.jpg;Hens; two\n", ["line 2 has 3 fields", "quote", "contain a semicolon"]),
        ('image,caption\na.jpg,"A dog\nin snow"\n\nb.jpg,"A cat\nc.jpg,A cow\n',
         ["line 5: the record that starts here is not valid CSV: unexpected end of data; fix its quotes"]),
        ("image,caption,split\na.jpg,A dog,train\na.jpg,Snow,test\n",
         ["line 3 puts 'a.jpg' in split 'test', line 2 in split 'train'", "change one of the lines"]),
        ("image,caption,split\na.jpg,A dog,train\na.jpg,Snow, \n",
         ["line 3 puts 'a.jpg' in no split, line 2 in split 'train'", "change one of the lines"]),
    ],
)  # fmt: skip
def test_faults_of_a_table_are_errors_with_their_lines(tmp_path, text, parts):
    with refused(f"{tmp_path}/t.csv: ", *parts):
        read(tmp_path, "t.csv", text)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("splits", "split"), ("spilt", "split"), ("captions", "caption"), ("iamge", "image"), ("tag", "tags")],
)
def test_a_column_that_looks_misspelled_is_an_error(tmp_path, name, meant):
    with refused(f"the header has the unknown name '{name}' (did you mean '{meant}'?); rename or remove it"):
        read(tmp_path, "t.csv", f"image,caption,{name}\na.jpg,A dog,x\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"image": 7}\n{"caption": "A dog"}\n{"image": "a.jpg", "captions": "A dog", "tags": [1]}\n',
         "line 1.image: input should be a valid string, got 7; line 2 has no 'image'; line 3.captions: input should "
         "be a valid list, got 'A dog'; line 3.tags.0: input should be a valid string, got 1; fix the file"),
        ('{"image": "a.jpg", "user_tags": "b"}', "line 1.user_tags: input should be a valid list, got 'b'"),
        ('{"image": "a.jpg", "caption": "A dog"}\n{"image": "a.jpg", "captions": [null, 3]}\n',
         "line 2 'a.jpg' has a caption that is not a string: 3; fix these lines"),
        ("null", "line 1: input should be a JSON object, got None; fix the file"),
        ("[]", "line 1: input should be a JSON object, got []; fix the file"),
        ('{"image": "a.jpg"}\n{"image": NaN}\n', "line 2: invalid JSON: NaN is not a number; fix the file"),
        ('{"image": "a.jpg"}\n{"image": "b.jpg", "captoin": "A dog", "Split": "val"}\n' * 2,
         "line 2 has the unknown name 'captoin' (did you mean 'caption'?); "
         "line 2 has the unknown name 'Split' (did you mean 'split'?); rename or remove it"),
    ],
)  # fmt: skip
def test_faults_of_json_lines_are_errors_with_their_lines(tmp_path, text, message):
    with refused(f"{tmp_path}/t.jsonl: {message}"):
        read(tmp_path, "t.jsonl", text)


def test_spaces_around_names_and_splits_are_ignored_and_a_blank_split_is_none(tmp_path):
    text = "image, caption, split\n a.jpg, A dog, train \n"
    assert [(each.id, each.split) for each in read(tmp_path, "t.csv", text)] == [("a.jpg", "train")]
    text = "image,caption,split\na.jpg,A dog,\nb.jpg,A cat, \n"
    assert [each.split for each in read(tmp_path, "t.csv", text)] == [None, None]
    text = '{"image": "a.jpg", "split": " val"}\n{"image": "b.jpg", "split": ""}\n'
    assert [each.split for each in read(tmp_path, "t.jsonl", text)] == ["val", None]


def test_text_that_is_not_utf8_is_an_error(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("image,caption\na.jpg,Café\n".encode("latin-1"))
    with refused("not valid UTF-8 at byte 23; save the file as UTF-8"):
        read_table(tmp_path, [path])


def test_a_table_can_have_tags_and_no_captions(tmp_path):
    first, second = read(tmp_path, "t.csv", "image,tags,split\na.jpg,dog;snow,train\nb.jpg,,val\n")
    assert (first.captions, first.tags, first.split) == ((), ("dog", "snow"), "train")
    assert (second.captions, second.tags, second.split) == ((), (), "val")


def test_user_tags_are_a_column_of_their_own(tmp_path):
    rows = "a.jpg,A dog,dog,holiday; 2009\na.jpg,Snow,dog,me;2009\nb.jpg,A cat,,\n"
    first, second = read(tmp_path, "t.csv", f"image,caption,tags,user_tags\n{rows}")
    assert (first.tags, first.user_tags, second.user_tags) == (("dog",), ("2009", "holiday", "me"), ())
    line = '{"image": "a.jpg", "tags": ["dog;cat"], "user_tags": ["b", "a"]}\n'
    (record,) = read(tmp_path, "t.jsonl", line)
    assert (record.tags, record.user_tags) == (("dog;cat",), ("a", "b"))
