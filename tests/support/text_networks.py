"""Tiny text networks, drawn from a seed, in the folders that other programs write."""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, CLIPConfig, CLIPModel, PreTrainedTokenizerFast

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "number", "dog", "cat", "red", "."]
POSITIONS = 12
# A network of open_clip, whose own tokenizer has this many tokens.
TINY_CLIP = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}


def write_tokenizer(folder: Path, positions: int = POSITIONS) -> None:
    """A tokenizer of whole words and digits, with a token at both ends."""
    numbers = [str(number) for number in range(10)] + [f"{number:02d}" for number in range(100)]
    vocabulary = {word: place for place, word in enumerate([*WORDS, *numbers])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=positions,
    ).save_pretrained(folder)


def write_bert(folder: Path, seed: int = 0) -> Path:
    """A BERT with two blocks of eight values."""
    torch.manual_seed(seed)
    shape = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=130, max_position_embeddings=POSITIONS, **shape)).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_sentence_transformer(folder: Path, pooling: str = "mean") -> Path:
    """The same as sentence-transformers has it: pooled, mapped, and of length one."""
    write_bert(folder)
    kinds = ["Transformer", "Pooling", "Dense", "Normalize"]
    listed = [
        {
            "idx": place,
            "name": str(place),
            "path": f"{place}_{kind}" if place else "",
            "type": f"x.models.{kind}",
        }
        for place, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    for each in listed[1:]:
        (folder / each["path"]).mkdir()
    (folder / "1_Pooling/config.json").write_text(
        json.dumps({"word_embedding_dimension": 8, f"pooling_mode_{pooling}_tokens": True})
    )
    activation = "torch.nn.modules.activation.Tanh"
    (folder / "2_Dense/config.json").write_text(
        json.dumps({"in_features": 8, "out_features": 5, "bias": True, "activation_function": activation})
    )
    linear = torch.nn.Linear(8, 5)
    save_file(
        {"linear.weight": linear.weight.detach(), "linear.bias": linear.bias.detach()},
        folder / "2_Dense/model.safetensors",
    )
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 6, "do_lower_case": false}')
    return folder


def write_clip(folder: Path) -> Path:
    """A CLIP whose text tower has two blocks."""
    torch.manual_seed(1)
    shape = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    text = shape | {
        "vocab_size": 130,
        "max_position_embeddings": POSITIONS,
        "eos_token_id": 3,
        "bos_token_id": 2,
    }
    configuration = CLIPConfig(
        text_config=text, vision_config=shape | {"image_size": 8, "patch_size": 4}, projection_dim=4
    )
    CLIPModel(configuration).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_open_clip(folder: Path) -> Path:
    """A small network as open_clip has it, without the files of a tokenizer."""
    import open_clip

    folder.mkdir()
    (folder / "tiny.json").write_text(json.dumps(TINY_CLIP))
    open_clip.add_model_config(folder / "tiny.json")
    torch.manual_seed(0)
    save_file(open_clip.create_model("tiny").state_dict(), folder / "open_clip_model.safetensors")
    prepared = {"mean": [0.5] * 3, "std": [0.5] * 3}
    (folder / "open_clip_config.json").write_text(
        json.dumps({"model_cfg": TINY_CLIP, "preprocess_cfg": prepared})
    )
    return folder


def write_pretended_clip(folder: Path) -> Path:
    """What `PretendedOpenClip` reads: a vector per letter."""
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    save_file({"letters": torch.randn(128, 6, generator=generator)}, folder / "open_clip_model.safetensors")
    (folder / "open_clip_config.json").write_text("{}")
    return folder


class PretendedOpenClip:
    """Stands in for open_clip: the vector of a sentence is the mean of those of its letters."""

    def __init__(self, letters: torch.Tensor) -> None:
        self.letters = letters

    @staticmethod
    def create_model_from_pretrained(name: str) -> tuple["PretendedOpenClip", None]:
        folder = Path(name.removeprefix("local-dir:"))
        return PretendedOpenClip(load_file(folder / "open_clip_model.safetensors")["letters"]), None

    @staticmethod
    def get_tokenizer(name: str) -> Callable[[list[str]], torch.Tensor]:
        assert name.startswith("local-dir:")
        return lambda texts: torch.tensor([[*text.ljust(80).encode()] for text in texts])

    def eval(self) -> "PretendedOpenClip":
        return self

    def encode_text(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.letters[numbers].mean(dim=1)
