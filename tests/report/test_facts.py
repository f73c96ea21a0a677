import pytest

from fne.experiments.runs import split_digests
from fne.report import facts
from fne.report.facts import (
    LayerFractions,
    ancestors,
    counts,
    dataset_title,
    feature_source,
    history_unit,
    layer_fractions,
    phases,
)
from fne.report.sources import History
from fne.store.catalog import Captioned
from tests.support.report import FULL

VGG16 = {"backbone": "vgg16", "crops": "ten"}


def lineage_of(**settings):
    return {name: {"digest": name, "settings": each} for name, each in settings.items()}


def test_ancestors_are_in_pipeline_order_and_unknown_ones_last():
    lineage = lineage_of(aaa={}, model={}, weights={}, images={})
    assert [ancestor.name for ancestor in ancestors(lineage)] == ["images", "weights", "model", "aaa"]
    [ancestor] = ancestors(lineage_of(embeddings={"kind": "fne", "shares": {"fc7": {"minus": 0.1}}}))
    assert ancestor.settings == {"kind": "fne"}


def test_images_are_counted_per_split_and_sentences_in_total():
    records = [Captioned(str(number), "train", ("a", "b"), ()) for number in range(1200)]
    records += [Captioned("x", "test", ("c",), ()), Captioned("y", "gallery", (), ())]
    found = counts(records, lineage_of(tokens={"words": 12345}))
    assert list(found.values()) == ["1,200 train, 1 test, 1 gallery", "2,401", "12,344"]


def test_phases_have_their_own_settings_and_steps():
    model = {"loss": ["sum_hinge", "max_hinge"], "margin": [0.2], "learning_rate": [0.001, 0.0001]}
    history = History({"train/phase": {1: 1, 2: 1, 3: 2}})
    assert phases(lineage_of(model=model), history) == [
        {"loss": "sum_hinge", "margin": "0.2", "learning_rate": "0.001", "epochs": "1–2"},
        {"loss": "max_hinge", "margin": "0.2", "learning_rate": "0.0001", "epochs": "3–3"},
    ]


@pytest.mark.parametrize("model", [{}, {"loss": ["sum_hinge"], "margin": [0.2]}, {"loss": "sum_hinge"}])
def test_a_single_phase_gets_no_table(model):
    assert phases(lineage_of(model=model), History({})) == []


@pytest.mark.parametrize(("every", "unit"), [(0, "epoch"), (100, "validation")])
def test_a_step_of_the_history_is_an_epoch_unless_training_validates_more_often(every, unit):
    assert history_unit(lineage_of(model={"validate_every": every})) == unit


def test_layer_fractions_are_in_percent_and_in_layer_order():
    first, second = layer_fractions(FULL)
    assert first == LayerFractions("conv1_1", 25, 50, 25, 12.5)
    assert second == LayerFractions("fc7", 12.5, 75, 12.5, 0)
    assert layer_fractions(lineage_of(embeddings={"kind": "layer"})) == layer_fractions({}) == []


@pytest.mark.parametrize(
    ("activations", "weights", "expected"),
    [
        (VGG16, {"untrained": True}, "extracted with vgg16, ten crops, untrained weights"),
        (VGG16, {"name": "IMAGENET1K_V1"}, "extracted with vgg16, ten crops, IMAGENET1K_V1 weights"),
        ({"source": "conv.h5", "sha256": "a"}, {}, "imported from conv.h5"),
        (
            {"backbone": "vgg16", "imported": {"source": "conv.h5"}, "checked": {"photos": 16}},
            {"file": "vgg16.safetensors"},
            "imported from conv.h5; 16 photos agree with vgg16, ten crops, vgg16.safetensors weights",
        ),
        ({"joined": [{"store": "one"}, {"store": "two"}]}, {}, "joined from one and two"),
        ({"appended": [{"store": "one"}, {"store": "two"}]}, {}, "joined from one and two"),
        ({}, {}, "unknown"),
    ],
)
def test_the_source_of_the_features_is_named(activations, weights, expected):
    assert feature_source(lineage_of(activations=activations, weights=weights)) == expected


def test_a_data_set_is_named_after_its_folder_or_recognized_by_its_images(monkeypatch):
    captioned = [Captioned("a.jpg", "test", ("a dog",), ())]
    assert dataset_title("data/demo", captioned) == "demo"
    assert dataset_title("/data/coco/dataset_coco.json", captioned) == "coco/dataset_coco.json"
    known = {"one": {"title": "One", "ids": split_digests(captioned)}}
    monkeypatch.setattr(facts, "load", lambda name, paper: known)
    assert dataset_title("data/somewhere", captioned) == "One"
