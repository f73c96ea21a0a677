import pytest

from fne.core.errors import InputError
from fne.describing.concepts import (
    ORDERS,
    concept_source,
    concepts_from_tags,
    concepts_from_words,
    tag_sequences,
)
from fne.describing.settings import WordConcepts
from fne.store.catalog import Captioned

CAPTIONS = {"1": [["a", "dog", "dog"], ["a", "man"]], "2": [["the", "dog"], []], "3": [["a", "cat"]]}
TAGS = {"1": ["dog", "man", "dog"], "2": ["dog"], "3": [], "4": ["cat"]}


def test_concepts_are_the_most_frequent_words_and_ties_are_alphabetical():
    concepts = concepts_from_words(CAPTIONS, count=4)
    assert concepts.names == ["a", "dog", "cat", "man"]
    assert concepts.coverage == 8 / 9


def test_an_image_counts_once_however_often_its_captions_say_a_word():
    concepts = concepts_from_words(CAPTIONS, count=2)
    assert concepts.counts == [2, 2]
    assert concepts.frequencies.tolist() == [2 / 3, 2 / 3]
    assert concepts.density == 4 / 3


def test_labels_are_true_if_any_caption_has_the_word():
    concepts = concepts_from_words(CAPTIONS, count=3)
    words = [{word for sentence in sentences for word in sentence} for sentences in CAPTIONS.values()]
    assert concepts.labels(words).tolist() == [[True, True, False], [False, True, False], [True, False, True]]
    assert concepts.labels([["zebra"], []]).tolist() == [[False] * 3] * 2
    assert concepts.labels([]).shape == (0, 3)


def test_tags_are_counted_once_per_image_and_rare_ones_left_out():
    concepts = concepts_from_tags(TAGS)
    assert concepts.names == ["dog", "cat", "man"]
    assert concepts.counts == [2, 1, 1]
    assert concepts.images == 4
    assert concepts.left_out == []
    few = concepts_from_tags(TAGS, min_images=2)
    assert few.names == ["dog"]
    assert few.left_out == ["cat", "man"]
    assert few.coverage == 2 / 4


def test_rare_tags_come_first_with_ties_alphabetically():
    concepts = concepts_from_tags(TAGS)
    names = {name: [concepts.names[number] for number in order(concepts)] for name, order in ORDERS.items()}
    assert names == {"rare_first": ["cat", "man", "dog"], "frequent_first": ["dog", "cat", "man"]}


def test_sequences_have_each_tag_of_an_image_once_in_order():
    concepts = concepts_from_tags(TAGS)
    labels = concepts.labels([*TAGS.values(), ["unseen", "man"]])
    sequences = tag_sequences(labels, ORDERS["rare_first"](concepts))
    written = [[concepts.names[number] for number in sequence] for sequence in sequences]
    assert written == [["man", "dog"], ["dog"], [], ["cat"], ["man"]]


def test_concepts_that_say_little_are_named():
    concepts = concepts_from_words({"1": [["a", "b", "c"]], "2": [["a", "d", "e"]]}, count=1)
    coverage, always = concepts.warnings()
    assert coverage.startswith("the 1 concepts cover 33% of the occurrences")
    assert "raise train_tagger.words.count (for a captioner: train_captioner.words.count)" in coverage
    assert always == "every training image has 'a', which cannot tell images apart"
    assert concepts_from_tags(TAGS).warnings() == []


@pytest.mark.parametrize("text", ["a;b", "x,y", "line\nbreak", "\U0001f600", "<script>", "END", "t" * 500])
def test_any_text_can_be_a_tag(text):
    concepts = concepts_from_tags({"1": [text], "2": ["dog"]})
    assert concepts.labels([[text]]).sum() == 1


def test_nothing_to_take_concepts_from_is_an_error():
    for take in (lambda: concepts_from_words({}, 5), lambda: concepts_from_tags({})):
        with pytest.raises(InputError, match="there are no training images"):
            take()
    with pytest.raises(InputError, match="captions have no words"):
        concepts_from_words({"1": [[]]}, 5)
    with pytest.raises(InputError, match="no training image has tags"):
        concepts_from_tags({"1": []})
    lower = r"the most frequent, 'dog', has 2; lower train_tagger\.{0}\.min_images \(for a"
    with pytest.raises(InputError, match=lower.format("tags")):
        concepts_from_tags(TAGS, min_images=3)
    with pytest.raises(InputError, match=lower.format("words")):
        concepts_from_words({"1": [["dog"]], "2": [["dog", "sea"]]}, 5, min_images=3)


@pytest.mark.parametrize(
    ("stop_words", "expected"), [("keep", {"a", "dog", "is", "running"}), ("drop", {"dog", "running"})]
)
def test_words_without_content_are_tags_only_if_they_are_kept(stop_words, expected):
    source = concept_source("words", WordConcepts(count=10, min_images=2, stop_words=stop_words))
    records = [Captioned(n, "train", (f"A dog is running {n}.",), ()) for n in "xy"]
    assert set(source.choose(records).names) == expected
    assert source.names(records[0]) == expected | {"x"}  # a rare word stays true, so it counts against recall
