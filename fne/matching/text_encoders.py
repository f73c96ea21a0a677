"""Maps from the words of a caption to the joint space.

Every encoder is called as `encoder(vocabulary_size, word_dim, embed_dim)` and returns a
module that maps padded words (captions, longest) and lengths (captions) to (captions,
embed_dim). What stands in the padding does not matter.
"""

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence


class Gru(nn.Module):
    """Word vectors read by one gated recurrent layer; its last state stands for the caption."""

    def __init__(self, vocabulary_size: int, word_dim: int, embed_dim: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary_size, word_dim)
        nn.init.uniform_(self.words.weight, -0.1, 0.1)
        self.reader = nn.GRU(word_dim, embed_dim, batch_first=True)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Read captions word by word."""
        packed = pack_padded_sequence(
            self.words(words), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        _, last = self.reader(packed)  # (1, captions, embed_dim)
        state: Tensor = last[0]
        return state


TEXT_ENCODERS = {"gru": Gru}
