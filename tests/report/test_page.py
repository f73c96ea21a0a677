"""Small things the page says."""

from fne.report.page import ancestors


def test_ancestors_stand_in_the_order_of_their_making_and_strangers_last():
    lineage = {name: {"digest": name, "settings": {}} for name in ("aaa", "model", "weights", "images")}
    assert [ancestor.name for ancestor in ancestors(lineage)] == ["images", "weights", "model", "aaa"]
