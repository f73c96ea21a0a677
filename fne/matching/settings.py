"""The sections `train` and `baseline` of `params.yaml`. Importing this module does not import torch."""

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from fne.core.errors import InputError
from fne.core.settings import PerPhase, Section, TrainingThreads, one_of
from fne.training.settings import Rate, TrainingSection

if TYPE_CHECKING:
    from fne.text.word_vectors import WordVectors

# Text encoders of words, and those that read rows of captions in place of words.
WORDS = ("bigru", "bilstm", "bow", "bow_mlp", "bow_mlp_bn_first", "gru", "lstm", "text_cnn", "tfidf")
ROWS = ("rows", "rows_mlp", "rows_mlp_bn_first")
# The losses with a margin, and the one without.
HINGES = ("hard_hinge", "max_hinge", "semi_hard_hinge", "sum_hinge", "top_k_hinge")
INFO_NCE = "info_nce"
# Text encoders with a reader for each direction.
BIDIRECTIONAL = ("bigru", "bilstm")
# The weights of the terms of an objective, in the order of `fne.matching.task.Objective`.
TERM_WEIGHTS = ("rank_weight", "image_class_weight", "text_class_weight")
# The factors on the learning rate, in the order of `fne.matching.task.RateFactors`.
FACTORS = ("words_rate", "classifier_rate", "gain_rate")
# The parts of a closed-form model, whose text encoder may also be `rows`. With `train.start: auto`, training
# starts from CCA where a model has them.
CLOSED_FORM = {
    "image_head": "linear_bias",
    "text_encoder": "tfidf",
    "similarity": "cosine",
    "absolute": False,
    "rectified": False,
    "words": "learned",
}

Positive = Annotated[float, Field(gt=0)]
Width = Annotated[int, Field(ge=1, le=65536)]
# Values of several blocks.
Hidden = Annotated[list[Width], Field(min_length=1, description="units of each hidden layer")]
Dropped = Annotated[float, Field(ge=0, lt=1, description="the fraction of a hidden layer that is dropped")]
Momentum = Annotated[
    float,
    Field(
        gt=0, le=1, description="the weight of a new batch in the running statistics of batch normalization"
    ),
]
Epsilon = Annotated[float, Field(gt=0, description="added to the variance in batch normalization")]
Initial = Annotated[str, one_of(("fan_in", "xavier")), Field(description="initial weights")]
ImageGrid = Annotated[
    list[Positive], Field(min_length=1, description="regularization of the images' covariance")
]
TextGrid = Annotated[
    list[Positive], Field(min_length=1, description="regularization of the captions' covariance")
]
TextDim = Annotated[
    int,
    Field(ge=0, description="dimensions of latent semantic analysis, or principal components; 0: all"),
]
# Values per phase; a term of the objective with weight 0 is not computed.
Weights = Annotated[list[Annotated[float, Field(ge=0, lt=1e6)]], PerPhase]
Rates = Annotated[list[Rate], PerPhase]
HARDEST = "the hardest negatives are searched for each query, or for each candidate"


class Branch(Section):
    """Fully connected layers with batch normalization and dropout."""

    hidden: Hidden = Field([512])
    dropout: Dropped = 0.5
    batch_norm_momentum: Momentum = 0.1
    batch_norm_epsilon: Epsilon = 1e-05
    initial: Initial = "xavier"


class DualPath(Section):
    """Fully connected layers with batch normalization after every one, and no biases."""

    hidden: Hidden = Field([512])
    batch_norm_momentum: Momentum = 0.05
    batch_norm_epsilon: Epsilon = 0.001
    initial: Initial = "fan_in"


class Gru(Section):
    """A gated recurrent layer."""

    initial: Annotated[str, one_of(("orthogonal", "torch"))] = Field(
        "torch", description="uniform as in torch, or recurrent weights orthogonal and biases zero"
    )


