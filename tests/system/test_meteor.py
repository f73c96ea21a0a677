"""METEOR with the program of its authors, and a real Java runtime."""

import os

import pytest

from fne.evaluation.metrics.meteor import find_program, meteor

REFERENCES = {
    "1": ["a dog runs in the snow", "a brown dog is running"],
    "2": ["two men play soccer", "men playing a ball game"],
    "3": ["a red car on the street", "the car is red"],
}
CANDIDATES = {"1": "a dog runs", "2": "men play soccer in a field", "3": "a red car"}


@pytest.fixture(scope="module")
def program():
    found = find_program()
    if isinstance(found, str):
        pytest.fail(found) if os.environ.get("CI") else pytest.skip(found)
    return found


def test_the_score_is_that_of_pycocoevalcap(program):
    from pycocoevalcap.meteor.meteor import Meteor

    theirs = Meteor()
    try:
        expected, _ = theirs.compute_score(REFERENCES, {image: [text] for image, text in CANDIDATES.items()})
    finally:
        theirs.meteor_p.stdin.close()
        theirs.meteor_p.stdout.close()
        theirs.meteor_p.stderr.close()
        theirs.meteor_p.wait()
    assert meteor(CANDIDATES, REFERENCES, program) == pytest.approx(expected, abs=1e-12)
