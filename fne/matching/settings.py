"""The `train` section of `params.yaml`."""

from typing import Annotated, Any, Self

import torch
from pydantic import Field, model_validator

from fne.core.errors import InputError
from fne.core.params import PerPhase, one_of
from fne.core.variants import NoSettings, Variant, blocks, chosen, settings_of
from fne.matching.applied_settings import CLOSED_FORM, start_of
from fne.matching.closed_form import ClosedForm
from fne.matching.data import DRAWS, LAST_BATCH, NEGATIVES
from fne.matching.hard_negatives import REDUCTIONS, LossChoices
from fne.matching.image_heads import IMAGE_HEADS
from fne.matching.instance_loss import TERMS, InstanceSettings
from fne.matching.losses import LOSSES
from fne.matching.model import PRECISIONS, Shape
from fne.matching.similarities import SIMILARITIES
from fne.matching.task import RATES, Objective, RateFactors
from fne.matching.text_cnn import TextCnnSettings, too_long
from fne.matching.text_encoders import BIDIRECTIONAL, TEXT_ENCODERS
from fne.text.caption_vectors import CaptionVectors
from fne.text.word_vectors import WordVectors
from fne.training.settings import Rate, TrainingSection

# Whether word vectors are trained, from random or pretrained ones, or pretrained ones stay as they are.
WORDS = ("fixed", "learned")
# Text encoders that are a head over one vector per caption.
CAPTION_HEADS = ("bow", "bow_mlp", "bow_mlp_bn_first")
# The weights of the terms of an objective, in the order of `Objective`.
TERM_WEIGHTS = ("rank_weight", "image_class_weight", "text_class_weight")
# The factors on the learning rate, in the order of `RateFactors`.
FACTORS = ("words_rate", "classifier_rate", "gain_rate")
# The weight of a term of the objective; 0: the term is not computed.
Weight = Annotated[float, Field(ge=0, lt=1e6)]
# How a model is made; `fne.matching.methods` does it.
METHODS = {
    "cca": Variant(ClosedForm, ClosedForm),
    "ridge": Variant(ClosedForm, ClosedForm),
    "steps": Variant(NoSettings),
}
# What training by steps starts from: random weights, the closed form of a method, or `cca` if the model has
# its parts and random weights otherwise.
STARTS = ("auto", "cca", "random", "ridge")