class TextCnn(Section):
    """Residual blocks of convolutions; `tokenize.longest` must be 1 to `positions`."""

    width: float = Field(
        0.125, gt=0, le=16, description="a factor on all channels; 1.0 has 30.3 million weights"
    )
    blocks: Annotated[list[Annotated[int, Field(ge=1, le=1000)]], Field(min_length=4, max_length=4)] = Field(
        [3, 4, 6, 1], description="residual blocks of each of the four stages"
    )
    positions: int = Field(
        32,
        ge=1,
        le=4096,
        description="where words can stand; a caption starts at a random one while training",
    )
    shifts: int = Field(0, ge=0, description="start positions that are summed when encoding; 0: all")
    pool: Annotated[str, one_of(("max", "mean"))] = Field(
        "mean", description="how the last positions become one vector"
    )
    batch_norm_momentum: Momentum = 0.05
    batch_norm_epsilon: Epsilon = 0.001
    initial: Initial = "fan_in"


class MaxHinge(Section):
    """Only the hardest negatives count."""

    hardest: Annotated[str, one_of(("candidate", "query"))] = Field("query", description=HARDEST)


class TopKHinge(MaxHinge):
    """Only the `k` hardest negatives count."""

    k: int = Field(10, ge=1, description="how many negatives count")


class InfoNCE(Section):
    """A softmax over the batch; `train.margin` and `train.reduce` do not apply."""

    temperature: float = Field(
        0.1, ge=0.01, le=100, description="by what scores are divided; the first, if learned"
    )
    learned: bool = Field(False, description="whether the temperature is trained, down to 0.01")
    positives: Annotated[str, one_of(("all", "own"))] = Field(
        "own", description="what is right for an image: its own caption, or all of its captions in the batch"
    )


class InstanceLoss(Section):
    """The instance loss of `image_class_weight` and `text_class_weight`."""

    classes: int = Field(
        0, ge=0, description="K-means classes of the training embeddings; 0: one class per training image"
    )
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout before the classifier")
    bias: bool = Field(False, description="whether the classifier has a bias")
    bias_rate: float = Field(
        2.0, gt=0, lt=1000, description="a factor on `classifier_rate` for the classifier's bias"
    )


class ClosedForm(Section):
    """Closed-form alignment. Lists are grids: the best sum of validation recalls chooses."""

    dim: int = Field(512, ge=1, description="dimensions of the joint space")
    text: Annotated[str, one_of(("rows", "tfidf", "vectors"))] = Field(
        "tfidf",
        description="bags of words, or what `tokenize.vectors` has: means of word vectors, rows of captions",
    )
    text_dim: TextDim = 1500
    min_count: int = Field(3, ge=1, description="captions that a word must be in")
    image_regularization: ImageGrid = Field([0.1, 0.5, 2.0])
    text_regularization: TextGrid = Field([0.3, 1.0])
    power: Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=1)] = Field(
        [1.0, 1.5, 2.0], description="power of the canonical correlations"
    )
    choose_on: Annotated[str, one_of(("train", "val"))] = Field(
        "train", description="what chooses: held-out training images, or the images of val"
    )
    holdout: int = Field(1000, ge=1, description="training images that are held out")
    seed: int = Field(0, ge=0, description="random seed of the holdout")


class Ridge(ClosedForm):
    """Closed-form alignment by ridge regression of the captions from the images."""

    text_dim: TextDim = 600
    image_regularization: ImageGrid = Field([0.03, 0.3, 3.0])
    text_regularization: TextGrid = Field([0.1, 0.3])
    power: Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=1)] = Field(
        [0.5], description="power of the singular values"
    )


class Baseline(ClosedForm):
    """The closed form that every trained model is compared with, by CCA."""

    threads: TrainingThreads = Field(2, description="threads of the CPU, as in `train`")


