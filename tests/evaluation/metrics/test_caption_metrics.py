import math
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fne.core.errors import InputError
from fne.evaluation.intervals import caption_intervals
from fne.evaluation.metrics.caption_metrics import (
    bleu,
    cider_d,
    collapse_warning,
    count_n_grams,
    rouge_l,
    summarize,
)
from tests.support.refusals import refused

# Three images; every score was computed with pycocoevalcap 1.2.
TINY = (
    {"1": "a dog runs", "2": "men play soccer in a field", "3": "a red car"},
    {
        "1": ["a dog runs in the snow", "a brown dog is running"],
        "2": ["two men play soccer", "men playing a ball game"],
        "3": ["a red car on the street", "the car is red"],
    },
)
# An empty candidate, one word, a repeated word, an unknown word, one reference, equal references.
ODD = (
    {"1": "", "2": "dog", "3": "the the the the the", "4": "zebra", "5": "a dog runs in the snow"},
    {
        "1": ["a dog"],
        "2": ["dog", "a dog"],
        "3": ["the dog on the mat", "the cat", "the cat"],
        "4": ["a horse with stripes"],
        "5": ["a dog runs in the snow"],
    },
)


def drawn_corpus(seed, images=12, vocabulary=25):
    """Random sentences; frequent words are drawn more often than rare ones."""
    generator = np.random.default_rng(seed)

    def sentence(shortest):
        numbers = vocabulary * generator.random(generator.integers(shortest, 14)) ** 2
        return " ".join(f"w{int(number)}" for number in numbers)

    candidates = {f"{image}": sentence(0) for image in range(images)}
    references = {
        f"{image}": [sentence(1) for _ in range(generator.integers(1, 6))] for image in range(images)
    }
    return candidates, references


def grams_of(words, n):
    return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


def plain_bleu(candidates, references):
    """BLEU of a corpus, word for word after its definition."""
    matches, ngrams_of_candidate, length, closest = [0] * 4, [0] * 4, 0, 0
    for image, candidate in candidates.items():
        words = candidate.split()
        others = [reference.split() for reference in references[image]]
        length += len(words)
        closest += sorted((abs(len(other) - len(words)), len(other)) for other in others)[0][1]
        for n in range(1, 5):
            for gram, count in grams_of(words, n).items():
                matches[n - 1] += min(count, max(grams_of(other, n)[gram] for other in others))
                ngrams_of_candidate[n - 1] += count
    ratio = (length + 1e-15) / (closest + 1e-9)
    scores, product = [], 1.0
    for n in range(1, 5):
        product *= (matches[n - 1] + 1e-15) / (ngrams_of_candidate[n - 1] + 1e-9)
        scores.append(product ** (1 / n) * (math.exp(1 - 1 / ratio) if ratio < 1 else 1))
    return scores


def plain_rouge(candidates, references):
    """ROUGE-L of each image with the usual table of lengths."""

    def common(one, other):
        table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
        for i, word in enumerate(one):
            for j, another in enumerate(other):
                table[i + 1][j + 1] = (
                    table[i][j] + 1 if word == another else max(table[i][j + 1], table[i + 1][j])
                )
        return table[-1][-1]

    scores = []
    for image, candidate in candidates.items():
        words = candidate.split()
        precisions = [
            common(words, other.split()) / len(words) if words else 0 for other in references[image]
        ]
        recalls = [common(words, other.split()) / len(other.split()) for other in references[image]]
        p, r = max(precisions), max(recalls)
        scores.append((1 + 1.2**2) * p * r / (r + 1.2**2 * p) if p and r else 0.0)
    return scores


def plain_cider(candidates, references):
    """CIDEr-D of each image with dictionaries of n-grams."""
    images = len(references)
    frequency = Counter(
        gram
        for sentences in references.values()
        for gram in {g for sentence in sentences for n in range(1, 5) for g in grams_of(sentence.split(), n)}
    )

    def vector(sentence, n):
        counts = grams_of(sentence.split(), n)
        return {g: c * (math.log(images) - math.log(max(1, frequency[g]))) for g, c in counts.items()}

    def bigrams(sentence):
        return max(0, len(sentence.split()) - 1)

    scores = []
    for image, candidate in candidates.items():
        total = 0.0
        for reference in references[image]:
            for n in range(1, 5):
                ours, theirs = vector(candidate, n), vector(reference, n)
                dot = sum(min(weight, theirs.get(g, 0.0)) * theirs.get(g, 0.0) for g, weight in ours.items())
                norms = math.sqrt(sum(w * w for w in ours.values())) * math.sqrt(
                    sum(w * w for w in theirs.values())
                )
                delta = bigrams(candidate) - bigrams(reference)
                total += (dot / norms if norms else 0.0) * math.exp(-(delta**2) / (2 * 6.0**2)) / 4
        scores.append(10 * total / len(references[image]))
    return scores


