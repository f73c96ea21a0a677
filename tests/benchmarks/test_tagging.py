import pytest

from benchmarks.tagging import VARIANTS, add_tags, majority_words, table, tagger_settings


def image(name, split, *captions):
    return {"filename": name, "split": split, "sentences": [{"raw": caption} for caption in captions]}


def test_a_tag_is_a_word_that_three_captions_say_and_no_function_word():
    captions = ["A dog runs in the snow.", "the dog", "a brown dog in snow", "Dogs in the snow", "snow!"]
    assert majority_words(captions) == {"dog", "snow"}


def test_the_most_frequent_words_of_training_images_become_tags_of_all_images():
    dataset = {
        "images": [
            image("1", "train", *["a dog swims"] * 3),
            image("2", "train", *["a dog"] * 3),
            image("3", "val", *["a cat and a dog"] * 3),
            image("4", "test", *["cats"] * 5),
        ]
    }
    assert add_tags(dataset, 1) == ["dog"]
    assert [each["tags"] for each in dataset["images"]] == [["dog"], ["dog"], ["dog"], []]
    assert add_tags(dataset, 5) == ["dog", "swims"]


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_has_valid_settings(name):
    settings = tagger_settings(VARIANTS[name][1] | {"concept_head_rate": 0.1, "seed": 3})
    assert settings.seed == 3


def test_the_table_has_means_and_deviations_over_seeds():
    names = ("class_precision", "class_recall", "class_f1", "image_precision", "image_recall", "image_f1")
    rows = [dict.fromkeys([*names, "pooled_f1", "predicted_length"], value) for value in (1.0, 2.0)]
    lines = table({("a", "own length"): rows, ("b", "top 3"): [rows[0] | {"mAP": 5.0}]}).splitlines()
    assert lines[2] == f"| a | own length | – |{' 1.5 ± 0.7 |' * 8}"
    assert lines[3] == f"| b | top 3 | 5.0 |{' 1.0 |' * 8}"
