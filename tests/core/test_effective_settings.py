from fne.core.effective_settings import applies, put


def test_a_nested_key_leaves_the_others_of_its_block():
    blocks = {"max_hinge": {"hardest": "query"}}
    content = {"losses": blocks}
    put(content, "losses.top_k_hinge.k", 2)
    assert content == {"losses": {"max_hinge": {"hardest": "query"}, "top_k_hinge": {"k": 2}}}
    assert blocks == {"max_hinge": {"hardest": "query"}}


def test_a_block_is_named_after_the_key_that_chooses_one_of_its_variants():
    assert applies("losses.max_hinge.hardest", {"loss": ["sum_hinge", "max_hinge"]})
    assert not applies("losses.max_hinge.hardest", {"loss": "sum_hinge", "other": "max_hinge"})
    assert applies("concept_sources.captions.count", {"concepts": "captions", "concept_loss": "tags"})
    assert not applies("concept_sources.captions.count", {"concepts": "tags", "concept_loss": "captions"})


def test_a_block_without_variants_applies():
    assert applies("columns.image", {"format": "table"})
