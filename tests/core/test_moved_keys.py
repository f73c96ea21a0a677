from fne.core.moved_keys import CLOSED_FORM, applies, flattened, moved_keys, put, upgraded


def test_a_section_of_an_earlier_version_is_read_with_the_keys_of_now():
    old = {"hardest": "candidate", "top_k": 3, "margin": 0.2}
    assert flattened(upgraded("train", old)) == {
        "caption_anchors": 1.0,
        "classifier_rate": 1.0,
        "gain_rate": 1.0,
        "image_anchors": 1.0,
        "image_class_weight": 0.0,
        "rank_weight": 1.0,
        "rectified": False,
        "text_class_weight": 0.0,
        "words_rate": 1.0,
        "keep": "best",
        "last_batch": "keep",
        "contrasts": "other_images",
        "text_encoders.gru.initial": "torch",
        "method": "steps",
        "rates": "equal",
        "start": "random",
        "reduce": "sum",
        "words": "learned",
        "margin": 0.2,
        "losses.max_hinge.hardest": "candidate",
        "losses.top_k_hinge.hardest": "candidate",
        "losses.top_k_hinge.k": 3,
    }
    assert old == {"hardest": "candidate", "top_k": 3, "margin": 0.2}


def test_a_section_of_now_stays():
    new = upgraded("train", {}) | {"keep": "last", "losses": {"max_hinge": {"hardest": "query"}}}
    assert upgraded("train", new) == new
    assert upgraded("embed", {"kind": "fne", "rows": "unit"}) == {"kind": "fne", "rows": "unit"}


def test_files_without_the_key_used_torchvisions_input_format():
    assert upgraded("extract", {"weights": "weights/random.yaml"})["input"] == "auto"
    assert upgraded("extract", {"weights": "mine.pth"})["input"] == "torchvision"
    assert upgraded("extract", {"weights": "mine.pth", "input": "caffe"})["input"] == "caffe"


def test_moved_keys_are_named_only_where_they_are_used():
    assert moved_keys("train", {"margin": 0.2}) == []
    assert moved_keys("train", {"top_k": 1}) == ["'top_k' is now 'train.losses.top_k_hinge.k'"]
    assert moved_keys("embed", {"top_k": 1}) == []


def test_a_nested_key_leaves_the_others_of_its_block():
    blocks = {"max_hinge": {"hardest": "query"}}
    content = {"losses": blocks}
    put(content, "losses.top_k_hinge.k", 2)
    assert content == {"losses": {"max_hinge": {"hardest": "query"}, "top_k_hinge": {"k": 2}}}
    assert blocks == {"max_hinge": {"hardest": "query"}}


def test_the_block_of_a_method_applies_where_it_is_the_method_or_the_start():
    key = "methods.cca.dim"
    assert applies(key, {"method": "cca", "start": "random"})
    assert applies(key, {"method": "steps", "start": "cca"})
    assert not applies(key, {"method": "steps", "start": "random"})
    assert not applies(key, {"method": "steps"})
    assert applies(key, {"method": "steps", "start": "auto"} | CLOSED_FORM)
    assert not applies(key, {"method": "steps", "start": "auto"} | CLOSED_FORM | {"text_encoder": "gru"})
