"""The section `extract`, how weights expect images, and files that name weights; without torch."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from fne.core.errors import InputError
from fne.core.settings import OneOf, Section, one_of, read_yaml

ALL = "all"
AUTO = "auto"
SIDE = 256  # side of resized images, in pixels
PREFIX = 8  # how many digits of its SHA-256 the name of a file of torchvision contains
TIMM = "timm/"
# The algorithms of the extraction: keys of `fne.extraction.extractor.ALGORITHMS`.
ALGORITHM_NAMES = ("plain", "sharing", "winograd")
# What becomes of the crops of an image: their mean, or a view each, which keeps its own columns.
VIEWS = ("each", "mean")

PerChannel = Annotated[list[float], Field(min_length=3, max_length=3)]
# A digest of a whole file, or its first eight digits, which are all that torchvision publishes.
Sha256 = Annotated[str, Field(pattern=f"^([0-9a-f]{{{PREFIX}}}|[0-9a-f]{{64}})$")]


class InputFormat(Section):
    """How weights expect images."""

    channels: Literal["rgb", "bgr"]  # the order of `mean` and `deviation` too
    range: Literal[1, 255]  # the largest value of a pixel before `mean` is subtracted
    mean: PerChannel
    deviation: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=3, max_length=3)]
    filter: Literal["bicubic", "bilinear"]  # how images are resized, a key of `FILTERS`
    size: Annotated[int, Field(ge=16, le=4096)]  # pixels of resized images, before crops are taken


# Mean and deviation of the ImageNet images, as used in the training of most of torchvision's weights.
TORCHVISION = InputFormat(
    channels="rgb",
    range=1,
    mean=[0.485, 0.456, 0.406],
    deviation=[0.229, 0.224, 0.225],
    filter="bilinear",
    size=SIDE,
)
# As the publishers of Caffe's VGG networks say: BGR, zero-centered by the mean pixel, not scaled.
CAFFE = InputFormat(
    channels="bgr",
    range=255,
    mean=[103.939, 116.779, 123.68],
    deviation=[1.0, 1.0, 1.0],
    filter="bilinear",
    size=SIDE,
)
INPUTS = {"caffe": CAFFE, "torchvision": TORCHVISION}
NamedInput = InputFormat | Literal["caffe", "torchvision"]


class Random(Section):
    """Untrained weights, drawn from a seed."""

    kind: Literal["random"]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    input: NamedInput = "torchvision"


class Torchvision(Section):
    """Weights of torchvision by name, with the SHA-256, or its first eight digits, of each file."""

    kind: Literal["torchvision"]
    name: str
    sha256: dict[str, Sha256]


class Timm(Section):
    """The weights that the tag in the name of a network of timm stands for.

    They are in `file`, relative to the YAML file, or in the hub's cache, or downloaded. `sha256` may have the
    digest of each file by `timm/NAME`.
    """

    kind: Literal["timm"]
    revision: Annotated[str, Field(min_length=1)] = "main"  # in the hub; a commit always has the same file
    file: Annotated[str, Field(min_length=1)] | None = None
    sha256: dict[str, Sha256] = Field({})


class File(Section):
    """Another file, relative to the YAML file, with its SHA-256 and how its weights expect images."""

    kind: Literal["file"]
    file: Annotated[str, Field(min_length=1)]
    sha256: Sha256
    input: NamedInput


Named = Random | Torchvision | Timm | File


def parse_weights(path: Path) -> Named:
    """Return the content of a YAML file that names weights, or all its faults in one error."""
    examples = "weights/random.yaml and weights/imagenet.yaml"
    expected = TypeAdapter[Named](Annotated[Named, Field(discriminator="kind")])
    named: Named = parse_named(path, expected, examples)
    return named


def parse_named(path: Path, expected: TypeAdapter[Any], examples: str) -> Any:
    """Return the content of a YAML file, or all its faults in one error that names files to look at."""
    try:
        return expected.validate_python(read_yaml(path))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise InputError(f"{path}: {faults}; see {examples}") from None


def named_file(path: Path, named: File | Timm) -> Path:
    """Return the weights file that a YAML file names."""
    file = path.parent / str(named.file)
    if not file.is_file():
        raise InputError(f"{path}: names '{named.file}', but there is no {file}; save the file there")
    return file


def is_timm(name: str) -> bool:
    """Return whether a backbone is a network of timm."""
    return name.startswith(TIMM) and len(name) > len(TIMM)


def check_layers(value: object) -> object:
    """Admit `all` or a list of names, with one message for everything else."""
    if isinstance(value, str) and value == ALL:
        return value
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError(f"expected 'all' or a list of layer names, got {value!r}")
    if len(set(value)) < len(value):
        raise ValueError(f"a layer is named twice in {value}")
    return value


class BackboneName(OneOf):
    """Refuses every name but the allowed ones and `timm/NAME`; timm itself is not asked here."""

    def __call__(self, name: str) -> str:
        """Return the name if it is allowed."""
        return name if is_timm(name) else super().__call__(name)


class ExtractorSettings(Section):
    """The keys of the section `extract` that determine the values of a row."""

    backbone: Annotated[
        str,
        AfterValidator(
            BackboneName(("alexnet", "resnet152", "resnet18", "resnet50", "timm/NAME", "vgg16", "vgg19"))
        ),
    ] = Field("vgg16", description="the network; `timm/NAME` is any network of timm")
    activations: Annotated[str, one_of(("post_relu", "pre_relu"))] = Field(
        "post_relu", description="whether values are taken before or after ReLU"
    )
    resize: Annotated[str, one_of(("shorter_side", "squash"))] = Field(
        "squash", description="to 256 x 256, or the shorter side to 256 without distortion"
    )
    crops: Annotated[str, one_of(("center", "five", "ten"))] = Field(
        "ten", description="the crops: corners and center, mirrored too; corners and center; center"
    )
    views: Annotated[str, one_of(VIEWS)] = Field(
        "mean",
        description="the mean of the crops, or each separately: training draws one per image and epoch",
    )
    layers: Annotated[str | list[str], BeforeValidator(check_layers)] = Field(
        ALL,
        description="all convolutions and hidden fully connected layers, or a list of names; ResNets have "
        "pool5, networks of timm pooled",
    )
    precision: Annotated[str, one_of(("bfloat16", "float16", "float32"))] = Field(
        "float32",
        description="half precision on a GPU only; it flips 0.03 % and 0.35 % of the ternary values",
    )


class Extract(ExtractorSettings):
    """The section `extract` of `params.yaml`; settings of speed are in `runtime`."""

    weights: str = Field(
        "weights/random.yaml",
        min_length=1,
        description="weights/random.yaml, weights/imagenet.yaml, weights/pretrained.yaml (timm), or a "
        "safetensors or state-dict file",
    )
    input: Annotated[str, one_of((AUTO, "caffe", "torchvision"))] = Field(
        AUTO, description="how the weights expect images, for a file that does not say it"
    )
    shards: int = Field(4, ge=1, le=9999, description="files of the store; 16 to 512 MB each is a good size")
