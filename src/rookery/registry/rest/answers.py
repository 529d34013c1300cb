"""Answers as bytes: entities and failures as JSON, in the media type that was negotiated."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from rookery.registry.errors import RegistryError
from rookery.registry.rest.media_types import JSON

_encoder = msgspec.json.Encoder()


def entity_answer(entity: Any, media_type: str) -> Response:
    return Response(_encoder.encode(entity), media_type=media_type)


def raw_answer(text: str, media_type: str) -> Response:
    return Response(text.encode(), media_type=media_type)


def failure_answer(
    failure: RegistryError, media_type: str = JSON, headers: Mapping[str, str] | None = None
) -> Response:
    body = _encoder.encode({"error_code": failure.code, "message": failure.message})
    return Response(body, failure.status, headers, media_type)


def without_body(answer: Response) -> Response:
    """The answer to HEAD: everything but the body, whose length it still tells."""
    return Response(b"", answer.status_code, dict(answer.headers))
