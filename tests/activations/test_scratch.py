import json

import numpy as np
import pytest

from fne.activations.processor import processor_name
from fne.activations.scratch import KIND, Scratch
from fne.store.journal import Journal

DIGESTS = ["aa" + "0" * 62, "aa" + "1" * 62, "bb" + "0" * 62]


def fill(scratch: Scratch, digests: list[str]) -> None:
    for journal, _, missing in scratch.claims(digests):
        for digest in missing:
            journal.append(digest, np.full(2, int(digest[2])))
        journal.unlock()


def test_finished_rows_are_found_by_the_digest_of_their_image(tmp_path):
    scratch = Scratch(tmp_path, {"crops": "ten"}, features=2)
    fill(scratch, DIGESTS[:2])
    assert {digest: row.tolist() for digest, row in scratch.rows(DIGESTS).items()} == {
        DIGESTS[0]: [0, 0],
        DIGESTS[1]: [1, 1],
    }


def test_every_kind_has_a_folder_of_its_own_that_says_what_it_is(tmp_path):
    ten, five = (Scratch(tmp_path, {"crops": crops}, features=2) for crops in ("ten", "five"))
    longer = Scratch(tmp_path, {"crops": "ten"}, features=3)
    again = Scratch(tmp_path, {"crops": "ten"}, features=2)
    assert len({ten.folder, five.folder, longer.folder}) == 3
    assert again.folder == ten.folder
    assert json.loads((ten.folder / KIND).read_text()) == {"crops": "ten", "features": 2}


def test_only_what_is_missing_is_claimed(tmp_path):
    scratch = Scratch(tmp_path, {}, features=2)
    fill(scratch, DIGESTS[:1])
    claims = list(scratch.claims(DIGESTS))
    assert [(wanted, missing) for _, wanted, missing in claims] == [
        (DIGESTS[:2], DIGESTS[1:2]),
        (DIGESTS[2:], DIGESTS[2:]),
    ]
    for journal, _, _ in claims:
        journal.unlock()


def test_what_another_process_is_computing_is_passed_over(tmp_path):
    ours, theirs = Scratch(tmp_path, {}, features=2), Scratch(tmp_path, {}, features=2)
    ((journal, _, _),) = theirs.claims(DIGESTS[:1])
    assert [wanted for _, wanted, _ in ours.claims(DIGESTS)] == [DIGESTS[2:]]
    journal.unlock()


def test_each_row_has_a_note_of_the_processor_that_computed_it(tmp_path):
    scratch = Scratch(tmp_path, {"device": "cpu"}, features=2)
    for journal, _, missing in scratch.claims(DIGESTS[:2]):
        for digest, processor in zip(missing, ("EPYC", None), strict=True):
            journal.append(digest, np.zeros(2), processor)
        journal.unlock()
    assert scratch.processors(DIGESTS) == {DIGESTS[0]: "EPYC", DIGESTS[1]: processor_name("cpu")}


def test_a_row_of_an_older_version_has_no_processor(tmp_path):
    scratch = Scratch(tmp_path, {}, features=2)
    journal = Journal(scratch.folder / "aa.rows", 2)
    assert journal.lock()
    journal.append(DIGESTS[0], np.zeros(2))
    journal.unlock()
    assert list(scratch.rows(DIGESTS)) == [DIGESTS[0]]
    assert scratch.processors(DIGESTS) == {}


def test_no_row_is_kept_without_its_note(tmp_path):
    """A writer killed between the two leaves a note without a row, and never the reverse."""
    scratch = Scratch(tmp_path, {}, features=2)
    ((journal, _, _),) = scratch.claims(DIGESTS[:1])
    with pytest.raises(ValueError, match="hex"):
        journal.append("no digest", np.zeros(2), "EPYC")
    journal.unlock()
    assert (scratch.folder / "aa.made").read_text() == "\nno digest EPYC\n"
    assert scratch.rows(DIGESTS) == {}
