"""The description of the JSON interface in OpenAPI 3.1, made from the operations that the server answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from fne.serve import schemas

REFERENCE = "#/components/schemas/{model}"
PROBLEMS = {
    "400": "The request is wrong, or the photo cannot be decoded.",
    "401": "The token is missing or wrong.",
    "403": "The request comes from another site, or names another host.",
    "404": "There is no such image.",
    "409": "The project lacks what this needs, such as a trained model.",
    "503": "Busy; try again in a moment.",
}
PHOTO_PROBLEMS = {"408": "The photo came too slowly.", "413": "The photo has too many bytes."}


@dataclass(frozen=True)
class Operation:
    """A request that the server answers.

    Attributes:
        method: of HTTP.
        path: with names of path parameters in braces.
        summary: what it returns, in one line.
        parameters: the query.
        result: the answer, or None for an image.
        handle: answers it, in a thread.
    """

    method: str
    path: str
    summary: str
    parameters: type[schemas.Parameters]
    result: type[BaseModel] | None
    handle: Callable[..., Any]


def describe_interface(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the content of `/openapi.json`."""
    results = [each.result for each in operations if each.result] + [schemas.Problem]
    _, definitions = models_json_schema(
        [(model, "serialization") for model in dict.fromkeys(results)], ref_template=REFERENCE
    )
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fne serve",
            "version": version("fne-pipeline"),
            "description": "Images for a sentence, sentences for an image, and images that look similar.",
        },
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _describe(operation: Operation) -> dict[str, Any]:
    problems = PROBLEMS | (PHOTO_PROBLEMS if operation.method == "POST" else {})
    described: dict[str, Any] = {
        "operationId": operation.handle.__name__,
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation.path), *_query_parameters(operation.parameters)],
        "responses": {"200": _success(operation)}
        | {code: {"description": text} | _content("Problem") for code, text in problems.items()},
    }
    if operation.method == "POST":
        binary = {"schema": {"type": "string", "format": "binary"}}
        form = {"schema": {"type": "object", "properties": {"file": binary["schema"]}}}
        described["requestBody"] = {
            "required": True,
            "content": {"application/octet-stream": binary, "multipart/form-data": form},
        }
    return described


def _success(operation: Operation) -> dict[str, Any]:
    if operation.result is None:
        return {"description": "A JPEG.", "content": {"image/jpeg": {}}}
    return {"description": operation.summary} | _content(operation.result.__name__)


def _content(model: str) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": REFERENCE.format(model=model)}}}}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    schema = {"type": "string", "pattern": schemas.DIGEST}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in names]


def _query_parameters(model: type[schemas.Parameters]) -> list[dict[str, Any]]:
    schema = model.model_json_schema()
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": each.pop("description", ""),
            "schema": each,
        }
        for name, each in schema.get("properties", {}).items()
    ]
