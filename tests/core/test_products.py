import pytest
import torch
from torch import nn
from torch.nn import functional

from fne.core.products import Linear, linear, product, use_fast_linear


@pytest.mark.parametrize("shape", [(3,), (5, 3), (1, 3), (2, 4, 3), (0, 3)], ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_values_and_gradients_are_those_of_torch(shape, bias):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(shape, generator=generator, requires_grad=True)
    weight = torch.randn(7, 3, generator=generator, requires_grad=True)
    added = torch.randn(7, generator=generator, requires_grad=True) if bias else None
    known = [each for each in (rows, weight, added) if each is not None]
    results = [of(rows, weight, added) for of in (linear, functional.linear)]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(torch.autograd.grad(each.square().sum(), known) for each in results))


def test_only_what_needs_a_gradient_has_one():
    rows, weight = torch.ones(2, 3), torch.ones(4, 3, requires_grad=True)
    linear(rows, weight).sum().backward()
    assert rows.grad is None
    assert weight.grad.tolist() == [[2.0] * 3] * 4
    with torch.no_grad():
        assert not linear(rows, weight).requires_grad


def test_a_product_is_that_of_plain_loops():
    left, right = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[7.0, 8.0, 9.0, 1.0], [2.0, 3.0, 4.0, 5.0]]
    expected = [
        [sum(row[inner] * right[inner][column] for inner in range(2)) for column in range(4)] for row in left
    ]
    assert product(torch.tensor(left), torch.tensor(right)).tolist() == expected
    # Neither needs to be contiguous.
    assert product(torch.tensor(right).T, torch.tensor(left).T).T.tolist() == expected


def test_matrices_with_gaps_reach_the_operator_without_them(monkeypatch):
    """It would need minutes for the columns of a matrix of image features."""
    seen, operator = [], torch.ops.mkldnn._linear_pointwise
    monkeypatch.setattr(
        torch.ops.mkldnn, "_linear_pointwise", lambda *given: seen.extend(given[:2]) or operator(*given)
    )
    rows = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    found = product(rows[:, 3:5].T, rows[:, 3:])
    torch.testing.assert_close(found, rows[:, 3:5].T @ rows[:, 3:])
    assert all(each.is_contiguous() or each.mT.is_contiguous() for each in seen)
    assert len(seen) == 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_are_left_to_torch(dtype):
    rows, weight = torch.ones(2, 3, dtype=dtype), torch.ones(4, 3, dtype=dtype)
    assert linear(rows, weight).dtype == dtype


def test_a_layer_computes_in_half_precision_where_torch_does():
    layer = Linear(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.ones(2, 3)).dtype == torch.bfloat16
    assert layer(torch.ones(2, 3)).dtype == torch.float32


def test_the_layers_of_a_model_become_fast_and_keep_their_weights():
    model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Sequential(nn.Linear(4, 2, bias=False)))
    values = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    expected, state = model(values), {name: value.clone() for name, value in model.state_dict().items()}
    use_fast_linear(model)
    assert [type(each) for each in (model[0], model[2][0])] == [Linear, Linear]
    torch.testing.assert_close([model(values), model.state_dict()], [expected, state])
