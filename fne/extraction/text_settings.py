"""The section `extract_text`, and files that name a text network; without torch."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from fne.core.errors import InputError
from fne.core.settings import Section, one_of
from fne.extraction.settings import parse_named

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class ExtractText(Section):
    """The section `extract_text`: which text network reads the captions, and what is kept of it."""

    network: str = Field(
        "weights/minilm.yaml",
        min_length=1,
        description="the folder of a transformer of Hugging Face, or a YAML file that names one",
    )
    tokens: Annotated[list[Annotated[str, one_of(("first", "last", "mean"))]], Field(min_length=1)] = Field(
        ["mean"],
        description="what is kept of each block: the mean over its tokens, its first token, its last",
    )
    shards: int = Field(4, ge=1, le=9999, description="files of the store; 16 to 512 MB each is a good size")


class Package(Section):
    """A network in a folder of an installed Python package, none of whose code is run."""

    kind: Literal["package"]
    package: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
    folder: str
    sha256: Digest  # the digest of `model.safetensors`


class Hub(Section):
    """A network of the hub at a commit, downloaded the first time."""

    kind: Literal["hub"]
    name: Annotated[str, Field(min_length=1)]
    revision: Annotated[str, Field(pattern="^[0-9a-f]{40}$")]


def named_network(place: Path) -> tuple[Path, dict[str, str], str]:
    """Return the folder of a text network, what is recorded of its origin, and the digest of its weights.

    `place` is the folder itself, or a YAML file that names it. A digest that is not known is empty.
    """
    if place.is_dir():
        return place, {"network": place.name}, ""
    if not place.is_file() or place.suffix not in (".yaml", ".yml"):
        raise InputError(
            f"{place}: no such text network; name the folder of a transformer of Hugging Face, or a YAML "
            "file such as weights/minilm.yaml"
        )
    expected = TypeAdapter[Package | Hub](Annotated[Package | Hub, Field(discriminator="kind")])
    named = parse_named(place, expected, "weights/minilm.yaml")
    if isinstance(named, Hub):
        return _from_hub(place, named), {"network": named.name, "revision": named.revision}, ""
    found = find_spec(named.package)
    if found is None or not found.submodule_search_locations:
        raise InputError(
            f"{place}: the package '{named.package}' is not installed; install it with pip install -e "
            "'.[text]', or name the folder of a network"
        )
    folder = Path(next(iter(found.submodule_search_locations)), named.folder)
    return folder, {"network": named.package}, named.sha256


def _from_hub(place: Path, named: Hub) -> Path:
    try:
        from huggingface_hub import snapshot_download  # optional
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        raise needs_transformers() from None
    wanted = ["*.json", "*.txt", "*.model", "*.safetensors"]
    try:
        return Path(snapshot_download(named.name, revision=named.revision, allow_patterns=wanted))
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{place}: cannot get {named.name}, revision {named.revision} ({reason}); download it elsewhere, "
            " and set extract_text.network to its folder"
        ) from None


def needs_transformers() -> InputError:
    """Return the error that the optional packages are missing."""
    return InputError(
        "text networks need transformers, which is not installed; install it with pip install -e '.[text]'"
    )