def test_scores_of_three_images_are_those_of_pycocoevalcap():
    score, per_image = cider_d(*TINY)
    assert score == pytest.approx(2.586265200567872, abs=1e-13)
    assert per_image == pytest.approx([2.488442197584, 2.097537581318, 3.172815822801], abs=1e-11)
    assert rouge_l(*TINY).score == pytest.approx(0.6267269794515745, abs=1e-14)
    assert rouge_l(*TINY).per_image == pytest.approx(
        [0.628865979381, 0.622448979592, 0.628865979381], abs=1e-11
    )
    expected = [0.7054014372912784, 0.6309302260749785, 0.5523106521566706, 8.303508744600906e-05]
    assert bleu(*TINY).score == pytest.approx(expected, abs=1e-14)
    assert bleu(*TINY).per_image[3] == pytest.approx(
        [0.016235674846, 6.8658905e-05, 0.022658709544], abs=1e-11
    )


def test_scores_of_odd_captions_are_those_of_pycocoevalcap():
    assert cider_d(*ODD).score == pytest.approx(2.4951343331991014, abs=1e-13)
    assert cider_d(*ODD).per_image[:4] == pytest.approx([0.0, 2.12169217488, 0.353979491115, 0.0], abs=1e-11)
    expected = [0.47126242953599584, 0.4221599082159594, 0.4107963049271074, 0.41020280345445903]
    assert bleu(*ODD).score == pytest.approx(expected, abs=1e-14)
    assert bleu(*ODD).per_image[0, :4] == pytest.approx([0.0, 0.999999998, 0.39999999984, 0.0], abs=1e-11)
    assert bleu(*ODD).per_image[3, :4] == pytest.approx([0.0, 3.1622777e-05, 2e-12, 2.8e-10], abs=1e-11)
    assert rouge_l(*ODD).score == pytest.approx(0.4907063197026022, abs=1e-14)


@pytest.mark.parametrize(
    ("seed", "cider", "bleus", "rouge"),
    [
        (0, 0.3033673403080977, [0.33497790950628076, 0.06590615024122558], 0.21056819121147),
        (1, 0.13922923657685096, [0.4344605316177825, 0.1555501626936675], 0.2735073255557945),
    ],
)
def test_scores_of_random_captions_are_those_of_pycocoevalcap(seed, cider, bleus, rouge):
    corpus = drawn_corpus(seed)
    assert cider_d(*corpus).score == pytest.approx(cider, abs=1e-14)
    assert bleu(*corpus).score[:2] == pytest.approx(bleus, abs=1e-14)
    assert rouge_l(*corpus).score == pytest.approx(rouge, abs=1e-14)


@pytest.mark.parametrize("seed", range(60))
def test_scores_are_those_of_plain_loops(seed):
    candidates, references = drawn_corpus(seed, images=2 + seed % 9, vocabulary=2 + seed % 30)
    assert bleu(candidates, references).score == pytest.approx(plain_bleu(candidates, references), abs=1e-12)
    assert rouge_l(candidates, references).per_image == pytest.approx(plain_rouge(candidates, references))
    assert cider_d(candidates, references).per_image == pytest.approx(plain_cider(candidates, references))


@pytest.mark.parametrize("seed", range(20))
def test_bleu_is_that_of_nltk_where_candidates_have_four_words(seed):
    from nltk.translate.bleu_score import corpus_bleu

    candidates, references = drawn_corpus(seed, images=60, vocabulary=4)
    candidates = {image: sentence for image, sentence in candidates.items() if len(sentence.split()) >= 4}
    references = {image: references[image] for image in candidates}
    score = bleu(candidates, references).score
    for n in range(1, 5):
        expected = corpus_bleu(
            [[sentence.split() for sentence in references[image]] for image in candidates],
            [sentence.split() for sentence in candidates.values()],
            weights=[1 / n] * n,
        )
        assert score[n - 1] == pytest.approx(expected, abs=1e-9)


