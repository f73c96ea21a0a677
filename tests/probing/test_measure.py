"""What is measured of layers, on rows made by hand: one layer knows the caption, one the label, one nothing."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import average_precision_score
from sklearn.neighbors import NearestNeighbors

from fne.core.errors import InputError
from fne.evaluation.metrics.recall import chance_of_rsum
from fne.matching.closed_form import CaptionedImages, fit
from fne.matching.settings import ClosedForm
from fne.probing.images import number_words
from fne.probing.measure import measure
from fne.probing.settings import Layers
from fne.store.catalog import Captioned
from fne.store.layout import Layer, view_layers
from fne.store.rows import Rows, write_rows
from fne.text.vocabulary import Tokenize

WORDS = 12  # words that say what an image shows
LAYERS = [Layer("words", 16), Layer("tag", 6), Layer("noise", 8), Layer("dead", 3)]
SETTINGS = Layers(min_count=1, neighbors=3, regularization=[0.1, 1.0])


@pytest.fixture
def made():
    """Sixty training and thirty validation images: rows, records, and the words of the captions."""
    random = np.random.default_rng(0)
    shown = random.integers(0, WORDS, (90, 2))
    tagged = np.arange(90) % 3 == 0
    words = random.standard_normal((WORDS, 16))
    parts = [
        np.maximum(words[shown].sum(axis=1) + 0.1 * random.standard_normal((90, 16)), 0),
        0.3 * random.standard_normal((90, 6)) + np.where(tagged, 1, -1)[:, None],
        random.standard_normal((90, 8)) + 1,
        np.zeros((90, 3)),
    ]
    records = [
        Captioned(
            f"{number:02d}.jpg", "train" if number < 60 else "val", ("x", "y"), ("dog",) if dog else ("cat",)
        )
        for number, dog in enumerate(tagged)
    ]
    captions = {
        each: [1 + int(shown[number, 0]), 1 + int(shown[number, 1]), 13][: 2 + turn]
        for number, record in enumerate(records)
        for turn, each in enumerate(record.caption_ids)
    }
    return np.concatenate(parts, axis=1).astype(np.float32), records, captions


def stored(folder, rows, layers=None, name="activations"):
    ids = [f"{number:02d}.jpg" for number in range(len(rows))]
    write_rows(folder / name, name, layers or LAYERS, "float32", [(0, ids, rows)], {}, {})
    return Rows.open(folder / name)


@pytest.fixture
def found(made, tmp_path):
    rows, records, sentences = made
    return measure(stored(tmp_path, rows), records, sentences, SETTINGS)


def by_name(found, key):
    return {layer["name"]: layer.get(key) for layer in found["layers"]}


def test_each_layer_is_best_at_what_it_knows(found):
    sums = {part["name"]: part["rsum"] for part in found["sets"]}
    assert sums["words"] > 1.5 * max(sums["tag"], sums["noise"])
    assert sums["dead"] is None
    assert found["chance"] == pytest.approx(chance_of_rsum(np.full(30, 2)), abs=0.01)
    assert by_name(found, "probe")["tag"] == 100
    assert by_name(found, "probe")["tag"] > by_name(found, "probe")["noise"]
    similar = by_name(found, "cka_text")
    assert similar["words"] > max(similar["tag"], similar["noise"])
    assert similar["dead"] is None
    assert found["label_metric"] == "top-1"  # every image has one of two tags


def test_dead_and_constant_features_and_sizes_are_counted(made, tmp_path):
    rows, records, sentences = made
    rows[:, 16:18] = 2.5
    rows[60:, 18] = 9  # varies, but not among the training images
    rows[:60, 18] = 0
    found = measure(stored(tmp_path, rows), records, sentences, SETTINGS)
    assert by_name(found, "dead") == {"words": 0, "tag": 1, "noise": 0, "dead": 3}
    assert by_name(found, "constant") == {"words": 0, "tag": 2, "noise": 0, "dead": 0}
    assert by_name(found, "bytes_float16")["words"] == 32
    assert by_name(found, "bytes_ternary")["words"] == 4


def unit(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def test_probes_and_neighbors_are_those_of_scikit_learn(made, tmp_path):
    rows, records, sentences = made
    records = [
        Captioned(each.id, each.split, each.captions, each.tags + ("big",) * (number % 2))
        for number, each in enumerate(records)
    ]
    found = measure(stored(tmp_path, rows), records, sentences, SETTINGS)
    assert found["label_metric"] == "mAP"
    names = ["big", "cat", "dog"]
    true = np.array([[name in record.tags for name in names] for record in records])
    for layer, place in (("tag", slice(16, 22)), ("noise", slice(22, 30))):
        scaled, raw = unit(rows[:, place]), rows[:, place]
        variance = scaled[:60].var(axis=0).sum() / raw.shape[1]
        regularization = by_name(found, "probe_regularization")[layer]
        probe = Ridge(alpha=60 * regularization * variance).fit(scaled[:60], true[:60].astype(float))
        for key, scores in {
            "probe": probe.predict(scaled[60:]),
            "cosine": votes(raw, true, "cosine"),
            "euclidean": votes(raw, true, "euclidean"),
        }.items():
            expected = 100 * np.mean([average_precision_score(true[60:, n], scores[:, n]) for n in range(3)])
            assert by_name(found, key)[layer] == pytest.approx(expected, abs=0.011)


def votes(rows, true, metric):
    near = NearestNeighbors(n_neighbors=3, metric=metric, algorithm="brute").fit(rows[:60])
    return true[:60][near.kneighbors(rows[60:], return_distance=False)].mean(axis=1)


def test_recall_is_that_of_the_closed_form_that_the_baseline_uses(made, tmp_path):
    rows, records, sentences = made
    own = stored(tmp_path, unit(rows[:, :16]), [Layer("words", 16)])
    settings = Layers(min_count=1, dim=8, text_dim=13, regularization=[0.5], neighbors=3)
    part = measure(own, records, sentences, settings)["sets"][0]
    training, validation = (
        CaptionedImages.of(
            [each.id for each in records if each.split == split],
            [[np.array(sentences[i]) for i in each.caption_ids] for each in records if each.split == split],
        )
        for split in ("train", "val")
    )
    form = ClosedForm(
        dim=8, text_dim=13, min_count=1, image_regularization=[0.5], text_regularization=[0.3], power=[1.5],
        choose_on="val",
    )  # fmt: skip
    alignment = fit(own, training, validation, 14, "cca", form)
    # One rank of 30 images or 60 captions may differ by rounding.
    assert part["rsum"] == pytest.approx(alignment.chosen.rsum, abs=100 / 30 + 0.01)


def test_few_images_give_what_many_columns_give(made, tmp_path):
    """Layers with more features than training images are turned into fewer columns without a loss."""
    rows, records, sentences = made
    random = np.random.default_rng(1)
    turned = np.linalg.qr(random.standard_normal((200, 16)))[0].T.astype(np.float32)
    wide = np.concatenate([rows[:, :16] @ turned, rows[:, 16:22]], axis=1)
    layers = [Layer("words", 200), Layer("tag", 6)]
    narrow = measure(stored(tmp_path, rows[:, :22], LAYERS[:2], "narrow"), records, sentences, SETTINGS)
    found = measure(stored(tmp_path, wide, layers, "wide"), records, sentences, SETTINGS)
    np.testing.assert_allclose(found["cka"], narrow["cka"], atol=1e-4)
    assert by_name(found, "mutual_neighbors") == by_name(narrow, "mutual_neighbors")
    assert by_name(found, "effective_rank") == pytest.approx(by_name(narrow, "effective_rank"), abs=0.01)


def test_without_captions_the_rest_is_measured(made, tmp_path):
    rows, records, _ = made
    silent = [Captioned(each.id, each.split, (), each.tags) for each in records]
    found = measure(stored(tmp_path, rows), silent, number_words(silent, Tokenize()), SETTINGS)
    assert {part["rsum"] for part in found["sets"]} == {None}
    assert found["agreement"] == {}
    assert by_name(found, "probe")["tag"] == 100


def test_of_a_collection_without_splits_a_drawn_fifth_judges(made, tmp_path):
    rows, records, _ = made
    gallery = [Captioned(each.id, "gallery", (), each.tags) for each in records]
    found = measure(stored(tmp_path, rows), gallery, {}, SETTINGS)
    assert found["images"] == {"train": 72, "val": 18}
    assert by_name(found, "probe")["tag"] == 100


def test_captions_are_cut_as_the_stage_tokenize_cuts_them():
    record = Captioned("a.jpg", "train", ("A dog. A cat", "the Dog"), ())
    first, second = number_words([record], Tokenize(longest=4)).values()
    assert (len(first), first[0], first[1]) == (4, first[3], second[1])
    assert 0 not in [*first, *second]  # the number of no word


def test_views_are_averaged(made, tmp_path):
    rows, records, sentences = made
    both = np.concatenate([rows - 0.5, rows + 0.5], axis=1)
    found = measure(stored(tmp_path, both, view_layers(LAYERS, 2), "views"), records, sentences, SETTINGS)
    plain = measure(stored(tmp_path, rows), records, sentences, SETTINGS)
    assert [part["name"] for part in found["sets"]] == [part["name"] for part in plain["sets"]]
    assert by_name(found, "cka_text")["words"] == pytest.approx(by_name(plain, "cka_text")["words"], abs=1e-3)


@pytest.mark.parametrize("kept", [3, 0])
def test_too_few_images_are_refused(made, tmp_path, kept):
    rows, records, sentences = made
    with pytest.raises(InputError, match=rf"{kept} training and 30 validation images have rows"):
        measure(stored(tmp_path, rows), [*records[:kept], *records[60:]], sentences, SETTINGS)


def test_a_value_that_is_not_finite_is_refused_with_its_place(made, tmp_path):
    rows, records, sentences = made
    rows[7, 18] = np.nan
    with pytest.raises(InputError, match=r"'07.jpg' has nan in layer 'tag'.*extract or import it again"):
        measure(stored(tmp_path, rows), records, sentences, SETTINGS)


def test_a_label_of_every_image_or_of_few_is_not_probed(made, tmp_path):
    rows, records, sentences = made
    rare = [Captioned(each.id, each.split, each.captions, ("all",)) for each in records]
    rare[0] = Captioned("00.jpg", "train", ("x", "y"), ("all", "once"))
    found = measure(stored(tmp_path, rows), rare, sentences, SETTINGS)
    assert (found["labels"], found["label_metric"]) == (0, None)
    assert by_name(found, "probe")["tag"] is None


def test_equal_inputs_give_equal_results(made, tmp_path, found):
    rows, records, sentences = made
    before = torch.get_num_threads()
    assert measure(stored(tmp_path, rows, name="again"), records, sentences, SETTINGS) == found
    assert torch.get_num_threads() == before
