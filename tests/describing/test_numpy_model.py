import subprocess
import sys

import numpy as np
import pytest
import torch

from fne.core.errors import InputError
from fne.describing import numpy_model, recurrent_cells
from fne.describing.beam import search
from fne.describing.concept_head import HINT_SUMS
from fne.describing.concept_head import ROWS as KINDS
from fne.describing.injections import INJECTIONS
from fne.describing.model import CONDITIONS
from fne.describing.numpy_model import ArrayDescriber, beam_search, greedy_without_repeats, sigmoid
from tests.describing.test_model import ROWS, describer


def twin(made):
    weights = {name: value.numpy() for name, value in made.state_dict().items()}
    return ArrayDescriber(made.shape.__dict__, weights)


def test_it_has_all_cells_and_imports_no_torch():
    assert numpy_model.CELLS.keys() == recurrent_cells.CELLS.keys()
    code = "import sys, fne.describing.numpy_model; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("cell", recurrent_cells.CELLS)
@pytest.mark.parametrize("inject", INJECTIONS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_it_writes_what_torch_writes(cell, inject, condition):
    made = describer(seed=len(cell) + len(inject), cell=cell, inject=inject, condition=condition)
    probabilities, told = twin(made).see(ROWS.numpy())
    with torch.no_grad():
        seen = made.see(ROWS)
    np.testing.assert_allclose(probabilities, seen.probabilities, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(told, made.condition(seen).detach(), rtol=1e-5, atol=1e-6)
    expected = search(made.decoder, made.condition(seen), beam=1, max_length=4, repeats=False)
    written = greedy_without_repeats(twin(made).decoder, told)
    assert [tuple(each) for each in written] == [found[0].words for found in expected]
    words = torch.tensor([3, 0, 1, 2, 4, 4, 1])
    ours, theirs = twin(made).decoder.begin(told), made.decoder.begin(torch.from_numpy(told))
    np.testing.assert_allclose(ours[0], theirs[0].detach(), rtol=1e-4, atol=1e-5)
    ours, theirs = twin(made).decoder.advance(ours[1], words), made.decoder.advance(theirs[1], words)
    np.testing.assert_allclose(ours[0], theirs[0].detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("setting", ["beam", "max_length"])
def test_settings_and_scores_that_make_no_sense_are_refused_as_in_torch(setting):
    found = twin(describer(seed=0))
    (condition, *_) = found.see(ROWS.numpy())[1]
    with pytest.raises(InputError, match=f"^beam search: {setting} is 0; it must be at least 1$"):
        beam_search(found.decoder, condition, **{"beam": 2, "max_length": 3} | {setting: 0})
    found.decoder._weights["output.bias"][1] = np.nan
    with pytest.raises(InputError, match="^beam search: the scores of output 1 are not numbers; "):
        beam_search(found.decoder, condition, beam=2, max_length=3)


def test_an_end_that_is_impossible_is_no_hypothesis():
    made = twin(describer(seed=0))
    (condition, *_) = made.see(ROWS.numpy())[1]
    biases = made.decoder._weights["output.bias"]
    biases[0] = -np.inf
    found = beam_search(made.decoder, condition, beam=400, max_length=2)
    assert all(np.isfinite(each.score) and not each.ended for each in found)
    assert len(found) == (len(biases) - 1) ** 2


@pytest.mark.parametrize("rows", KINDS)
def test_rows_are_scaled_alike(rows):
    made = describer(rows=rows)
    made.fit_rows(torch.arange(5.0), torch.tensor([1.0, 2, 0, 4, 5]))
    _, told = twin(describer(rows=rows, condition="embedding")).see(ROWS.numpy())
    probabilities, _ = twin(made).see(ROWS.numpy())
    with torch.no_grad():
        np.testing.assert_allclose(probabilities, made.see(ROWS).probabilities, rtol=1e-5, atol=1e-6)
    assert told.shape == (7, 5)


@pytest.mark.parametrize("hint_sum", HINT_SUMS)
def test_hints_are_read_alike(hint_sum):
    made = describer(hints=3, hint_hidden=2, hint_sum=hint_sum)
    hints = np.random.default_rng(0).integers(0, 2, (7, 3))
    with torch.no_grad():
        expected = made.see(ROWS, torch.from_numpy(hints).float()).probabilities
    np.testing.assert_allclose(twin(made).see(ROWS.numpy(), hints)[0], expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="reads hints"):
        twin(made).see(ROWS.numpy())


def test_parts_can_be_missing():
    assert twin(describer(outputs=0)).decoder is None
    probabilities, told = twin(describer(concepts=0, condition="embedding")).see(ROWS.numpy())
    assert probabilities is None
    assert told.shape == (7, 5)


def test_sigmoid_does_not_overflow():
    assert sigmoid(np.array([-1e4, 0, 1e4])).tolist() == [0, 0.5, 1]


@pytest.mark.parametrize("beam", [1, 2, 3, 7])
@pytest.mark.parametrize("length_power", [0.0, 0.7])
@pytest.mark.parametrize("cell", recurrent_cells.CELLS)
def test_its_beam_is_that_of_torch(cell, beam, length_power):
    made = describer(seed=beam, cell=cell, condition="embedding")
    generator = torch.Generator().manual_seed(beam)
    torch.nn.init.uniform_(made.decoder.output.weight, -2, 2, generator)
    conditions = torch.randn(20, ROWS.shape[1], generator=generator)
    choices = {"beam": beam, "max_length": 5, "end": 0, "never": [1], "length_power": length_power}
    expected = search(made.decoder, conditions, **choices)
    decoder = twin(made).decoder
    for condition, hypotheses in zip(conditions.numpy(), expected, strict=True):
        found = beam_search(decoder, condition, **choices)
        assert [each.words for each in found] == [each.words for each in hypotheses]
        assert [each.ended for each in found] == [each.ended for each in hypotheses]
        for one in ("log_probability", "score"):
            assert [getattr(each, one) for each in found] == pytest.approx(
                [getattr(each, one) for each in hypotheses], abs=1e-4
            )
