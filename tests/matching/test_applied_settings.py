from fne.matching.settings import CLOSED_FORM
from fne.matching.applied_settings import applies


def test_the_block_of_a_method_applies_where_it_is_the_method_or_the_start():
    key = "cca.dim"
    assert applies(key, {"method": "cca", "start": "random"})
    assert applies(key, {"method": "steps", "start": "cca"})
    assert not applies(key, {"method": "steps", "start": "random"})
    assert not applies(key, {"method": "steps"})
    assert applies(key, {"method": "steps", "start": "auto"} | CLOSED_FORM)
    assert not applies(key, {"method": "steps", "start": "auto"} | CLOSED_FORM | {"text_encoder": "gru"})


def test_the_block_of_a_term_applies_with_a_weight_in_a_phase():
    key = "instance.dropout"
    assert applies(key, {"image_class_weight": [0.0, 1.0], "text_class_weight": 0.0})
    assert not applies(key, {"image_class_weight": [0.0], "text_class_weight": 0.0})


def test_other_blocks_apply_as_in_every_section():
    assert not applies("max_hinge.hardest", {"loss": ["sum_hinge"]})
