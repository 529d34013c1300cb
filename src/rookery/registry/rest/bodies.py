"""Bodies of requests: how much of them is read, and what JSON that does not fit is answered with."""

import re
from functools import cache
from typing import Any, Final

import msgspec
from starlette.requests import Request

from rookery.registry.rest.endpoints import Endpoint
from rookery.registry.rest.failures import http_failure

# Fractions stay as they are written.
_UNTYPED: Final = msgspec.json.Decoder(float_hook=str)
_PLACE: Final = re.compile(r"`(?P<path>\$[^`]*)`$|\((?P<byte>byte \d+)\)$")


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
    """Fields that are not known are ignored; numbers and booleans may be strings, and strings may be these.

    Raises RegistryError.
    """
    try:
        decoded = _fit(endpoint.body, body.decode()) if body.strip() else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise http_failure(400, f"The request body {_reason(error)}") from None
    if decoded is None:
        raise http_failure(422, f"{endpoint.name}.request must not be null (was null)")
    return decoded


def _fit(kind: Any, text: str) -> Any:
    try:
        return _decoder(kind).decode(text)
    except msgspec.ValidationError:
        return msgspec.convert(_with_strings(_UNTYPED.decode(text)), kind | None, strict=False)


def _with_strings(value: Any) -> Any:
    """All numbers and booleans as strings: where no string is wanted, these are read as what they were."""
    match value:
        case dict():
            return {name: _with_strings(each) for name, each in value.items()}
        case list():
            return [_with_strings(each) for each in value]
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
    return value


def _reason(error: Exception) -> str:
    """In our own words; those of the decoder tell the place at their end."""
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 at byte {error.start}"
    place = _PLACE.search(str(error))
    if isinstance(error, msgspec.ValidationError):
        return f"has a value that does not fit at {place['path'] if place else '$'}"
    return f"is not JSON at {place['byte'] if place else 'its end'}"


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind | None, strict=False)


def _too_large(size_bytes: int, size_bytes_max: int) -> Exception:
    return http_failure(413, f"Request body is too large: {size_bytes}>{size_bytes_max}")
