import re
from dataclasses import replace

import numpy as np
import pytest

from fne.describing.annotations import Written, WrittenSentence
from fne.evaluation.score_captions import score_captions
from fne.report.caption_page import MAIN, choose_examples, render_captions
from fne.report.frame import Frame
from fne.report.record import catalog_state
from fne.report.sources import History
from fne.store.catalog import Captioned

CAPTIONER = {
    "seed": 1,
    "condition": "concepts",
    "learns": ["separately", "jointly"],
    "learning_rate": [0.001],
}
CAPTIONS = [
    ["a dog runs fast", "the dog"],
    ["two men play", "men"],
    ["a red car", "the car"],
    ["a cat", "cats"],
]
LINEAGE = {"captioner": {"digest": "0" * 64, "settings": CAPTIONER}}


def page_of(captions, written, examples=12, meteor="there is no `java`", concept="dog"):
    """Return the page about images with these human captions and these written ones."""
    ids = [f"{number}.jpg" for number in range(len(captions))]
    captioned = [Captioned(each, "test", tuple(own), ()) for each, own in zip(ids, captions, strict=True)]
    candidates = dict(zip(ids, written, strict=True))
    references = {each.id: list(each.captions) for each in captioned}
    training = {"t1": ["a dog runs", "a dog"], "t2": ["two men", "men play"]}
    nearest = np.zeros((len(ids), 1), dtype=int)
    scores = score_captions("test_full", candidates, references, training, nearest)
    scores = replace(scores, meteor_missing=meteor if isinstance(meteor, str) else None)
    for each, own in scores.metrics.items() if isinstance(meteor, dict) else []:
        own["METEOR"] = meteor[each]
    sentences = {}
    for each, text in candidates.items():
        both = (WrittenSentence(text, -1, -1, True), WrittenSentence(f"{text} too", -2, -2, True))
        sentences[each] = Written(each, both, {concept: 0.875})
    shown = choose_examples(scores, sentences, captioned, examples, 0)
    series = {MAIN: {1: 0.1, 2: 0.3}, "train/loss": {1: 5.0, 2: 4.0}, "train/phase": {1: 1, 2: 2}}
    history = History(series, main=MAIN, item="caption")
    frame = Frame(LINEAGE, captioned, "data/own", '{"x": 1}', {}, history)
    return render_captions(scores, shown, frame), shown


WRITTEN = ["a dog runs", "two men play", "a red bus", "a dog"]


def test_scores_are_shown_beside_the_baselines_and_words_that_no_person_wrote_are_marked():
    page, _ = page_of(CAPTIONS, WRITTEN)
    assert page == page_of(CAPTIONS, WRITTEN)[0]
    for title in ("The captioner", "Consensus of neighbors", "Nearest image", "One sentence"):
        assert title in page
    assert "METEOR was not computed: there is no `java`." in page
    assert "Images have 2 human captions; figures cannot be compared" in page
    assert "<dt>Data set</dt><dd>own</dd>" in page
    assert f"<dt>Catalog</dt><dd>state {catalog_state(LINEAGE)}</dd>" in page
    assert 'a red <u class="foreign">bus</u>' in page
    assert "a dog runs</bdi></h3>" in page
    found = re.search(r'<p class="statement">(.*?)</p>', page)[1]
    assert "the best baseline, “Consensus of neighbors” (95" in found


def test_meteor_has_a_column_if_it_was_computed():
    systems = ("captioner", "constant", "nearest", "consensus")
    page, _ = page_of(CAPTIONS, WRITTEN, meteor=dict.fromkeys(systems, 0.187))
    assert '<th scope="col">METEOR</th>' in page
    assert "0.187" in page


def test_examples_go_from_best_to_worst():
    _, shown = page_of(CAPTIONS, WRITTEN, examples=3)
    assert [each.outcome for each in shown] == ["best", "middle", "worst"]
    assert shown[0].score >= shown[1].score >= shown[2].score
    assert shown[0].concepts == [("dog", 87.5)]
    page, shown = page_of(CAPTIONS, WRITTEN, examples=0)
    assert shown == []
    assert 'id="examples"' not in page


def test_curves_have_phases_and_the_best_epoch():
    page, _ = page_of(CAPTIONS, ["", "two men", "a car", "a cat"])
    assert "(no words)" in page
    assert "Training loss per caption" in page
    assert "best: epoch 2" in page
    assert "<td>separately</td>" in page
    assert page.count('<line class="mark"') == 2 * 2


def test_a_collapsed_captioner_is_detected():
    page, _ = page_of(CAPTIONS, ["a man"] * 4)
    assert "<strong>Collapsed:</strong> the captioner ignores the images: 1 different caption" in page


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '" onerror="alert(1)', "</title><b>"])
def test_nothing_written_is_markup(text):
    page, _ = page_of([[text, "a dog"], ["b", text]], [text, "a dog"], concept=text)
    assert text not in page
    assert len(re.findall(r"<script>", page)) == 1  # the page's own
