"""The OpenAPI document, built from the same table as the routes.

Every endpoint also exists below `/contexts/{context}`; the document says so once and omits those paths.
"""

from functools import cache
from http import HTTPStatus
from typing import Any, Final

import msgspec

from rookery.registry.entities import ErrorMessage
from rookery.registry.rest.endpoints import Endpoint
from rookery.registry.rest.media_types import RESPONSE_TYPES
from rookery.registry.rest.parameters import Parameter

PATH: Final = "/openapi.json"
MEDIA_TYPE: Final = "application/json"
_DESCRIPTION: Final = (
    "A schema registry, compatible with Confluent's. Each path also exists below `/contexts/{context}`, "
    "with the subjects and ids of that context."
)
# Malformed headers, invalid numbers in parameters, media types, failures of the store.
_ALWAYS: Final = (400, 404, 406, 415, 500)
_WITH_BODY: Final = (413, 422)
_WITH_AUTHENTICATION: Final = (401, 403)


@cache
def document(endpoints: tuple[Endpoint, ...], *, needs_authentication: bool = False) -> bytes:
    """Build the document on the first request for it; most processes never receive one."""
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


def _parameter(parameter: Parameter, location: str) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": location,
        "required": location == "path",
        "description": parameter.description,
        "schema": parameter.describe(),
    }


def _responses(endpoint: Endpoint, components: dict[str, Any], statuses: tuple[int, ...]) -> dict[str, Any]:
    # A raw response is the text of a schema, which may be any JSON, or no JSON.
    entity = {} if endpoint.raw else _schema(endpoint.response, components)
    error = _content(_schema(ErrorMessage, components))
    errors = {*_ALWAYS, *statuses, *endpoint.error_statuses, *(_WITH_BODY if endpoint.body is not None else ())}
    return {
        "200": {"description": HTTPStatus.OK.phrase, "content": _content(entity)},
        **{str(status): {"description": HTTPStatus(status).phrase, "content": error} for status in sorted(errors)},
    }


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {media_type: {"schema": schema} for media_type in RESPONSE_TYPES}


def _schema(kind: Any, components: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type, and add the schemas that it refers to to the components."""
    (schema,), parts = msgspec.json.schema_components(
        [kind], schema_hook=_schema_of_other, ref_template="#/components/schemas/{name}"
    )
    components.update(parts)
    return schema


def _schema_of_other(kind: type) -> dict[str, Any]:
    if kind is object:
        # An empty schema would mean the same, but msgspec treats it as missing.
        return {"description": "Anything."}
    # msgspec's convention for a type without a schema: an error in the table of endpoints.
    raise NotImplementedError
