from fne.core.effective_settings import CLOSED_FORM, applies, put


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
