import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fne.evaluation.read_sentences import SentenceReader
from fne.matching.word_removal import Word
from fne.report.explanations import Explanations, ShownWord, explain_gallery, glance, shown_words
from fne.report.gallery import choose_gallery
from fne.report.page import environment
from fne.store.catalog import read_captions
from fne.store.rows import Rows
from tests.stages.test_report import HOSTILE, Tags
from tests.support.imports import ROOT
from tests.support.report import read_run, write_run

SENTENCES = [
    ("a red dog", "the dog runs"),
    ("a red cat",),
    ("a blue bird",),
    ("a gray fish",),
    ("a green fox",),
]


class Reader:
    """Finds the last sentence best, and the drop of every word is its length."""

    def words(self, pairs):
        return {
            (image, text): [Word(each, len(each)) for each in text.split()]
            for image, text in dict.fromkeys(pairs)
        }

    def best(self, image, texts):
        return len(texts) - 1


def explained(folder, reader=None, top=5) -> tuple:
    write_run(folder, sentences=SENTENCES, top=top)
    evaluation = read_run(folder)
    captioned, _ = read_captions(folder / "captions.jsonl")
    return evaluation, *explain_gallery(choose_gallery(evaluation, 12, 0), evaluation, captioned, reader)


def test_words_of_wrong_sentences_that_stand_in_a_true_one_are_shared_unless_they_are_common(tmp_path):
    _, gallery, found = explained(tmp_path)
    assert any(each.candidates for each in gallery.images)
    shared = {key: [word.text for word in words if word.shared] for key, words in found.words.items()}
    # "red" stands in two of five images, "a" in all of them.
    assert shared == {}
    words = shown_words('A "Red" dog.', {"red", "dog"}, None)
    assert [(each.text, each.shared) for each in words] == [
        ("A", False), ('"', False), ("Red", True), ('"', False), ("dog", True), (".", False)
    ]  # fmt: skip


def test_without_a_true_sentence_among_the_best_the_best_true_one_is_shown_with_its_rank(tmp_path):
    _, gallery, found = explained(tmp_path, Reader(), top=1)
    missed = [each for each in gallery.images if each.rank > 1]
    assert missed
    for each in missed:
        shown = each.candidates[-1]
        own = SENTENCES[int(each.id.rpartition("-")[2])]
        assert (shown.id, shown.place, shown.true) == (f"{each.id}#{len(own) - 1}", each.rank, True)
        assert [word.drop for word in found.words[each.id, shown.id]] == [
            len(word) for word in own[-1].split()
        ]


def test_the_first_look_has_good_matches_and_the_surest_failure_of_different_images(tmp_path):
    evaluation, gallery, _ = explained(tmp_path)
    direction = evaluation.text_to_image
    seen = glance(gallery, direction, {}, dict.fromkeys(direction.pool_ids, "data:,"))
    assert [each.good for each in seen] == sorted((each.good for each in seen), reverse=True)
    assert {each.good for each in seen} == {True, False}
    assert len({each.id for each in seen}) == len(seen) <= 4
    assert glance(gallery, direction, {}, {}) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_words_of_a_hostile_sentence_are_text(text):
    words = [ShownWord(each, True, 0.5, 0.1) for each in text.split()]
    source = '{% import "words.html" as words %}{{ words.says(explained, "i", "s", text) }}'
    for each in (Explanations({("i", "s"): words}, True), Explanations()):
        page = Tags(environment().from_string(source).render(explained=each, text=text))
        assert {tag for tag, _ in page.tags} <= {"span"}
        assert all({*found} <= {"class", "style", "title"} for _, found in page.tags)


def test_a_reader_scores_sentences_as_their_stored_vectors_do(finished, monkeypatch):
    monkeypatch.chdir(finished)
    model, stores = Path("models/matching/model.safetensors"), Path("vectors")
    captions = Rows.open(stores / "captions")
    reader = SentenceReader.open(
        model, Path("captions/vocabulary.json"), stores / "images", captions.artifact
    )
    assert reader
    image = "red-circle.png"
    texts = {
        each: f"A {each.split('-')[0]} {each.split('-')[1][:-4]}."
        for each in reader.images.ids
        if "line" in each
    }
    texts = {each: text for each, text in texts.items() if f"{each}#0" in captions.ids}
    scores = captions.read([f"{each}#0" for each in texts]) @ reader.images.read([image])[0]
    assert reader.best(image, list(texts.values())) == int(np.argmax(scores))
    text = next(iter(texts.values()))
    told = reader.words([(image, text), (image, text)])[image, text]
    assert "".join(each.text for each in told) == text.replace(" ", "")
    assert any(abs(each.drop) > 0 for each in told)
    assert reader.words([]) == {}
    assert replace(reader).best(image, [text]) == 0


def test_the_default_model_reads_sentences_without_torch(finished):
    program = """
import sys
from pathlib import Path
import stages.report
from fne.evaluation.read_sentences import SentenceReader
from fne.store.rows import Rows
vectors = Path("vectors")
model, words = Path("models/matching/model.safetensors"), Path("captions/vocabulary.json")
reader = SentenceReader.open(model, words, vectors / "images", Rows.open(vectors / "captions").artifact)
print(len(reader.words([(reader.images.ids[0], "A red dog.")])), "torch" in sys.modules)
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=finished, env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("1 False\n", "")
