import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fne.features.discretize import discretize


@given(st.lists(st.floats(-3, 3), min_size=1))
def test_every_score_is_judged_as_the_paper_says(scores):
    expected = [1 if score > 0.15 else -1 if score < -0.25 else 0 for score in scores]
    assert discretize(np.array(scores), low=-0.25, high=0.15).tolist() == expected


def test_nan_is_an_error_not_an_ordinary_feature():
    with pytest.raises(ValueError, match="1 of 2 scores are NaN"):
        discretize(np.array([0.0, math.nan]), low=-0.25, high=0.15)
