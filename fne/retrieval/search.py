"""`fne search`, without its terminal: from an argument to an answer."""

from pathlib import Path

from fne.core.errors import InputError
from fne.retrieval.answer import Answer
from fne.retrieval.by_embedding import images_like
from fne.retrieval.by_model import images_for, sentences_for
from fne.retrieval.project import Project
from fne.retrieval.query import understand


def search(project: Project, argument: str, by: str | None, folder: Path | None, k: int) -> Answer:
    """Answer a query: images for a sentence, sentences for an image, or images for an image.

    Args:
        project: where the artifacts are.
        argument: a sentence, the id of an image of the catalog, or an image file.
        by: the kind of embedding to compare images by, or None to ask the trained model.
        folder: a folder to search instead of the catalog, or None.
        k: how many of the best to return.

    Raises:
        InputError: if the query cannot be understood or answered.
    """
    if not argument.strip():
        raise InputError("the query is empty; describe what the image shows, or name an image")
    query = understand(argument, project.catalog, images_only=by is not None)
    if by is not None and not isinstance(query, str):
        return images_like(project, query, by, folder, k)
    if isinstance(query, str):
        return images_for(project, query, folder, k)
    if folder:
        raise InputError(
            f"{folder}: a folder has no sentences to find for an image; ask for images that look alike with "
            "--by fne, or leave --in out to search the catalog"
        )
    return sentences_for(project, query, k)