class Train(TrainingSection):
    """The model and its training; lists have one value per phase."""

    method: Annotated[str, one_of(("cca", "ridge", "steps"))] = Field(
        "steps", description="training by steps, or a closed form: seconds, and only its own block applies"
    )
    start: Annotated[str, one_of(("auto", "cca", "random", "ridge"))] = Field(
        "auto",
        description="what training by steps starts from: random weights, the closed form of that block with "
        "`embed_dim` dimensions, or auto: cca if the model has its parts, otherwise random",
    )
    image_head: Annotated[str, one_of(("dual_path", "linear", "linear_bias", "mlp", "mlp_bn_first"))] = Field(
        "linear_bias", description="what maps an embedding into the joint space"
    )
    text_encoder: Annotated[str, one_of((*WORDS, *ROWS))] = Field(
        "tfidf", description="what maps a caption into the joint space; rows… read rows of captions"
    )
    similarity: Annotated[str, one_of(("cosine", "euclidean", "order", "order_root"))] = Field(
        "cosine", description="the score of an image and a caption"
    )
    absolute: bool = Field(False, description="take absolute values after normalization (for order)")
    embed_dim: Width = Field(512, description="dimensions of the joint space")
    word_dim: Width = Field(128, description="values of a word vector")
    words: Annotated[str, one_of(("fixed", "learned"))] = Field(
        "learned", description="whether word vectors are trained; both start from `tokenize.vectors`, if any"
    )
    # With a batch of one there is no negative, and every loss is 0.
    batch: int = Field(32, ge=2, description="pairs of an image and a caption per step")
    captions: Annotated[str, one_of(("all", "one", "together"))] = Field(
        "one",
        description="one caption drawn for each image and epoch, or all, each once per epoch, in any order "
        "or together with the others of its image",
    )
    last_batch: Annotated[str, one_of(("drop", "keep"))] = Field(
        "keep", description="whether the last batch of an epoch is used if it is incomplete"
    )
    negatives: Annotated[str, one_of(("other_images", "other_pairs"))] = Field(
        "other_images",
        description="which captions are negatives: of other images, or also others of the same image",
    )
    precision: Annotated[str, one_of(("bfloat16", "float32"))] = Field(
        "float32", description="what training computes with; bfloat16 on a GPU only"
    )
    rates: Annotated[str, one_of(("equal", "relative"))] = Field(
        "relative",
        description="one learning rate, or a fraction of the root mean square that each tensor starts with",
    )
    reduce: Annotated[str, one_of(("mean", "mean_violating", "sum"))] = Field(
        "sum",
        description="how violations are combined: summed, or the mean of all selected or violating ones",
    )
    image_anchors: float = Field(1.0, ge=0, lt=1000, description="the weight of wrong captions of an image")
    caption_anchors: float = Field(1.0, ge=0, lt=1000, description="the weight of wrong images of a caption")
    rectified: bool = Field(
        False, description="rank by the vectors after ReLU while training; encode gives those before it"
    )
    loss: Annotated[list[Annotated[str, one_of((*HINGES, INFO_NCE))]], PerPhase] = Field(
        ["sum_hinge"], description="the ranking loss"
    )
    margin: Annotated[list[Positive], PerPhase] = Field(
        [0.2], description="by how much a true pair must score higher than a negative one"
    )
    rank_weight: Weights = Field(
        [1.0], description="the weight of the ranking loss; a term with weight 0 is not computed"
    )
    image_class_weight: Weights = Field(
        [0.0], description="the weight of the instance loss of images: a classifier names the training image"
    )
    text_class_weight: Weights = Field(
        [0.0], description="the weight of the instance loss of captions, by the same classifier"
    )
    words_rate: Rates = Field([1.0], description="a factor on the learning rate of word vectors")
    classifier_rate: Rates = Field(
        [1.0], description="a factor on the learning rate of the classifier of the instance loss"
    )
    gain_rate: Rates = Field(
        [1.0], description="a factor on the learning rate of the gains of batch normalization"
    )
    # Variants of `image_head`.
    mlp: Branch = Branch()
    mlp_bn_first: Branch = Branch()
    dual_path: DualPath = DualPath()
    # Variants of `text_encoder`.
    bow_mlp: Branch = Branch()
    bow_mlp_bn_first: Branch = Branch()
    rows_mlp: Branch = Branch()
    rows_mlp_bn_first: Branch = Branch()
    gru: Gru = Gru()
    text_cnn: TextCnn = TextCnn()
    # Variants of `loss`, and the instance loss.
    info_nce: InfoNCE = InfoNCE()
    max_hinge: MaxHinge = MaxHinge()
    top_k_hinge: TopKHinge = TopKHinge()
    instance: InstanceLoss = InstanceLoss()
    # Variants of `method` and `start`.
    cca: ClosedForm = ClosedForm()
    ridge: Ridge = Ridge()

    @model_validator(mode="after")
    def _values_fit(self) -> Self:
        if self.text_encoder in BIDIRECTIONAL and self.embed_dim % 2:
            raise ValueError(f"embed_dim must be even for {self.text_encoder!r}, got {self.embed_dim}")
        if self.method == "steps" and self.starts_from != "random":
            other = [
                f"{key} {value!r} instead of {getattr(self, key)!r}"
                for key, value in self._parts.items()
                if getattr(self, key) != value
            ]
            if other:
                raise ValueError(f"start {self.start!r} needs {', '.join(other)}")
        if self.image_anchors == 0 == self.caption_anchors:
            raise ValueError("image_anchors and caption_anchors are both 0, so nothing would be learned")
        if self.rectified and self.absolute:
            raise ValueError("rectified and absolute are both true; choose one of them")
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

    @property
    def starts_from(self) -> str:
        """What training by steps starts from: `random`, or the method whose closed form it is."""
        if self.start != "auto":
            return self.start
        return "cca" if all(getattr(self, key) == value for key, value in self._parts.items()) else "random"

    @property
    def reads_rows(self) -> bool:
        """Whether the text encoder reads rows of captions in place of words."""
        if self.method == "steps":
            return self.text_encoder in ROWS
        return self.closed_form is not None and self.closed_form.text == "rows"

    @property
    def _parts(self) -> dict[str, Any]:
        """The parts of the closed form that this model can start from, or is."""
        linear = self.text_encoder == "rows" if self.method == "steps" else self.reads_rows
        return CLOSED_FORM | ({"text_encoder": "rows"} if linear else {})

    @property
    def closed_form(self) -> ClosedForm | None:
        """The closed form that the model is, or that training starts from, with `embed_dim` dimensions."""
        name = self.starts_from if self.method == "steps" else self.method
        found = {"cca": self.cca, "ridge": self.ridge}.get(name)
        if found is None or self.method != "steps":
            return found
        rows = {"text": "rows"} if self.text_encoder == "rows" else {}
        return found.model_copy(update={"dim": self.embed_dim} | rows)

    @property
    def has_instance_loss(self) -> bool:
        """Whether a phase has an instance loss, and with it a classifier."""
        return any([*self.image_class_weight, *self.text_class_weight])

    def chosen(self) -> set[str]:
        """Return the names of the variants in use."""
        if self.method != "steps":
            return {self.method}
        start = {self.starts_from, "instance" if self.has_instance_loss else ""}
        return super().chosen() - {"cca", "ridge"} | start

    def effective(self) -> dict[str, Any]:
        """Return the keys that apply: of a closed form, its own block and what it fixes."""
        found = super().effective()
        if self.method != "steps":
            kept = ("method", self.method, "image_head", "text_encoder", "similarity", "threads")
            return {key: found[key] for key in kept}
        if set(self.loss) == {INFO_NCE}:
            del found["margin"], found["reduce"]
        if self.reads_rows:
            del found["word_dim"], found["words"]
        elif self.starts_from != "random":
            del found["word_dim"]  # words are vectors of the joint space, with their weight
        if self.starts_from != "random":
            del found[self.starts_from]["dim"]
            if self.reads_rows:
                del found[self.starts_from]["text"]
        return found

    def applied(self) -> dict[str, Any]:
        """Return the settings that apply, with those that a closed form fixes."""
        found = self.effective()
        if self.method != "steps":
            return found | {key: self._parts[key] for key in ("image_head", "text_encoder", "similarity")}
        start = {self.starts_from: self.closed_form.model_dump()} if self.closed_form else {}
        return found | {"start": self.starts_from} | start

    def given(self) -> dict[str, Any]:
        """Return the values that `applied` has in another form, by name; None for one without effect."""
        if self.method != "steps":
            return {key: getattr(self, key) for key in ("image_head", "text_encoder", "similarity")}
        without_effect: dict[str, Any] = {"word_dim": None, "words": None} if self.reads_rows else {}
        if self.starts_from != "random":
            without_effect[f"{self.starts_from}.dim"] = None
            if self.reads_rows:
                without_effect[f"{self.starts_from}.text"] = None
        return {"start": self.start} | without_effect


