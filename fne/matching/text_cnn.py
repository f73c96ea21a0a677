"""A convolutional network over the words of a caption, as in the dual-path networks.

Captions are placed in a fixed number of positions. In a training step, each starts at a random position
("position shift"), mined ones too; when encoding, the outputs of all start positions are summed.
Positions without a word hold zeros, plus the bias of the word layer, and take part in all that follows, as
in the published code. They are never read as a word: what stands in the padding of a batch does not matter.

The network has four stages of residual blocks. A convolution reads a position and the one before it, so
no position sees a later word. Layers are matrix products over (captions x positions, channels).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fne.core.distributed_layers import INITIALIZATIONS, Step, SyncBatchNorm, needed
from fne.core.errors import InputError
from fne.core.products import Linear
from fne.matching import settings as keys
from fne.matching.settings import too_long

# Channels at width 1: inside the first block of each stage, inside the others, and of their outputs.
FIRST = (128, 512, 1024, 2048)
OTHER = (64, 128, 256, 512)
OUTPUT = (256, 512, 1024, 2048)
STRIDES = (1, 2, 2, 1)
# Sequences that are encoded at once, to bound the memory.
BLOCK = 256
# Rows (captions, positions, channels) to (captions, channels).
POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "max": lambda rows: rows.amax(dim=1),
    "mean": lambda rows: rows.mean(dim=1),
}


def text_cnn(words: nn.Embedding, embed_dim: int, settings: keys.TextCnn) -> nn.Module:
    """Residual blocks of convolutions over the positions of a caption."""
    return TextCnn(words, embed_dim, settings)


class TextCnn(nn.Module):
    """Maps padded words (captions, longest) and lengths (captions) to (captions, embed_dim)."""

    def __init__(self, words: nn.Embedding, embed_dim: int, settings: keys.TextCnn) -> None:
        super().__init__()
        self.words = words
        self.positions, self.shifts = settings.positions, settings.shifts
        self.pool = POOLS[settings.pool]
        epsilon, momentum = settings.batch_norm_epsilon, settings.batch_norm_momentum
        self.bias = nn.Parameter(torch.zeros(words.embedding_dim))

        def norm(channels: int) -> SyncBatchNorm:
            return SyncBatchNorm(channels, eps=epsilon, momentum=momentum)

        def scaled(channels: int) -> int:
            return max(1, round(channels * settings.width))

        self.norm = norm(words.embedding_dim)
        channels = words.embedding_dim
        residual: list[_Block] = []
        for first, other, output, stride, count in zip(
            FIRST, OTHER, OUTPUT, STRIDES, settings.blocks, strict=True
        ):
            residual.append(_Block(channels, scaled(first), scaled(output), stride, norm, project=True))
            channels = scaled(output)
            residual += [
                _Block(channels, scaled(other), channels, 1, norm, project=False) for _ in range(count - 1)
            ]
        self.blocks = nn.ModuleList(residual)
        self.map = Linear(channels, embed_dim, bias=False)
        self.map_norm = norm(embed_dim)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                INITIALIZATIONS[settings.initial](module)

    def forward(self, words: Tensor, lengths: Tensor, step: Step | None = None) -> Tensor:
        """Read captions from a random start position if there is a step, and from all of them otherwise."""
        self._check(lengths)
        lengths = lengths.to(words.device)
        starts = self.positions + 1 - lengths  # the number of start positions of each caption
        if self.training or step is not None:
            drawn = needed(step).uniform().to(words.device)
            return self.read(words, lengths, (drawn * starts).long(), step)
        return self._read_all(words, lengths, starts)

    def read(self, words: Tensor, lengths: Tensor, starts: Tensor, step: Step | None = None) -> Tensor:
        """Read each caption from one start position (captions)."""
        rows = self.norm((self.place(words, lengths, starts) + self.bias).flatten(end_dim=1), step)
        rows = rows.view(len(words), self.positions, self.words.embedding_dim)
        for block in self.blocks:
            rows = block(rows, step)
        mapped: Tensor = self.map_norm(self.map(self.pool(rows)), step)
        return mapped

    def place(self, words: Tensor, lengths: Tensor, starts: Tensor) -> Tensor:
        """Return word vectors at their positions (captions, positions, word_dim), and zeros elsewhere."""
        # The word at each position, counted from the caption's first.
        order = torch.arange(self.positions, device=words.device) - starts[:, None]  # (captions, positions)
        inside = (order >= 0) & (order < lengths[:, None])
        numbers = words.gather(1, order.clamp(min=0, max=max(0, words.shape[1] - 1)))
        placed: Tensor = self.words(numbers.masked_fill(~inside, 0)) * inside[:, :, None]
        return placed

    def _read_all(self, words: Tensor, lengths: Tensor, starts: Tensor) -> Tensor:
        taken = starts.clamp(max=self.shifts) if self.shifts else starts
        caption = torch.repeat_interleave(torch.arange(len(words), device=words.device), taken)
        # Shift j of the k that are taken of n starts at j n / k.
        before = torch.cumsum(taken, 0) - taken
        shift = torch.arange(len(caption), device=words.device) - before[caption]
        start = shift * starts[caption] // taken[caption]
        total = self.bias.new_zeros((len(words), self.map.out_features))
        for block in (slice(first, first + BLOCK) for first in range(0, len(caption), BLOCK)):
            chosen = caption[block]
            total = total.index_add(0, chosen, self.read(words[chosen], lengths[chosen], start[block]))
        return total

    def _check(self, lengths: Tensor) -> None:
        longest = int(lengths.max()) if len(lengths) else 1
        if longest > self.positions:
            raise InputError(too_long(longest, self.positions))


class _Block(nn.Module):
    """A residual block: rows (captions, length, inputs) to (captions, length / stride, outputs)."""

    def __init__(
        self,
        inputs: int,
        inside: int,
        outputs: int,
        stride: int,
        norm: Callable[[int], SyncBatchNorm],
        project: bool,
    ) -> None:
        super().__init__()
        self.stride = stride
        self.first = Linear(inputs, inside, bias=False)
        self.second = Linear(2 * inside, inside, bias=False)  # the position before, and the position
        self.third = Linear(inside, outputs, bias=False)
        self.norms = nn.ModuleList([norm(inside), norm(inside), norm(outputs)])
        self.shortcut = Linear(inputs, outputs, bias=False) if project else None
        self.shortcut_norm = norm(outputs) if project else None

    def forward(self, rows: Tensor, step: Step | None) -> Tensor:
        inside = _normalized(self.norms[0], self.first(rows), step).relu()
        before = functional.pad(inside, (0, 0, 1, 0))[:, :-1]
        pairs = torch.cat([before[:, :: self.stride], inside[:, :: self.stride]], dim=2)
        inside = _normalized(self.norms[1], self.second(pairs), step).relu()
        mapped = _normalized(self.norms[2], self.third(inside), step)
        if self.shortcut is not None and self.shortcut_norm is not None:
            rows = _normalized(self.shortcut_norm, self.shortcut(rows[:, :: self.stride]), step)
        return (mapped + rows).relu()


def _normalized(norm: nn.Module, rows: Tensor, step: Step | None) -> Tensor:
    """Normalize (captions, positions, channels) over captions and positions."""
    normalized: Tensor = norm(rows.flatten(end_dim=1), step)
    return normalized.view(rows.shape)
