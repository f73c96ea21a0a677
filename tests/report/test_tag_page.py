import numpy as np
import pytest

from fne.describing.annotations import Tagged
from fne.evaluation.score_tags import TagScores
from fne.report.description_page import Frame
from fne.report.record import catalog_state
from fne.report.sources import History
from fne.report.tag_page import (
    choose_tag_examples,
    confusions,
    mean_positions,
    rare_before_frequent,
    render_tags,
    tag_rows,
)
from fne.store.catalog import Captioned

NAMES = ["dog", "sea", "<b>x</b>"]
TRUE = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=bool)
PATH = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]], dtype=bool)
TAGGED = [
    Tagged("a.jpg", ["sea", "dog"], ["dog"], [0.9, 0.8]),
    Tagged("b.jpg", ["dog"], ["dog"], [0.7, 0.2]),
    Tagged("c.jpg", ["sea"], ["sea"], [0.1, 0.6]),
    Tagged("d.jpg", [], ["sea"], [0.1, 0.2]),
]
PROBABILITIES = np.array([each.probabilities for each in TAGGED])
LINEAGE = {
    "tagger": {
        "digest": "t" * 64,
        "settings": {"condition": "concepts", "learns": ["separately", "jointly"]},
    },
    "weights": {"digest": "w" * 64, "settings": {"untrained": True}},
}


def results(answers=None):
    chosen = answers or {"path": PATH, "top_3": TRUE}
    return TagScores("test_full", NAMES, [2, 9], TRUE, chosen, PROBABILITIES)


def page(found=None, tagged=TAGGED, count=4):
    found = found or results()
    examples = choose_tag_examples(found, tagged, count, seed=0)
    history = History({"train/loss": {1: 3.0, 2: 1.0}, "val/f1_sum": {1: 5.0, 2: 9.0}}, main="val/f1_sum")
    captioned = [Captioned(each.id, "test", (), ("dog",)) for each in tagged]
    thumbnails = {"a.jpg": "data:image/jpeg;base64,AAAA"}
    frame = Frame("tagger", LINEAGE, history, captioned, thumbnails, "data/own", '{"a": 1}')
    return render_tags(found, tagged, examples, frame)


def test_every_tag_has_its_scores_frequency_and_place():
    dog, sea, strange = tag_rows(results(), TAGGED)
    assert (dog.name, dog.training, dog.true, dog.predicted) == ("dog", 2, 2, 2)
    assert (dog.precision, dog.recall, dog.f1) == (50, 50, 50)
    assert dog.position == 1.5
    assert (sea.position, sea.average_precision) == (1.0, pytest.approx(100 * (1 / 1 + 2 / 4) / 2, abs=20))
    assert (strange.training, strange.position, strange.average_precision) == (None, None, None)


def test_the_order_is_compared_with_the_frequencies():
    assert rare_before_frequent(TAGGED, {"dog": 2, "sea": 9}) == 0
    assert rare_before_frequent(TAGGED, {"dog": 9, "sea": 2}) == 1
    assert rare_before_frequent(TAGGED, {"dog": 2, "sea": 2}) is None
    assert rare_before_frequent([Tagged("a", None, None, None)], {}) is None
    assert mean_positions([Tagged("a", None, None, None)]) == {}


def test_a_wrong_tag_is_confused_with_the_one_that_was_missed():
    assert confusions(results()) == [("dog", "sea", 1), ("sea", "dog", 1)]


def test_examples_reach_from_the_best_to_the_worst():
    examples = choose_tag_examples(results(), TAGGED, 4, seed=0)
    assert [(each.id, each.outcome) for each in examples] == [
        ("a.jpg", "hit"),
        ("d.jpg", "hit"),
        ("b.jpg", "far"),
        ("c.jpg", "far"),
    ]
    assert examples[0].tags == [("sea", True), ("dog", True)]
    assert (examples[2].tags, examples[2].missed) == ([("dog", False)], ["sea"])
    assert examples[0].concepts == [("dog", 90.0), ("sea", 80.0)]
    assert choose_tag_examples(results(), TAGGED, 0, seed=0) == []


def test_the_page_shows_three_averages_and_escapes_tags():
    text = page()
    assert text == page()
    assert "C-P, C-R, C-F1" in text
    assert "Pooled" in text
    assert "Tags as written" in text
    assert "The 3 likeliest" in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text
    assert "<b>x</b>" not in text
    assert "Untrained weights" in text
    assert "not a concept" in text
    assert f"<dt>Catalog</dt><dd>state {catalog_state(LINEAGE)}</dd>" in text
    assert '<meta name="fne-record" content="{&#34;a&#34;: 1}">' in text
    assert text.endswith("</html>")


def test_a_tagger_without_written_tags_has_no_order():
    silent = [Tagged(each.id, None, each.top, each.probabilities) for each in TAGGED]
    text = page(results({"top_3": PATH}), silent)
    assert 'id="order"' not in text
    assert "The 3 likeliest" in text


def test_a_page_without_examples_has_no_gallery():
    assert 'id="examples"' not in page(count=0)
