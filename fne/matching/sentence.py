"""The vector of a single sentence from a model's file, with NumPy alone.

A search reads one sentence, and importing torch for it takes longer than all the rest.
Every encoder is called as `encoder(words, weights)` with the vectors of the words (words,
word_dim) and the weights of the text encoder by their names in its `fne.matching.text_encoders`
twin, and returns what that computes for the sentence (embed_dim).

A text encoder without a twin here is no fault: the search then asks torch.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fne.matching.modelfile import ModelFile, not_a_model

PREFIX = "text_encoder."
# What torch divides by at least when it normalizes.
LEAST_LENGTH = 1e-12

Weights = Mapping[str, np.ndarray]
# Reads words (words, word_dim) with the weights whose names end so, and returns the last state (units).
Reader = Callable[[np.ndarray, Weights, str], np.ndarray]


def embed_sentence(model: ModelFile, numbers: Sequence[int]) -> np.ndarray:
    """Return the vector (embed_dim) of a sentence in the joint space.

    Args:
        model: a model whose text encoder is in `SENTENCE_ENCODERS`, with the weights of that encoder.
        numbers: of the words, at least one.

    Raises:
        InputError: if the model lacks weights, or has some of another form.
    """
    weights = {name.removeprefix(PREFIX): value for name, value in model.weights.items()}
    try:
        words = weights["words.weight"][list(numbers)]
        vector = SENTENCE_ENCODERS[model.shape["text_encoder"]](words, weights)
        absolute = model.shape["absolute"]
    except (KeyError, IndexError, ValueError) as error:
        raise not_a_model(model.artifact.path, error) from None
    unit: np.ndarray = vector / max(np.linalg.norm(vector), LEAST_LENGTH)
    return np.abs(unit) if absolute else unit


def gru(words: np.ndarray, weights: Weights) -> np.ndarray:
    """One gated recurrent layer."""
    return _read_gru(words, weights, "_l0")


def lstm(words: np.ndarray, weights: Weights) -> np.ndarray:
    """One layer of long short-term memory."""
    return _read_lstm(words, weights, "_l0")


def bigru(words: np.ndarray, weights: Weights) -> np.ndarray:
    """A gated recurrent layer in both directions."""
    return _both_ways(_read_gru, words, weights)


def bilstm(words: np.ndarray, weights: Weights) -> np.ndarray:
    """A layer of long short-term memory in both directions."""
    return _both_ways(_read_lstm, words, weights)


def bow(words: np.ndarray, weights: Weights) -> np.ndarray:
    """The mean of the word vectors, mapped linearly."""
    mapped: np.ndarray = weights["map.weight"] @ words.mean(axis=0) + weights["map.bias"]
    return mapped


def _both_ways(read: Reader, words: np.ndarray, weights: Weights) -> np.ndarray:
    return np.concatenate([read(words, weights, "_l0"), read(words[::-1], weights, "_l0_reverse")])


def _read_gru(words: np.ndarray, weights: Weights, layer: str) -> np.ndarray:
    inputs, state_weight, state_bias = _maps(words, weights, layer)
    state = np.zeros(state_weight.shape[1], dtype=words.dtype)
    for mapped in inputs:
        of_reset, of_update, of_new = np.split(mapped, 3)
        from_reset, from_update, from_new = np.split(state_weight @ state + state_bias, 3)
        update = _sigmoid(of_update + from_update)
        new = np.tanh(of_new + _sigmoid(of_reset + from_reset) * from_new)
        state = new + update * (state - new)
    return state


def _read_lstm(words: np.ndarray, weights: Weights, layer: str) -> np.ndarray:
    inputs, state_weight, state_bias = _maps(words, weights, layer)
    state = np.zeros(state_weight.shape[1], dtype=words.dtype)
    memory = np.zeros_like(state)
    for mapped in inputs:
        take_in, keep, new, show = np.split(mapped + state_weight @ state + state_bias, 4)
        memory = _sigmoid(keep) * memory + _sigmoid(take_in) * np.tanh(new)
        state = _sigmoid(show) * np.tanh(memory)
    return state


def _maps(words: np.ndarray, weights: Weights, layer: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the words as the gates see them (words, gates x units), and the map of the state."""
    inputs = words @ weights[f"reader.weight_ih{layer}"].T + weights[f"reader.bias_ih{layer}"]
    return inputs, weights[f"reader.weight_hh{layer}"], weights[f"reader.bias_hh{layer}"]


def _sigmoid(values: np.ndarray) -> np.ndarray:
    # By way of tanh, since the exponential of a large number would be infinite.
    halved: np.ndarray = 0.5 * np.tanh(0.5 * values) + 0.5
    return halved


SENTENCE_ENCODERS = {"bigru": bigru, "bilstm": bilstm, "bow": bow, "gru": gru, "lstm": lstm}
