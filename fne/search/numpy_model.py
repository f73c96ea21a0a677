"""Text encoders and similarities in NumPy, for a search that does not import torch.

A search encodes one sentence and compares it with many images, or one image with many
sentences. Importing torch would take longer than all of that.

Every encoder is called as `encoder(words, weights, settings)` with the vectors of the words (words,
word_dim), the weights by their names in `fne.matching.text_encoders` and the encoder's own settings.
It returns what the encoder of the same name there returns for the sentence (embed_dim).

Every similarity is called as `similarity(images, captions)` with vectors (images, dim) and
(captions, dim), one of which is a single row. It returns one score for each row of the other;
higher is better. A score depends only on its two vectors, not on the other rows of the block.

A variant without an implementation here is computed with torch (`fne.search.embed_query`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fne.matching.model_file import ModelFile, not_a_model

PREFIX = "text_encoder."
MIN_NORM = 1e-12  # the lower bound of torch's `normalize`
EUCLIDEAN_EPSILON = 1e-4  # as in `fne.matching.similarities`
CNN_STRIDES = (1, 2, 2, 1)  # into each stage, as in `fne.matching.text_cnn`

Weights = Mapping[str, np.ndarray]
Settings = Mapping[str, Any]
# Reads words (words, word_dim) with the weights of the named layer, and returns the last state (units).
Reader = Callable[[np.ndarray, Weights, str], np.ndarray]
Similarity = Callable[[np.ndarray, np.ndarray], np.ndarray]


def embed_sentence(model: ModelFile, numbers: Sequence[int]) -> np.ndarray:
    """Return the vector (embed_dim) of a sentence in the joint space.

    Args:
        model: a model file with the weights of its text encoder, which is in `SENTENCE_ENCODERS`.
        numbers: the word numbers, at least one.

    Raises:
        InputError: if weights are missing or have the wrong shape.
    """
    weights = {name.removeprefix(PREFIX): value for name, value in model.weights.items()}
    try:
        words = weights["words.weight"][list(numbers)]
        settings = model.shape.get("text_encoder_settings", {})
        vector = SENTENCE_ENCODERS[model.shape["text_encoder"]](words, weights, settings)
        absolute = model.shape["absolute"]
    except (KeyError, IndexError, ValueError) as error:
        raise not_a_model(model.artifact.path, error) from None
    unit: np.ndarray = vector / max(np.linalg.norm(vector), MIN_NORM)
    return np.abs(unit) if absolute else unit


def gru(words: np.ndarray, weights: Weights, settings: Settings) -> np.ndarray:
    """One gated recurrent layer."""
    return _read_gru(words, weights, "_l0")


def lstm(words: np.ndarray, weights: Weights, settings: Settings) -> np.ndarray:
    """One LSTM layer."""
    return _read_lstm(words, weights, "_l0")


def bigru(words: np.ndarray, weights: Weights, settings: Settings) -> np.ndarray:
    """One bidirectional gated recurrent layer."""
    return _bidirectional(_read_gru, words, weights)


def bilstm(words: np.ndarray, weights: Weights, settings: Settings) -> np.ndarray:
    """One bidirectional LSTM layer."""
    return _bidirectional(_read_lstm, words, weights)


def bow(words: np.ndarray, weights: Weights, settings: Settings) -> np.ndarray:
    """The mean of the word vectors, and one linear map."""
    mapped: np.ndarray = weights["map.weight"] @ words.mean(axis=0) + weights["map.bias"]
    return mapped


def bow_mlp(words: np.ndarray, weights: Weights, settings: Settings) -> np.ndarray:
    """The mean of the word vectors, mapped by a branch; layers that have statistics are normalized."""
    row: np.ndarray = words.mean(axis=0)
    last = len(settings["hidden"])
    for number in range(last + 1):
        row = weights[f"branch.layers.{number}.weight"] @ row + weights[f"branch.layers.{number}.bias"]
        if f"branch.norms.{number}.running_var" in weights:
            row = _normalized(row, weights, f"branch.norms.{number}.", settings["batch_norm_epsilon"])
        if number < last:
            row = np.maximum(row, 0)
    return row


def text_cnn(words: np.ndarray, weights: Weights, settings: Settings) -> np.ndarray:
    """Residual blocks of convolutions, summed over all start positions."""
    positions, epsilon = settings["positions"], settings["batch_norm_epsilon"]
    if len(words) > positions:
        raise ValueError(f"a sentence of {len(words)} words in {positions} positions")
    starts = positions + 1 - len(words)
    taken = min(starts, settings["shifts"] or starts)
    rows = np.zeros((taken, positions, words.shape[1]), dtype=words.dtype)
    for shift in range(taken):
        start = shift * starts // taken
        rows[shift, start : start + len(words)] = words
    rows = _normalized(rows + weights["bias"], weights, "norm.", epsilon)
    first_blocks = np.cumsum([0, *settings["blocks"]])
    for number in range(first_blocks[-1]):
        stride = CNN_STRIDES[int(np.searchsorted(first_blocks, number))] if number in first_blocks else 1
        rows = _residual(rows, weights, f"blocks.{number}.", stride, epsilon)
    pooled = rows.max(axis=1) if settings["pool"] == "max" else rows.mean(axis=1)
    mapped = _normalized(pooled @ weights["map.weight"].T, weights, "map_norm.", epsilon)
    total: np.ndarray = mapped.sum(axis=0)
    return total


def tfidf(words: np.ndarray, weights: Weights, settings: Settings) -> np.ndarray:
    """Return the weighted sum of the word vectors, divided by the norm of the weights, mapped linearly."""
    norm = np.linalg.norm(words[:, -1], float(weights["order"][0]))
    total = words[:, :-1].sum(axis=0) / (norm if norm > 0 else 1.0)
    mapped: np.ndarray = weights["map.weight"] @ total + weights["map.bias"]
    return mapped.astype(words.dtype, copy=False)


def cosine(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """Return inner products, which are cosines because all vectors have length one."""
    products: np.ndarray = np.vecdot(images, captions)
    return products


def euclidean(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """Return minus the Euclidean distance, with a small number below the root."""
    difference = images - captions
    distances: np.ndarray = np.sqrt(np.vecdot(difference, difference) + EUCLIDEAN_EPSILON)
    return 0 - distances


def order(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """Return minus the squared length of a caption's excess over its image."""
    excess = np.maximum(captions - images, 0)
    squared: np.ndarray = np.vecdot(excess, excess)
    return 0 - squared  # a difference, so that zero has no sign


