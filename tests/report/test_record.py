import json

import pytest
from click.testing import CliRunner

from fne.core.errors import InputError
from fne.report.record import catalog_state, page_artifact, page_record, pages_of_other_catalogs
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
    assert {"retrieval.json", "intervals.json", "ranks.h5", "baseline.json"} <= artifact.files.keys()


def test_a_page_of_an_earlier_version_has_no_record(page):
    page.write_text("<!DOCTYPE html><html></html>")
    assert page_artifact(page) is None


def test_a_page_beside_the_report_is_named_if_it_is_about_another_catalog(page, tmp_path):
    lineage = page_artifact(page).lineage
    other = lineage | {"captions": {"digest": "0" * 64}}
    same = lineage | {"model": other["captions"]}
    assert catalog_state(other) != catalog_state(lineage) == catalog_state(same)
    records = {"same": page_record({}, lineage, {}), "tags": page_record({}, other, {}), "captions": "{"}
    for name, record in records.items():
        escaped = record.replace('"', "&#34;")
        (tmp_path / f"{name}.html").write_text(f'<meta name="fne-record" content="{escaped}">')
    (tmp_path / "compare.html").write_text("<!DOCTYPE html><html></html>")
    found = pages_of_other_catalogs(page, lineage)
    assert found == [tmp_path / "captions.html", tmp_path / "tags.html"]
    message = CliRunner().invoke(main, write_run(tmp_path, examples=3, seed=7).arguments).output
    assert f"captions.html, {tmp_path}/tags.html: made from another catalog than {page}; " in message


@pytest.mark.parametrize(
    "record", ["{", "[]", "{}", "[" * 99_999, json.dumps({"settings": 1, "made_from": {}})]
)
def test_a_damaged_record_is_one_line(page, record):
    escaped = record.replace('"', "&#34;")
    page.write_text(f'<meta name="fne-record" content="{escaped}">')
    with pytest.raises(InputError, match=r"index.html: its (record is damaged \(|files have no digests).*$"):
        page_artifact(page)
