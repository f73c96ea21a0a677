import copy

import pytest
import torch
from torch import nn

from fne.extraction.fast_linear import use_fast_linear

MODEL = nn.Sequential(nn.Linear(37, 24), nn.GELU(), nn.Linear(24, 11, bias=False)).requires_grad_(False)


@pytest.mark.parametrize("shape", [(37,), (5, 37), (3, 7, 37), (2, 3, 4, 37)])
@torch.inference_mode()
def test_fast_layers_compute_what_those_of_torch_compute(shape):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    fast = copy.deepcopy(MODEL)
    use_fast_linear(fast, torch.device("cpu"))
    assert fast[0].forward != MODEL[0].forward
    assert torch.allclose(fast(values), MODEL(values), rtol=1e-5, atol=1e-6)


def test_a_gpu_and_other_types_keep_the_layers_of_torch():
    for model, device in ((copy.deepcopy(MODEL), "cuda"), (copy.deepcopy(MODEL).double(), "cpu")):
        use_fast_linear(model, torch.device(device))
        assert "forward" not in vars(model[0])