def order_root(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """Return minus the length of a caption's excess over its image."""
    lengths: np.ndarray = np.sqrt(-order(images, captions))
    return 0 - lengths


def _bidirectional(read: Reader, words: np.ndarray, weights: Weights) -> np.ndarray:
    return np.concatenate([read(words, weights, "_l0"), read(words[::-1], weights, "_l0_reverse")])


def _read_gru(words: np.ndarray, weights: Weights, layer: str) -> np.ndarray:
    inputs, state_weight, state_bias = _layer(words, weights, layer)
    state = np.zeros(state_weight.shape[1], dtype=words.dtype)
    for mapped in inputs:
        of_reset, of_update, of_new = np.split(mapped, 3)
        from_reset, from_update, from_new = np.split(state_weight @ state + state_bias, 3)
        update = _sigmoid(of_update + from_update)
        new = np.tanh(of_new + _sigmoid(of_reset + from_reset) * from_new)
        state = new + update * (state - new)
    return state


def _read_lstm(words: np.ndarray, weights: Weights, layer: str) -> np.ndarray:
    inputs, state_weight, state_bias = _layer(words, weights, layer)
    state = np.zeros(state_weight.shape[1], dtype=words.dtype)
    cell = np.zeros_like(state)
    for mapped in inputs:
        input_gate, forget_gate, new, output_gate = np.split(mapped + state_weight @ state + state_bias, 4)
        cell = _sigmoid(forget_gate) * cell + _sigmoid(input_gate) * np.tanh(new)
        state = _sigmoid(output_gate) * np.tanh(cell)
    return state


def _layer(words: np.ndarray, weights: Weights, layer: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mapped inputs (words, gates x units), and the weight and the bias of the state."""
    inputs = words @ weights[f"reader.weight_ih{layer}"].T + weights[f"reader.bias_ih{layer}"]
    return inputs, weights[f"reader.weight_hh{layer}"], weights[f"reader.bias_hh{layer}"]


def _residual(rows: np.ndarray, weights: Weights, block: str, stride: int, epsilon: float) -> np.ndarray:
    """Return the output of a residual block for rows (shifts, positions, channels)."""

    def mapped(values: np.ndarray, layer: str, norm: str) -> np.ndarray:
        products = values @ weights[f"{block}{layer}.weight"].T
        return _normalized(products, weights, f"{block}{norm}.", epsilon)

    inside = np.maximum(mapped(rows, "first", "norms.0"), 0)
    before = np.zeros_like(inside)
    before[:, 1:] = inside[:, :-1]
    pairs = np.concatenate([before[:, ::stride], inside[:, ::stride]], axis=2)
    outputs = mapped(np.maximum(mapped(pairs, "second", "norms.1"), 0), "third", "norms.2")
    if f"{block}shortcut.weight" in weights:
        rows = mapped(rows[:, ::stride], "shortcut", "shortcut_norm")
    found: np.ndarray = np.maximum(outputs + rows, 0)
    return found


def _normalized(row: np.ndarray, weights: Weights, norm: str, epsilon: float) -> np.ndarray:
    """Apply batch normalization by the running statistics."""
    scale = weights[f"{norm}weight"] / np.sqrt(weights[f"{norm}running_var"] + row.dtype.type(epsilon))
    normalized: np.ndarray = (row - weights[f"{norm}running_mean"]) * scale + weights[f"{norm}bias"]
    return normalized


def _sigmoid(values: np.ndarray) -> np.ndarray:
    # Computed with tanh, because the exponential of a large number overflows.
    probabilities: np.ndarray = 0.5 * np.tanh(0.5 * values) + 0.5
    return probabilities


SENTENCE_ENCODERS = {
    "bigru": bigru,
    "bilstm": bilstm,
    "bow": bow,
    "bow_mlp": bow_mlp,
    "bow_mlp_bn_first": bow_mlp,
    "gru": gru,
    "lstm": lstm,
    "text_cnn": text_cnn,
    "tfidf": tfidf,
}
SIMILARITIES: dict[str, Similarity] = {
    "cosine": cosine,
    "euclidean": euclidean,
    "order": order,
    "order_root": order_root,
}