class Train(TrainingSection):
    """The model and its training; lists have one value per phase."""

    method: Annotated[str, one_of(METHODS), Field(examples=["steps"])]
    methods: blocks(METHODS)  # type: ignore[valid-type]

    start: Annotated[str, one_of(STARTS), Field(examples=["random"])]
    image_head: Annotated[str, one_of(IMAGE_HEADS)]
    image_heads: blocks(IMAGE_HEADS)  # type: ignore[valid-type]
    text_encoder: Annotated[str, one_of(TEXT_ENCODERS)]
    text_encoders: blocks(TEXT_ENCODERS)  # type: ignore[valid-type]
    similarity: Annotated[str, one_of(SIMILARITIES)]
    absolute: bool
    embed_dim: Annotated[int, Field(ge=1, le=65536)]
    word_dim: Annotated[int, Field(ge=1, le=65536)]
    words: Annotated[str, one_of(WORDS), Field(examples=["learned"])]
    # With a batch of one there is no negative, and every loss is 0.
    batch: Annotated[int, Field(ge=2)]
    captions: Annotated[str, one_of(DRAWS)]
    last_batch: Annotated[str, one_of(LAST_BATCH), Field(examples=["keep"])]
    negatives: Annotated[str, one_of(NEGATIVES), Field(examples=["other_images"])]
    precision: Annotated[str, one_of(PRECISIONS)]
    rates: Annotated[str, one_of(RATES), Field(examples=["equal"])]
    reduce: Annotated[str, one_of(REDUCTIONS), Field(examples=["sum"])]
    image_anchors: Annotated[float, Field(ge=0, lt=1000, examples=[1.0])]
    caption_anchors: Annotated[float, Field(ge=0, lt=1000, examples=[1.0])]
    loss: Annotated[list[Annotated[str, one_of(LOSSES)]], PerPhase]
    losses: blocks(LOSSES)  # type: ignore[valid-type]
    margin: Annotated[list[Annotated[float, Field(gt=0)]], PerPhase]
    rank_weight: Annotated[list[Weight], PerPhase, Field(examples=[1.0])]
    image_class_weight: Annotated[list[Weight], PerPhase, Field(examples=[0.0])]
    text_class_weight: Annotated[list[Weight], PerPhase, Field(examples=[0.0])]
    terms: blocks(TERMS)  # type: ignore[valid-type]
    rectified: Annotated[bool, Field(examples=[False])]
    words_rate: Annotated[list[Rate], PerPhase, Field(examples=[1.0])]
    classifier_rate: Annotated[list[Rate], PerPhase, Field(examples=[1.0])]
    gain_rate: Annotated[list[Rate], PerPhase, Field(examples=[1.0])]

    @model_validator(mode="after")
    def _directions_split_evenly(self) -> Self:
        if self.text_encoder in BIDIRECTIONAL and self.embed_dim % 2:
            raise ValueError(f"embed_dim must be even for {self.text_encoder!r}, got {self.embed_dim}")
        return self

    @model_validator(mode="after")
    def _start_fits(self) -> Self:
        if self.method == "steps" and self.starts_from != "random":
            other = [
                f"{key} {value!r} instead of {getattr(self, key)!r}"
                for key, value in CLOSED_FORM.items()
                if getattr(self, key) != value
            ]
            if other:
                raise ValueError(f"start {self.start!r} needs {', '.join(other)}")
        return self

    @model_validator(mode="after")
    def _has_anchors(self) -> Self:
        if self.image_anchors == 0 == self.caption_anchors:
            raise ValueError("image_anchors and caption_anchors are both 0, so nothing would be learned")
        return self

    @model_validator(mode="after")
    def _rectified_or_absolute(self) -> Self:
        if self.rectified and self.absolute:
            raise ValueError("rectified and absolute are both true; choose one of them")
        return self

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        for number, values in enumerate(self.phase_values(), start=1):
            if not any(values[key] for key in TERM_WEIGHTS):
                raise ValueError(
                    f"{', '.join(TERM_WEIGHTS[:-1])} and {TERM_WEIGHTS[-1]} are all 0 in phase {number}, so "
                    "nothing would be learned"
                )
        return self

    def phase_keys(self) -> dict[str, list[Any]]:
        """Return the values of every key that may have one per phase."""
        own = ("loss", "margin", *TERM_WEIGHTS, *FACTORS)
        return {key: getattr(self, key) for key in own} | super().phase_keys()

    def shape(self, features: int, vocabulary_size: int) -> Shape:
        """Return the shape of the model for embeddings and a vocabulary of these sizes."""
        return Shape(
            self.image_head,
            self.text_encoder,
            self.similarity,
            self.absolute,
            features,
            vocabulary_size,
            self.word_dim if self.starts_from == "random" else self.embed_dim + 1,
            self.embed_dim,
            settings_of(self.image_head, self.image_heads).model_dump(),
            settings_of(self.text_encoder, self.text_encoders).model_dump(),
        )

    @property
    def starts_from(self) -> str:
        """What training by steps starts from: `random`, or the method whose closed form it is."""
        return start_of(self.model_dump(include={"start", *CLOSED_FORM}))

    def closed_form_of_start(self) -> ClosedForm | None:
        """Return the settings of the closed form that training starts from, with `embed_dim` dimensions."""
        if self.starts_from == "random":
            return None
        own = self.methods[self.starts_from]
        assert isinstance(own, ClosedForm)
        return own.model_copy(update={"dim": self.embed_dim})

    @property
    def closed_form_without_vectors(self) -> str | None:
        """The closed form that the model is, or starts from, if word vectors would have no effect on it."""
        name = self.starts_from if self.method == "steps" else self.method
        own = self.methods.get(name)
        return name if isinstance(own, ClosedForm) and own.text == "tfidf" else None

    def objectives(self) -> list[Objective]:
        """Return what each phase minimizes."""
        return [self._objective(values) for values in self.phase_values()]

    def rate_factors(self) -> list[RateFactors]:
        """Return the factors on the learning rate in each phase."""
        bias = self.instance.bias_rate
        return [
            RateFactors(values["words_rate"], values["classifier_rate"], values["gain_rate"], bias)
            for values in self.phase_values()
        ]

    def loss_titles(self) -> list[str]:
        """Return the terms of each phase's objective."""
        return [each.title for each in self.objectives()]

    @property
    def instance(self) -> InstanceSettings:
        """The settings of the instance loss."""
        found = self.terms["instance"]
        assert isinstance(found, InstanceSettings)
        return found

    @property
    def has_instance_loss(self) -> bool:
        """Whether a phase has an instance loss, and with it a classifier."""
        return any(each.has_instance_loss for each in self.objectives())

    def applied(self) -> dict[str, Any]:
        """Return the settings that apply: of the families' blocks, only those of the chosen variants."""
        if self.method != "steps":
            fixed = {key: CLOSED_FORM[key] for key in ("image_head", "text_encoder", "similarity")}
            own = {"method": self.method, "methods": chosen([self.method], self.methods)}
            return own | fixed | {"threads": self.threads}
        closed_form = self.closed_form_of_start()
        settings = super().applied()
        if closed_form is not None:
            del settings["word_dim"]  # words are vectors of the joint space, with their weight
        return settings | {
            "start": self.starts_from,
            "methods": {self.starts_from: closed_form.model_dump()} if closed_form else {},
            "image_heads": chosen([self.image_head], self.image_heads),
            "text_encoders": chosen([self.text_encoder], self.text_encoders),
            "losses": chosen(self.loss, self.losses),
            "terms": chosen(["instance"] if self.has_instance_loss else [], self.terms),
        }

    def given(self) -> dict[str, Any]:
        """Return the values that `applied` has in another form, by name; None for one without effect."""
        if self.method != "steps":
            return {key: getattr(self, key) for key in ("image_head", "text_encoder", "similarity")}
        without_effect = {} if self.starts_from == "random" else {f"methods.{self.starts_from}.dim": None}
        return {"start": self.start} | without_effect

    def _objective(self, values: dict[str, Any]) -> Objective:
        name = values["loss"]
        choices = LossChoices(
            **settings_of(name, self.losses).model_dump(),
            reduce=self.reduce,
            image_anchors=self.image_anchors,
            caption_anchors=self.caption_anchors,
        )
        return Objective(name, choices, values["margin"], *(values[key] for key in TERM_WEIGHTS))


