"""The OpenAPI document, made from the same table as the routes.

Every endpoint can also be reached below `/contexts/{context}`; the document says so once and leaves those paths out.
"""

from functools import cache
from http import HTTPStatus
from typing import Any, Final

import msgspec

from rookery.registry.entities import ErrorMessage
from rookery.registry.rest.endpoints import Endpoint
from rookery.registry.rest.media_types import ANSWER_TYPES
from rookery.registry.rest.parameters import Parameter

PATH: Final = "/openapi.json"
MEDIA_TYPE: Final = "application/json"
_DESCRIPTION: Final = (
    "A schema registry, compatible with Confluent's. Each path is there a second time below `/contexts/{context}`, "
    "where subjects and ids are those of the context."
)
# Malformed headers, bad numbers in parameters, media types, failures of the store.
_ALWAYS: Final = (400, 404, 406, 415, 500)
_WITH_BODY: Final = (413, 422)
_WITH_AUTHENTICATION: Final = (401, 403)


@cache
def document(endpoints: tuple[Endpoint, ...], *, needs_authentication: bool = False) -> bytes:
    """Made when it is first asked for: most processes never are."""
    paths: dict[str, dict[str, Any]] = {}
    components: dict[str, Any] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, components, _WITH_AUTHENTICATION if needs_authentication else ())
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Schema registry", "version": "v1", "description": _DESCRIPTION},
        "paths": paths,
        "components": {"schemas": components},
    }
    if needs_authentication:
        described["components"]["securitySchemes"] = {"basic": {"type": "http", "scheme": "basic"}}
        described["security"] = [{"basic": []}]
    return msgspec.json.encode(described)


def _operation(endpoint: Endpoint, components: dict[str, Any], statuses: tuple[int, ...]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [
            *(_parameter(each, "path") for each in endpoint.path_parameters),
            *(_parameter(each, "query") for each in endpoint.query),
        ],
        "responses": _responses(endpoint, components, statuses),
    }
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(_schema(endpoint.body, components))}
    return operation


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": place,
        "required": place == "path",
        "description": parameter.description,
        "schema": parameter.describe(),
    }


def _responses(endpoint: Endpoint, components: dict[str, Any], statuses: tuple[int, ...]) -> dict[str, Any]:
    # A raw answer is the text of a schema, which may be JSON of any kind, or none.
    answer = {} if endpoint.raw else _schema(endpoint.answer, components)
    failure = _content(_schema(ErrorMessage, components))
    failures = {*_ALWAYS, *statuses, *endpoint.failures, *(_WITH_BODY if endpoint.body is not None else ())}
    return {
        "200": {"description": HTTPStatus.OK.phrase, "content": _content(answer)},
        **{str(status): {"description": HTTPStatus(status).phrase, "content": failure} for status in sorted(failures)},
    }


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {media_type: {"schema": schema} for media_type in ANSWER_TYPES}


def _schema(kind: Any, components: dict[str, Any]) -> dict[str, Any]:
    """Of a type; what it is made of goes to the components."""
    (schema,), parts = msgspec.json.schema_components(
        [kind], schema_hook=_schema_of_other, ref_template="#/components/schemas/{name}"
    )
    components.update(parts)
    return schema


def _schema_of_other(kind: type) -> dict[str, Any]:
    if kind is object:
        # An empty schema would say the same, but counts as none.
        return {"description": "Anything."}
    # How msgspec wants to be told that a type has no schema: it is a mistake in the table of endpoints.
    raise NotImplementedError