def require_vectors(settings: Train, vectors: "WordVectors | None") -> None:
    """Refuse missing fixed vectors, vectors that would be ignored, and another length than `word_dim`."""
    if vectors is None:
        if settings.words == "fixed" and not settings.reads_rows:
            raise InputError(
                "params.yaml: train.words is 'fixed', but tokenize.vectors names no vectors; name a file of "
                "word vectors, or use -S ++train.words=learned"
            )
        return
    unused = unused_vectors_message(settings, vectors.file)
    if unused:
        raise InputError(f"params.yaml: {unused}")
    if settings.closed_form is None and vectors.dim != settings.word_dim:
        raise InputError(
            f"params.yaml: train.word_dim is {settings.word_dim}, but {vectors.file} has vectors of "
            f"{vectors.dim}; use -S train.word_dim={vectors.dim}"
        )


def unused_vectors_message(settings: Train, file: str) -> str | None:
    """Return the message for word vectors that would have no effect, or None."""
    own = settings.closed_form
    if own is None or own.text != "tfidf":
        return None
    name = settings.starts_from if settings.method == "steps" else settings.method
    other = ", or -S train.text_encoder=gru" if settings.method == "steps" else ""
    return (
        f"tokenize.vectors is '{file}', but train.{name}.text is 'tfidf', which has no use for word "
        f"vectors; use -S ++train.{name}.text=vectors{other}"
    )


