"""What requests and answers of the JSON interface look like; `/openapi.json` is made from these models."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_MATCHES = 200
MAX_TEXT = 500  # characters
DIGEST = r"^[0-9a-f]{64}$"

Where = Annotated[Literal["catalog", "folder"], Field(alias="in", description="What is searched.")]
Count = Annotated[int, Field(ge=1, le=MAX_MATCHES, description="The number of matches.")]
Split = Annotated[
    str | None, Field(max_length=MAX_TEXT, description="Only images of this split of the catalog.")
]
Tag = Annotated[
    str | None, Field(max_length=MAX_TEXT, description="Only images that have this tag in the catalog.")
]


class Parameters(BaseModel):
    """The query of a request; unknown and repeated keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoParameters(Parameters):
    """A request without a query."""


class ImageParameters(Parameters):
    """The image of a request: one of the two."""

    image: Annotated[str | None, Field(max_length=4096, description="The id of an image of the catalog.")] = (
        None
    )
    photo: Annotated[
        str | None,
        Field(pattern=DIGEST, description="The SHA-256 of a photo that was sent, or of one of the folder."),
    ] = None


class SearchParameters(Parameters):
    """A sentence, and what is searched."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT, description="A sentence.")]
    where: Where = "catalog"
    split: Split = None
    tag: Tag = None
    k: Count = 24


class SentenceParameters(ImageParameters):
    """An image, and how many sentences are wanted."""

    k: Count = 10


class WordsParameters(ImageParameters):
    """A sentence, and the image that it is compared with."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT, description="A sentence.")]


class SimilarParameters(ImageParameters):
    """An image, what is compared, and what is searched."""

    layer: Annotated[
        str | None, Field(max_length=MAX_TEXT, description="Compare only this layer of the embeddings.")
    ] = None
    where: Where = "catalog"
    split: Split = None
    tag: Tag = None
    k: Count = 24


class PictureParameters(Parameters):
    """The size of a picture."""

    size: Annotated[Literal["small", "large"], Field(description="Sides of at most 320 or 1,600 pixels.")] = (
        "small"
    )


class Result(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(extra="forbid")


class Problem(Result):
    """Why a request was not answered."""

    error: str


class Shown(Result):
    """What is shown of an image."""

    image: str | None
    name: str
    picture: Annotated[str | None, Field(description="The name of its picture in /api/pictures.")]
    split: str | None
    sentences: list[str]


class Match(Shown):
    """One match; `true` says whether the catalog pairs it with the query, and is null if that is unknown."""

    rank: int
    score: float
    id: str
    true: bool | None


class Answer(Result):
    """The matches of a query, best first; `version` names the artifacts that the answer was made with."""

    version: str
    found: Literal["images", "sentences"]
    text: str | None
    image: str | None = None
    photo: str | None = None
    by: str
    measure: str
    pool: str
    candidates: int
    unknown_words: list[str]
    matches: list[Match]


class Word(Result):
    """A word of a sentence."""

    text: str
    drop: Annotated[float, Field(description="By how much the score is lower without it.")]
    level: Annotated[int, Field(description="The drop relative to the largest one, from -4 to 4.")]


class Words(Result):
    """How much each word of a sentence matters for an image."""

    version: str
    image: str | None
    photo: str | None
    words: list[Word]


class Ancestor(Result):
    """An artifact of the lineage."""

    name: str
    digest: str
    settings: dict[str, str]


class Details(Result):
    """What is known about an image."""

    version: str
    image: str | None
    photo: str | None
    name: str | None
    picture: str | None
    split: str | None
    sentences: list[str]
    tags: list[str]
    width: int | None
    height: int | None
    features: str
    made: list[Ancestor]


class Model(Result):
    """A model that described an image."""

    name: str
    digest: str
    tuned: Annotated[bool, Field(description="Whether its image network was trained together with it.")]


class Sentence(Result):
    """A sentence that a captioner wrote."""

    text: str
    log_probability: float


class Description(Result):
    """What models say about an image; what no model says is missing."""

    version: str
    image: str | None
    photo: str | None
    caption: str | None = None
    sentences: list[Sentence] = []
    tags: list[str] = []
    concepts: dict[str, float] = {}
    models: list[Model]


class SentPhoto(Result):
    """A photo that was sent; `image` is its id if the catalog has the same file."""

    version: str
    photo: str
    image: str | None
    width: int
    height: int


class Folder(Result):
    """How far the index of the folder is; the last complete one is searched meanwhile."""

    name: str
    version: Annotated[str | None, Field(description="Names the photos that can be searched.")]
    state: Literal["reading", "indexing", "ready", "failed"]
    message: str | None
    done: int | None
    total: int | None
    photos: int | None
    unreadable: dict[str, str]


class Status(Result):
    """What the server has loaded, and what it can do."""

    version: str
    images: int
    captions: int
    splits: dict[str, int]
    tags: Annotated[dict[str, int], Field(description="The most frequent tags.")]
    features: str
    embedding: Annotated[str | None, Field(description="The kind of the embeddings.")]
    layers: list[str]
    sentences: Annotated[bool, Field(description="Whether there is a trained model.")]
    examples: Annotated[list[str], Field(description="Some sentences of the catalog.")]
    samples: Annotated[list[Shown], Field(description="Some images of the catalog.")]
    descriptions: list[str]
    network: Literal["loading", "ready", "failed"]
    network_message: str | None
    folder: Folder | None
    notes: list[str]
    waiting: Annotated[str | None, Field(description="Why new artifacts are not used yet.")]
    limits: dict[str, Any]
