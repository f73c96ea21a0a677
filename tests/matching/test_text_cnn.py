import pytest
import torch
from torch import nn
from torch.nn import functional

from fne.core.distributed_layers import Step, SyncBatchNorm
from fne.core.errors import InputError
from fne.matching import settings as keys
from fne.matching.text_cnn import TextCnn
from fne.matching.word_table import word_table

FULL = keys.TextCnn(
    width=1.0,
    blocks=[3, 4, 6, 1],
    positions=32,
    shifts=0,
    pool="mean",
    batch_norm_momentum=0.05,
    batch_norm_epsilon=1e-3,
    initial="fan_in",
)


def network(word_dim: int = 5, embed_dim: int = 6, vocabulary: int = 20, seed: int = 0, **changed) -> TextCnn:
    torch.manual_seed(seed)
    settings = FULL.model_dump() | {"width": 1 / 64, "positions": 8} | changed
    table = word_table(vocabulary, word_dim)
    return TextCnn(table, embed_dim, keys.TextCnn.model_validate(settings)).double()


def trained(**changed) -> TextCnn:
    """A network whose running statistics and biases are not those of the start."""
    module = network(**changed)
    nn.init.uniform_(module.bias)
    words = torch.randint(1, 20, (16, 4), generator=torch.Generator().manual_seed(1))
    for _ in range(20):
        module(words, torch.full((16,), 4), Step(torch.Generator().manual_seed(2), 16, slice(0, 16)))
    return module.eval()


def test_the_full_network_has_the_weights_of_the_published_code():
    with torch.device("meta"):
        module = TextCnn(nn.Embedding(7, 300), 2048, FULL)
    counts = {name: each.numel() for name, each in module.named_parameters()}
    assert counts.pop("words.weight") == 7 * 300
    assert counts.pop("bias") == 300
    assert sum(counts.values()) == 30_301_784