def require_rows(settings: Train, given: bool) -> None:
    """Refuse a text encoder of words if rows of captions are `given`, and one of rows if they are not."""
    fault = rows_fault(settings, given)
    if fault:
        raise InputError(f"params.yaml: {fault}")


def rows_fault(settings: Train, given: bool) -> str | None:
    """Return the message for a model that reads words if rows of captions are `given`, or the reverse."""
    if settings.reads_rows == given:
        return None
    steps = settings.method == "steps"
    key = "text_encoder" if steps else f"{settings.method}.text"
    found = settings.text_encoder if steps else getattr(settings, settings.method).text
    if given:
        plus = "" if steps else "++"
        return (
            f"tokenize.vectors names rows of captions, but train.{key} is '{found}', which reads words; use "
            f"-S {plus}train.{key}=rows, or -S tokenize.vectors=weights/random_words.yaml"
        )
    return (
        f"train.{key} is '{found}', but tokenize.vectors names no rows of captions; use "
        "-S tokenize.vectors=features/text/embeddings, which pipelines/text_network makes, or import some"
    )


def require_positions(settings: Train, longest: int) -> None:
    """Refuse captions that are longer than the positions of the text encoder, before the first step."""
    if settings.text_encoder == "text_cnn" and longest > settings.text_cnn.positions:
        raise InputError(too_long(longest, settings.text_cnn.positions))


def too_long(longest: int, positions: int) -> str:
    """Return the message for captions with more words than there are positions."""
    return (
        f"a caption has {longest} words, but text encoder 'text_cnn' has {positions} positions; "
        f"use -S ++tokenize.longest={positions}"
    )


def require_precision(precision: str, device: str) -> None:
    """Refuse half precision on a CPU, where it is slower and less exact."""
    if precision != "float32" and device == "cpu":
        raise InputError(
            f"params.yaml: train.precision is '{precision}', which needs a GPU; use 'float32' here"
        )
