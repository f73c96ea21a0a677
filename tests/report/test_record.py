import json

import pytest

from fne.core.errors import InputError
from fne.report.record import page_artifact
from stages.report import main
from tests.support.report import read_run, write_run


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(write_run(tmp_path, examples=3, seed=7).arguments, standalone_mode=False)
    return tmp_path / "index.html"


def test_a_page_records_its_settings_and_what_it_was_made_from(page, tmp_path):
    artifact = page_artifact(page)
    assert artifact.settings == {"examples": 3, "seed": 7, "root": f"{tmp_path}/photos"}
    assert artifact.lineage["ranks"]["digest"] == read_run(tmp_path).artifact.digest
    assert {"retrieval.json", "intervals.json", "ranks.h5", "floor.json"} <= artifact.files.keys()


def test_a_page_of_an_earlier_version_has_no_record(page):
    page.write_text("<!DOCTYPE html><html></html>")
    assert page_artifact(page) is None


@pytest.mark.parametrize(
    "record", ["{", "[]", "{}", "[" * 99_999, json.dumps({"settings": 1, "made_from": {}})]
)
def test_a_damaged_record_is_one_line(page, record):
    escaped = record.replace('"', "&#34;")
    page.write_text(f'<meta name="fne-record" content="{escaped}">')
    with pytest.raises(
        InputError, match=r"index.html: its record is damaged \(|its files have no digests"
    ) as caught:
        page_artifact(page)
    assert "\n" not in caught.value.message
