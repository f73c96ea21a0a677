import numpy as np

from fne.describing.annotations import Tagged
from fne.evaluation.score_tags import TagScores, tag_results
from fne.report.frame import Frame
from fne.report.record import catalog_state
from fne.report.sources import History
from fne.report.tag_page import choose_tag_examples, mean_positions, rare_before_frequent, render_tags
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
TAGGER = {"condition": "concepts", "learns": ["separately", "jointly"]}
LINEAGE = {
    "tagger": {"digest": "t" * 64, "settings": TAGGER},
    "weights": {"digest": "w" * 64, "settings": {"untrained": True}},
}


def results(answers=None):
    chosen = answers or {"path": PATH, "top_3": TRUE}
    scores = TagScores("test_full", NAMES, [2, 9], TRUE, chosen, PROBABILITIES)
    return tag_results(scores, [each.id for each in TAGGED])


def examples_of(found, tagged=TAGGED, count=4):
    true = {each.id: set(np.array(NAMES)[own].tolist()) for each, own in zip(tagged, TRUE, strict=True)}
    return choose_tag_examples(found, {each.id: each for each in tagged}, true, count, seed=0)


def page(found=None, tagged=TAGGED, count=4):
    found = found or results()
    examples = examples_of(found, tagged, count)
    history = History({"train/loss": {1: 3.0, 2: 1.0}, "val/f1_sum": {1: 5.0, 2: 9.0}}, main="val/f1_sum")
    captioned = [Captioned(each.id, "test", (), ("dog",)) for each in tagged]
    thumbnails = {"a.jpg": "data:image/jpeg;base64,AAAA"}
    frame = Frame(LINEAGE, captioned, "data/own", '{"a": 1}', thumbnails, history)
    return render_tags(found, {each.id: each for each in tagged}, examples, frame)


def test_the_order_is_compared_with_the_frequencies():
    assert rare_before_frequent(TAGGED, {"dog": 2, "sea": 9}) == 0
    assert rare_before_frequent(TAGGED, {"dog": 9, "sea": 2}) == 1
    assert rare_before_frequent(TAGGED, {"dog": 2, "sea": 2}) is None
    assert rare_before_frequent([Tagged("a", None, None, None)], {}) is None
    assert mean_positions([Tagged("a", None, None, None)]) == {}


def test_examples_reach_from_the_best_to_the_worst():
    examples = examples_of(results())
    found = " ".join(f"{each.id} {each.outcome}" for each in examples)
    assert found == "a.jpg hit d.jpg hit b.jpg far c.jpg far"
    assert examples[0].tags == [("sea", True), ("dog", True)]
    assert (examples[2].tags, examples[2].missed) == ([("dog", False)], ["sea"])
    assert examples[0].concepts == [("dog", 90.0), ("sea", 80.0)]
    assert examples_of(results(), count=0) == []
    assert 'id="examples"' not in page(count=0)


def test_the_page_shows_three_averages_and_escapes_tags():
    text = page()
    assert text == page()
    assert '<td data-value="1.5">1.5</td>' in text  # dog was written second and first
    assert '<circle class="dot"' in text
    assert '<tr><th scope="row"><bdi>dog</bdi></th><td><bdi>sea</bdi></td><td>1</td></tr>' in text
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
