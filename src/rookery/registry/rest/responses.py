"""HTTP responses: entities and errors as JSON, in the negotiated media type."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from rookery.registry.errors import RegistryError
from rookery.registry.rest.media_types import JSON

_encoder = msgspec.json.Encoder()


def entity_response(entity: Any, media_type: str) -> Response:
    return Response(_encoder.encode(entity), media_type=media_type)


def raw_response(text: str, media_type: str) -> Response:
    return Response(text.encode(), media_type=media_type)


def error_response(error: RegistryError, media_type: str = JSON, headers: Mapping[str, str] | None = None) -> Response:
    body = _encoder.encode({"error_code": error.code, "message": error.message})
    return Response(body, error.status, headers, media_type)


def without_body(response: Response) -> Response:
    """Return the response to HEAD: the same headers, including the length of the body, without the body."""
    return Response(b"", response.status_code, dict(response.headers))