def test_bleu_reproduces_the_published_counts_of_the_coco_demo():
    from fne.evaluation.metrics.caption_metrics import bleu_of_counts

    counts = np.array([5732, 2510, 1043, 423, 9893, 8893, 7893, 6893, 9893, 9855.0])
    assert np.round(bleu_of_counts(counts), 3).tolist() == [0.579, 0.404, 0.279, 0.191]


def test_the_order_of_images_and_of_references_does_not_matter():
    candidates, references = drawn_corpus(3)
    turned = {image: sentences[::-1] for image, sentences in reversed(references.items())}
    backwards = dict(reversed(candidates.items()))
    for metric in (bleu, rouge_l, cider_d):
        expected = np.asarray(metric(candidates, references).per_image)
        assert metric(backwards, turned).per_image[..., ::-1] == pytest.approx(expected)
        assert metric(candidates, turned).per_image == pytest.approx(expected)


def test_a_candidate_that_is_the_only_reference_scores_ten_in_cider():
    sentences = {"1": "a dog runs on grass", "2": "two men play a game", "3": "the red car is here"}
    assert cider_d(sentences, sentences).per_image == pytest.approx([10, 10, 10])


def test_a_candidate_may_be_a_list_of_one_as_in_pycocoevalcap():
    candidates, references = TINY
    listed = {image: [sentence] for image, sentence in candidates.items()}
    assert cider_d(listed, references).score == cider_d(candidates, references).score


def test_n_grams_never_cross_sentences():
    for n, grams in enumerate(count_n_grams([["a", "b"], [], ["b", "a", "b", "a", "b"], ["a"]]), start=1):
        totals = np.bincount(grams.sentence, weights=grams.count, minlength=4)
        assert totals.tolist() == [max(0, length - n + 1) for length in (2, 0, 5, 1)]


@pytest.mark.parametrize("metric", [bleu, rouge_l])
def test_empty_captions_score_zero(metric):
    score = metric({"1": "", "2": ""}, {"1": ["a dog"], "2": ["a cat", "two cats"]})
    assert np.allclose(score.score, 0, atol=1e-12)
    assert np.allclose(score.per_image, 0, atol=1e-12)


@pytest.mark.parametrize(
    ("candidate", "reference", "score"),
    [
        ("a  b c", "a b c d e", 0.6535714286),
        (" a b c ", "a b c d e", 0.6),
        ("", "", 1.0),
    ],
)
def test_rouge_cuts_at_single_blanks_as_pycocoevalcap_does(candidate, reference, score):
    """Computed with pycocoevalcap 1.2; two blanks have an empty word between them."""
    assert rouge_l({"1": candidate}, {"1": [reference]}).score == pytest.approx(score)


@pytest.mark.parametrize(
    ("candidate", "reference", "fault"),
    [
        (None, "a dog", "image '1' has a candidate that is not text: None"),
        ([3], "a dog", "image '1' has a candidate that is not text: 3"),
        (b"dog", "a dog", "image '1' has a candidate that is not text: b'dog'"),
        ("a dog", None, "image '1' has a reference that is not text: None"),
        ("a dog", [{"caption": "a"}], "image '1' has a reference that is not text: {'caption': 'a'}"),
        ("a dog", [["a", "dog"]], "image '1' has a reference that is not text: ['a', 'dog']"),
    ],
)
@pytest.mark.parametrize("metric", [bleu, rouge_l, cider_d])
def test_captions_that_are_no_text_are_refused(metric, candidate, reference, fault):
    with refused(fault):
        metric({"1": candidate, "2": "a cat"}, {"1": reference, "2": "a cat"})


def test_cider_of_empty_captions_and_empty_references_is_zero():
    assert cider_d({"1": "", "2": ""}, {"1": [""], "2": [""]}).per_image.tolist() == [0, 0]


def test_cider_of_one_image_is_refused_and_left_out_of_the_summary():
    one = ({"1": "a dog"}, {"1": ["a dog"]})
    with pytest.raises(InputError, match="CIDEr-D of one image \\('1'\\) is 0 by definition"):
        cider_d(*one)
    assert "CIDEr-D" not in summarize(*one)
    assert "CIDEr-D" not in caption_intervals(*one, samples=10)


