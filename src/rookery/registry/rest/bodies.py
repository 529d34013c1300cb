"""Bodies of requests: how much of them is read, and what JSON that does not fit is answered with."""

from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request

from rookery.registry.rest.endpoints import Endpoint
from rookery.registry.rest.failures import http_failure


async def read(request: Request, size_bytes_max: int) -> bytes:
    """The whole body. Raises RegistryError (413) as soon as it is too large."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > size_bytes_max:
        raise _too_large(int(announced), size_bytes_max)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > size_bytes_max:
            raise _too_large(len(body), size_bytes_max)
    return bytes(body)


def decode(endpoint: Endpoint, body: bytes) -> Any:
    """Fields that are not known are ignored, numbers and booleans may be strings. Raises RegistryError."""
    try:
        decoded = _decoder(endpoint.body).decode(body) if body.strip() else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise http_failure(400, str(error)) from None
    if decoded is None:
        raise http_failure(422, f"{endpoint.name}.request must not be null (was null)")
    return decoded


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind | None, strict=False)


def _too_large(size_bytes: int, size_bytes_max: int) -> Exception:
    return http_failure(413, f"Request body is too large: {size_bytes}>{size_bytes_max}")
