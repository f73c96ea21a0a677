"""Text networks: transformers of Hugging Face as extractors of rows with layers.

The layers of a row are the token embeddings and every block, `embeddings`, `block1`, `block2` and so on. Each
is the mean over all tokens of the sentence, those that the tokenizer adds included. `:first` and `:last`
after a name are a single token. Weights are read from safetensors only, and no code of a network is run.

Sentences of one length are computed together, without padding, always `BATCH` of them: a row does not depend
on the sentences beside it. transformers is optional and slow to import.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import nn

from fne.core.device import download, upload
from fne.core.errors import InputError
from fne.core.files import check_regular
from fne.core.products import use_fast_linear
from fne.core.stat_cache import file_state, remembered_digest
from fne.extraction.text_settings import named_network, needs_transformers
from fne.store.artifact import Artifact
from fne.store.layout import Layer

ARTIFACT = "text_network"
VERSION = 2  # raised when rows change
BATCH = 32  # sentences of one forward pass
CONFIGURATION, OPEN_CLIP = "config.json", "open_clip_config.json"
MODULES = "modules.json"  # a file of sentence-transformers
SUFFIXES = (".json", ".model", ".safetensors", ".txt")
VOCABULARIES = ("spiece.model", "tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
# Networks that were trained on sentences padded to their full length.
PADDED = ("siglip", "siglip2")
# Weights that a file may lack, because no layer is computed with them.
UNUSED = ("pooler.", "lm_head.", "cls.")
FAULTS = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RuntimeError,
    ImportError,
    SafetensorError,
)
MEAN = "mean"


@dataclass(frozen=True)
class TextNetwork:
    """A network that reads sentences."""

    artifact: Artifact
    tokenizer: Any
    whole: nn.Module  # with an image tower and a decoder, if it has them
    model: nn.Module  # what reads sentences
    device: torch.device
    tokens: tuple[str, ...]
    layers: list[Layer]
    positions: int  # tokens that it can read
    padded: bool
    kind: dict[str, Any]  # what decides a row, besides the sentence and the network

    @property
    def features(self) -> int:
        """The length of a row."""
        return sum(layer.features for layer in self.layers)

    def number(self, sentences: Sequence[str]) -> tuple[list[list[int]], list[int]]:
        """Return the token numbers of sentences, and which of these were cut to the positions."""
        if self.padded:
            numbers = self._tokenize(
                sentences, padding="max_length", truncation=True, max_length=self.positions
            )
            return numbers, []
        numbers = self._tokenize(sentences)
        cut = [place for place, each in enumerate(numbers) if len(each) > self.positions]
        shorter = self._tokenize(
            [sentences[each] for each in cut], truncation=True, max_length=self.positions
        )
        for place, each in zip(cut, shorter, strict=True):
            numbers[place] = each
        return numbers, cut

    @torch.inference_mode()
    def rows(self, numbers: Sequence[Sequence[int]]) -> np.ndarray:
        """Return the rows (sentences, features) of at most `BATCH` sentences with equally many tokens."""
        filled = [*numbers, *[numbers[0]] * (BATCH - len(numbers))]
        states = self.hidden_states(filled)
        parts = [pooled(state, token) for state in states for token in self.tokens]
        found: np.ndarray = download(torch.cat(parts, dim=1)[: len(numbers)]).numpy()
        return found

    def hidden_states(self, numbers: Sequence[Sequence[int]]) -> tuple[torch.Tensor, ...]:
        """Return the embeddings and the output of every block, each (sentences, tokens, width)."""
        given = upload(torch.tensor(numbers), self.device)
        states: tuple[torch.Tensor, ...] = self.model(
            input_ids=given, output_hidden_states=True
        ).hidden_states
        return states

    def row(self, sentence: str) -> np.ndarray:
        """Return the row (features) of one sentence."""
        row: np.ndarray = self.rows(self.number([sentence])[0])[0]
        return row

    def _tokenize(self, sentences: Sequence[str], **options: Any) -> list[list[int]]:
        return [*self.tokenizer(list(sentences), **options)["input_ids"]] if len(sentences) else []


def open_text_network(
    place: Path, tokens: Sequence[str] = (MEAN,), device: torch.device | None = None
) -> TextNetwork:
    """Load the network that a folder holds, or that a YAML file names; what does not fit is refused."""
    artifact, folder = find_network(place)
    device = device or torch.device("cpu")
    try:
        import transformers  # optional
    except ImportError:
        raise needs_transformers() from None
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    safe = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **safe)
        model, loaded = transformers.AutoModel.from_pretrained(
            folder, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **safe
        )
    except FAULTS as error:
        raise InputError(f"{folder}: cannot be read as a transformer ({first_line(error)})") from None
    whole, configuration = model, model.config.get_text_config()
    prefix = ""
    if hasattr(model, "text_model"):  # a network of images and texts
        model, prefix = model.text_model, "text_model."
    elif model.config.is_encoder_decoder:
        model, prefix = model.get_encoder(), "encoder."
    missing = [
        each
        for each in sorted(loaded["missing_keys"])
        if each.startswith(prefix) and not each.removeprefix(prefix).startswith(UNUSED)
    ]
    if missing:
        raise InputError(
            f"{folder}: '{missing[0]}' is missing ({len(missing)} missing weights); download it again"
        )
    model = model.eval().requires_grad_(False).to(device)
    use_fast_linear(model)
    positions = _positions(tokenizer, configuration, model)
    padded = str(configuration.model_type).removesuffix("_text_model") in PADDED
    kind = {
        "tokens": list(tokens),
        "positions": positions,
        "device": device.type,
        "text_extractor": VERSION,
        "transformers": str(transformers.__version__),
    }
    network = TextNetwork(
        artifact, tokenizer, whole.eval(), model, device, tuple(tokens), [], positions, padded, kind
    )
    try:
        numbers, _ = network.number(["a"])
        with torch.inference_mode():
            states = network.hidden_states(numbers)
    except FAULTS as error:
        raise InputError(f"{folder}: cannot read a sentence ({first_line(error)})") from None
    for number, state in enumerate(states):
        block = f"block{number}" if number else "embeddings"
        names = [block if token == MEAN else f"{block}:{token}" for token in tokens]
        network.layers.extend(Layer(name, state.shape[2]) for name in names)
    return network


def find_network(place: Path) -> tuple[Artifact, Path]:
    """Return a text network as an artifact, and its folder, without loading it."""
    folder, origin, expected = named_network(place)
    if not any((folder / name).is_file() for name in (CONFIGURATION, OPEN_CLIP)):
        raise InputError(f"{folder}: no transformer of Hugging Face ({CONFIGURATION} is missing)")
    own_tokenizer = (folder / OPEN_CLIP).is_file()  # open_clip has one, and refuses what else it needs
    if not own_tokenizer and not any((folder / name).is_file() for name in VOCABULARIES):
        raise InputError(f"{folder}: has no tokenizer ({', '.join(VOCABULARIES)}); download it again")
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        others = sorted(each.name for each in folder.glob("*.bin"))
        found = f", only {others[0]}, which could run code" if others else ""
        raise InputError(
            f"{folder}: has no *.safetensors{found}; get the file model.safetensors of this network"
        )
    files = [each for part in (folder, *_parts(folder)) for each in sorted(part.iterdir()) if _counts(each)]
    digests = {}
    for file in files:
        check_regular(file)
        digests[file.relative_to(folder).as_posix()] = remembered_digest(file, file_state(file))
    if expected and digests.get("model.safetensors") != expected:
        raise InputError(
            f"{folder / 'model.safetensors'}: expected SHA-256 {expected}, found "
            f"{digests.get('model.safetensors')}; fix sha256 in {place}, or use the right network"
        )
    digest = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
    return Artifact(place, ARTIFACT, digest, origin), folder


def network_modules(folder: Path) -> list[tuple[str, Path]]:
    """Return the modules of a network of sentence-transformers and their folders; none for other networks."""
    file = folder / MODULES
    if not file.is_file():
        return []
    try:
        listed = json.loads(file.read_text(encoding="utf-8"))
        found = [(str(each["type"]).rpartition(".")[2], folder / str(each["path"])) for each in listed]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}: damaged ({error!r}); download it again") from None
    if any(not each.resolve().is_relative_to(folder.resolve()) for _, each in found):
        raise InputError(f"{file}: names a folder outside {folder}; download it again")
    return found


def _parts(folder: Path) -> list[Path]:
    return [
        part for _, part in network_modules(folder) if part.is_dir() and part.resolve() != folder.resolve()
    ]


def _counts(file: Path) -> bool:
    return file.suffix in SUFFIXES and file.is_file()


def pooled(state: torch.Tensor, token: str) -> torch.Tensor:
    """Return the mean over the tokens of each sentence, or its first or last token."""
    return state.mean(dim=1) if token == MEAN else state[:, 0 if token == "first" else -1]  # noqa: S105


def _positions(tokenizer: Any, configuration: Any, model: nn.Module) -> int:
    """Return how many tokens a network can read; some count positions from a padding number on."""
    known = getattr(configuration, "max_position_embeddings", None)
    if known is None:
        return int(tokenizer.model_max_length)
    tables = [module for name, module in model.named_modules() if name.endswith("position_embeddings")]
    skipped = next(
        (each.padding_idx + 1 for each in tables if getattr(each, "padding_idx", None) is not None), 0
    )
    return min(int(tokenizer.model_max_length), int(known) - skipped)


def first_line(error: BaseException) -> str:
    """Return the first line of an error of another library."""
    return (str(error).strip() or repr(error)).splitlines()[0]