@pytest.mark.parametrize(
    ("candidates", "references", "message"),
    [
        ({}, {}, "no captions to score"),
        ({"1": "a"}, {}, "image '1' has no references"),
        ({}, {"1": ["a"]}, "no captions to score"),
        ({"1": "a"}, {"1": ["a"], "2": ["b"]}, "image '2' has no candidate"),
        ({"1": "a"}, {"1": []}, "image '1' has no references"),
        ({"1": ["a", "b"]}, {"1": ["a"]}, "image '1' has 2 candidates"),
    ],
)
@pytest.mark.parametrize("metric", [bleu, rouge_l, cider_d, summarize, caption_intervals])
def test_images_without_candidate_or_references_are_refused(metric, candidates, references, message):
    with pytest.raises(InputError, match=message):
        metric(candidates, references)


def test_the_summary_says_how_captions_repeat():
    candidates = {"1": "a dog", "2": "a dog", "3": "the  red car", "4": ""}
    references = {"1": ["a dog runs"], "2": ["a dog"], "3": ["a car", "one red car here"], "4": ["a man"]}
    found = summarize(candidates, references, training=["the red car", "a dog runs"])
    assert found["length_ratio"] == pytest.approx(7 / (3 + 2 + 2 + 2))
    assert found["distinct_captions"] == 3 / 4
    assert found["found_in_training"] == 1 / 4
    assert found["words_used"] == 5
    assert found["empty_captions"] == 1
    assert found["BLEU-2"] == bleu(candidates, references).score[1]
    assert found["CIDEr-D"] == cider_d(candidates, references).score


def test_intervals_are_those_of_scoring_each_sample():
    candidates, references = drawn_corpus(5, images=6)
    per_image = cider_d(candidates, references).per_image
    generator = np.random.default_rng(0)
    drawn = {"BLEU-2": [], "ROUGE-L": [], "CIDEr-D": []}
    for sample in generator.integers(6, size=(40, 6)):
        chosen = {str(place): candidates[str(image)] for place, image in enumerate(sample)}
        others = {str(place): references[str(image)] for place, image in enumerate(sample)}
        drawn["BLEU-2"].append(bleu(chosen, others).score[1])
        drawn["ROUGE-L"].append(rouge_l(chosen, others).score)
        drawn["CIDEr-D"].append(per_image[sample].mean())
    found = caption_intervals(candidates, references, samples=40, seed=0)
    for name, values in drawn.items():
        assert found[name] == pytest.approx(np.percentile(values, [2.5, 97.5]))


def test_a_captioner_that_ignores_the_images_is_detected():
    same = {str(image): "a man" for image in range(300)}
    assert "1 different caption for 300 images, most often 'a man'" in collapse_warning(same)
    nearly = same | {"1": "a dog", "2": "a cat"}
    assert "3 different captions for 300 images" in collapse_warning(nearly)
    assert collapse_warning(nearly | {"3": "a bird"}) is None
    assert collapse_warning({"1": "a man"}) is None


def test_scores_of_real_captions_are_those_of_pycocoevalcap():
    """Flickr8k's development images: caption 0 against captions 1 to 4, with the Java tokenizer there."""
    from fne.text.caption_vocabulary import ptb_words

    folder = os.environ.get("FNE_FLICKR8K_TEXT")
    if folder is None:
        pytest.skip("FNE_FLICKR8K_TEXT does not name a folder with Flickr8k.token.txt")
    captions = {}
    for line in Path(folder, "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines():
        name, caption = line.split("\t")
        captions.setdefault(name.split("#")[0], []).append(" ".join(ptb_words(caption)))
    images = Path(folder, "Flickr_8k.devImages.txt").read_text(encoding="utf-8").split()
    corpus = {image: captions[image][0] for image in images}, {image: captions[image][1:] for image in images}
    assert cider_d(*corpus).score == pytest.approx(0.8036617887303764, abs=1e-13)
    assert rouge_l(*corpus).score == pytest.approx(0.49173408652537204, abs=1e-13)
    expected = [0.6275129488191882, 0.44342979576264063, 0.30708129327795985, 0.21160098501492874]
    assert bleu(*corpus).score == pytest.approx(expected, abs=1e-13)
