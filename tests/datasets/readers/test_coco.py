import json

import pytest

from fne.datasets.readers.coco import UNKNOWN_IMAGE, read_coco
from tests.support.refusals import refused


def write(root, name, images, captions):
    path = root / f"captions_{name}.json"
    annotations = [{"image_id": number, "caption": caption} for number, caption in captions]
    listed = [{"id": number, "file_name": file_name} for number, file_name in images]
    path.write_text(json.dumps({"images": listed, "annotations": annotations}))
    return path


def test_split_and_folder_come_from_the_file_name(tmp_path):
    train = write(tmp_path, "train2017", [(1, "1.jpg"), (2, "2.jpg")], [(2, "b"), (1, "a"), (2, "c")])
    val = write(tmp_path, "val2017", [(1, "1.jpg")], [(1, "d")])
    records = read_coco(tmp_path, [train, val]).records
    assert [(record.id, record.split, record.captions) for record in records] == [
        ("train2017/1.jpg", "train", ("a",)),
        ("train2017/2.jpg", "train", ("b", "c")),
        ("val2017/1.jpg", "val", ("d",)),
    ]


def write_instances(path, objects, categories):
    annotations = [{"image_id": image, "category_id": category} for image, category in objects]
    named = [{"id": number, "name": name} for number, name in categories.items()]
    path.write_text(json.dumps({"annotations": annotations, "categories": named}))


def test_tags_are_the_sorted_categories_of_the_objects(tmp_path):
    captions = write(tmp_path, "val2017", [(1, "1.jpg"), (2, "2.jpg")], [])
    instances = tmp_path / "instances_val2017.json"
    write_instances(instances, [(1, 3), (1, 2), (1, 3)], {2: "zebra", 3: "dog"})
    assert [record.tags for record in read_coco(tmp_path, [captions]).records] == [("dog", "zebra"), ()]
    write_instances(instances, [(1, 9)], {})
    with refused(f"{instances}: category 9 has no name; add it to 'categories'"):
        read_coco(tmp_path, [captions])


def test_captions_of_images_that_are_not_listed_are_counted_and_an_id_of_two_images_is_an_error(tmp_path):
    path = write(tmp_path, "val2017", [(1, "1.jpg")], [(1, "a"), (5, "b"), (5, "c")])
    assert read_coco(tmp_path, [path]).counts == {UNKNOWN_IMAGE: 2}
    path = write(tmp_path, "val2017", [(1, "1.jpg"), (1, "2.jpg")], [])
    with refused("image id 1 occurs twice; give every image a unique id"):
        read_coco(tmp_path, [path])


def test_the_case_of_the_file_name_does_not_matter(tmp_path):
    path = write(tmp_path, "Val2017", [(1, "./1.jpg")], [(1, "a")]).rename(tmp_path / "captions_Val2017.JSON")
    write_instances(tmp_path / "instances_Val2017.JSON", [(1, 2)], {2: "dog"})
    (record,) = read_coco(tmp_path, [path]).records
    assert (record.id, record.split, record.tags) == ("Val2017/1.jpg", "val", ("dog",))


@pytest.mark.parametrize("name", ["2017", "trainval2014", "mini"])
def test_a_file_name_without_a_split_is_an_error(tmp_path, name):
    path = write(tmp_path, name, [(1, "1.jpg")], [])
    with refused("the file name contains no split; rename it, for example to captions_train2017"):
        read_coco(tmp_path, [path])
