from fne.core.effective_settings import applies
from fne.core.settings import put


def test_a_nested_key_leaves_the_others_of_its_block():
    blocks = {"max_hinge": {"hardest": "query"}}
    content = {"losses": blocks}
    put(content, "top_k_hinge.k", 2)
    assert content == {"losses": {"max_hinge": {"hardest": "query"}, "top_k_hinge": {"k": 2}}}
    assert blocks == {"max_hinge": {"hardest": "query"}}


def test_a_block_is_named_after_the_key_that_chooses_one_of_its_variants():
    assert applies("max_hinge.hardest", {"loss": ["sum_hinge", "max_hinge"]})
    assert not applies("max_hinge.hardest", {"loss": "sum_hinge", "other": "max_hinge"})
    assert applies("captions.count", {"concepts": "captions", "concept_loss": "tags"})
    assert not applies("captions.count", {"concepts": "tags", "concept_loss": "captions"})


def test_a_block_without_variants_applies():
    assert applies("columns.image", {"format": "table"})


def test_a_section_that_no_epochs_switch_off_has_one_key_that_applies():
    assert [key for key in ("epochs", "seed") if applies(key, {"epochs": 0, "seed": 1})] == ["epochs"]