def require_vectors(settings: Train, vectors: WordVectors | None) -> None:
    """Refuse missing fixed vectors, vectors that would be ignored, and another length than `word_dim`."""
    if vectors is None:
        if settings.words == "fixed":
            raise InputError(
                "params.yaml: train.words is 'fixed', but tokenize.vectors names no vectors; name a file of "
                "word vectors, or use -S train.words=learned"
            )
    elif settings.closed_form_without_vectors:
        raise InputError(f"params.yaml: {unused_vectors_message(settings, vectors.file)}")
    elif settings.method == "steps" and settings.starts_from == "random" and vectors.dim != settings.word_dim:
        raise InputError(
            f"params.yaml: train.word_dim is {settings.word_dim}, but {vectors.file} has vectors of "
            f"{vectors.dim}; use -S train.word_dim={vectors.dim}"
        )


def unused_vectors_message(settings: Train, file: str) -> str | None:
    """Return the message for word vectors that would have no effect, or None."""
    name = settings.closed_form_without_vectors
    if name is None:
        return None
    other = ", or -S train.text_encoder=gru" if settings.method == "steps" else ""
    return (
        f"tokenize.vectors is '{file}', but train.methods.{name}.text is 'tfidf', which has no use for word "
        f"vectors; use -S train.methods.{name}.text=vectors{other}"
    )


def require_caption_head(settings: Train, captions: CaptionVectors | None) -> None:
    """Refuse text encoders that are no heads over imported vectors of captions."""
    if captions is None:
        return
    if settings.method != "steps":
        own = settings.methods[settings.method]
        if isinstance(own, ClosedForm) and own.text != "vectors":
            raise InputError(
                f"tokenize.vectors are vectors of captions, but train.methods.{settings.method}.text is "
                f"'{own.text}'; use -S train.methods.{settings.method}.text=vectors"
            )
        return
    wanted = {
        "text_encoder": (CAPTION_HEADS, settings.text_encoder),
        "words": (("fixed",), settings.words),
        "word_dim": ((captions.dim,), settings.word_dim),
    }
    changes = [
        f"-S train.{key}={allowed[0]}" for key, (allowed, value) in wanted.items() if value not in allowed
    ]
    if changes:
        raise InputError(
            f"tokenize.vectors are vectors of captions, which need a text head ({', '.join(CAPTION_HEADS)}); "
            f"use {' '.join(changes)}, or -S train.method=cca -S train.methods.cca.text=vectors"
        )


def require_positions(settings: Train, longest: int) -> None:
    """Refuse captions that are longer than the positions of the text encoder, before the first step."""
    own = settings_of(settings.text_encoder, settings.text_encoders)
    if isinstance(own, TextCnnSettings) and longest > own.positions:
        raise InputError(too_long(longest, own.positions))


def require_precision(precision: str, device: torch.device) -> None:
    """Refuse half precision on a CPU, where it is slower and less exact."""
    if precision != "float32" and device.type == "cpu":
        raise InputError(
            f"params.yaml: train.precision is '{precision}', which needs a GPU; use 'float32' here"
        )