def test_the_full_network_has_the_lengths_and_multiply_adds_of_the_published_code():
    with torch.device("meta"):
        module = TextCnn(nn.Embedding(7, 300), 2048, FULL).eval()
    total, lengths = 0, []

    def count(layer, arguments, output):
        nonlocal total
        total += layer.in_features * layer.out_features * (output.numel() // layer.out_features)

    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(count)
    for block in module.blocks:
        block.register_forward_hook(lambda block, arguments, output: lengths.append(output.shape[1]))
    words = torch.zeros(1, 3, dtype=torch.long, device="meta")
    one = torch.ones(1, dtype=torch.long, device="meta")
    assert module.read(words, one * 3, one).shape == (1, 2048)
    assert lengths == [32] * 3 + [16] * 4 + [8] * 6 + [8]
    assert total == pytest.approx(237.5e6, rel=1e-3)


def with_convolutions(module: TextCnn, words, lengths, start) -> torch.Tensor:
    """One caption at a time, by torch's own convolutions over (1, channels, positions)."""

    def norm(layer: SyncBatchNorm, values: torch.Tensor) -> torch.Tensor:
        own = layer.running_mean, layer.running_var, layer.weight, layer.bias
        return functional.batch_norm(values, *own, eps=layer.eps)

    def kernel(layer: nn.Linear, size: int) -> torch.Tensor:
        return layer.weight.view(len(layer.weight), size, -1).transpose(1, 2)

    outputs = []
    for own, length in zip(words.tolist(), lengths.tolist(), strict=True):
        placed = torch.zeros(module.positions, module.words.embedding_dim, dtype=torch.float64)
        for place, word in enumerate(own[:length]):
            placed[start + place] = module.words.weight[word]
        rows = norm(module.norm, (placed + module.bias).T[None])
        for block in module.blocks:
            inside = norm(block.norms[0], functional.conv1d(rows, kernel(block.first, 1))).relu()
            padded = functional.pad(inside, (1, 0))
            inside = functional.conv1d(padded, kernel(block.second, 2), stride=block.stride)
            inside = norm(block.norms[1], inside).relu()
            mapped = norm(block.norms[2], functional.conv1d(inside, kernel(block.third, 1)))
            if block.shortcut is not None:
                rows = functional.conv1d(rows, kernel(block.shortcut, 1), stride=block.stride)
                rows = norm(block.shortcut_norm, rows)
            rows = (mapped + rows).relu()
        outputs.append(norm(module.map_norm, functional.linear(rows.mean(dim=2), module.map.weight)))
    return torch.cat(outputs)


WORDS = torch.tensor([[3, 4, 5, 9], [7, 8, 0, 0], [1, 0, 0, 0]])
LENGTHS = torch.tensor([4, 2, 1])


def test_it_computes_what_convolutions_do():
    module = trained()
    for start in (0, 3):
        found = module.read(WORDS, LENGTHS, torch.full((3,), start))
        assert torch.allclose(found, with_convolutions(module, WORDS, LENGTHS, start), rtol=0, atol=1e-10)


def test_all_start_positions_are_summed_when_encoding():
    module = trained()
    expected = torch.zeros(3, 6, dtype=torch.float64)
    for row, length in enumerate(LENGTHS.tolist()):
        for start in range(8 + 1 - length):
            expected[row] += with_convolutions(module, WORDS[row : row + 1], LENGTHS[row : row + 1], start)[0]
    assert torch.allclose(module(WORDS, LENGTHS), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("shifts", "starts"), [(1, [0]), (2, [0, 2]), (5, [0, 1, 2, 3, 4]), (99, [0, 1, 2, 3, 4])]
)
def test_fewer_start_positions_are_spread_evenly(shifts, starts):
    module = trained(shifts=shifts)
    expected = sum(module.read(WORDS[:1], LENGTHS[:1], torch.tensor([start])) for start in starts)
    assert torch.allclose(module(WORDS[:1], LENGTHS[:1]), expected, rtol=0, atol=1e-10)


def test_no_position_sees_a_later_word():
    module = trained()
    seen: list[list[torch.Tensor]] = []
    for last in (5, 6):
        outputs: list[torch.Tensor] = []
        hooks = [
            block.register_forward_hook(lambda _, __, output, kept=outputs: kept.append(output))
            for block in module.blocks
        ]
        module.read(torch.tensor([[1, 2, 3, 4, last]]), torch.tensor([5]), torch.tensor([0]))
        for hook in hooks:
            hook.remove()
        seen.append(outputs)
    for one, other, stride in zip(*seen, [1] * 3 + [2] * 4 + [4] * 7, strict=True):
        # The last word stands at position 4; an output reads no later than position `stride` times its own.
        earlier = [place for place in range(one.shape[1]) if place * stride < 4]
        assert torch.equal(one[:, earlier], other[:, earlier])
        assert not torch.equal(one, other)


def test_a_caption_depends_on_neither_its_neighbors_nor_the_padding():
    module = trained()
    together = module(WORDS, LENGTHS)
    padded = torch.cat([WORDS, torch.full((3, 3), 19)], dim=1)
    padded = padded.masked_fill(torch.arange(7) >= LENGTHS[:, None], 19)
    assert torch.allclose(module(padded, LENGTHS), together, rtol=0, atol=1e-12)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = module(WORDS[row : row + 1, :length], LENGTHS[row : row + 1])
        assert torch.allclose(alone[0], together[row], rtol=0, atol=1e-10)


def test_gradients_do_not_reach_the_vector_of_a_padding_number():
    module = network()
    module(WORDS, LENGTHS, Step(torch.Generator().manual_seed(0), 3, slice(0, 3))).sum().backward()
    assert not module.words.weight.grad[0].any()


def test_a_longer_caption_is_refused():
    with pytest.raises(InputError, match=r"9 words, but .* has 8 positions; use -S \+\+tokenize.longest=8"):
        trained()(torch.ones(1, 9, dtype=torch.long), torch.tensor([9]))


def test_start_positions_are_drawn_evenly_and_for_the_whole_batch():
    module, starts = network(), []
    module.read = lambda words, lengths, start, step: starts.append(start)
    words, lengths = torch.ones(900, 6, dtype=torch.long), torch.full((900,), 6)
    module(words, lengths, Step(torch.Generator().manual_seed(0), 900, slice(0, 900)))
    for part in (slice(0, 300), slice(300, 900)):
        module(words[part], lengths[part], Step(torch.Generator().manual_seed(0), 900, part))
    assert torch.equal(torch.cat(starts[1:]), starts[0])
    assert all(250 < count < 350 for count in torch.bincount(starts[0], minlength=3).tolist())


def test_the_largest_values_can_be_taken_instead_of_the_mean():
    assert not torch.allclose(trained(pool="max")(WORDS, LENGTHS), trained()(WORDS, LENGTHS))
