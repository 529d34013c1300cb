"""Reads the bodies of requests up to a size, and decodes their JSON."""

import re
from functools import cache
from typing import Any, Final

import msgspec
from starlette.requests import Request

from rookery.registry.errors import http_error
from rookery.registry.rest.endpoints import Endpoint

# Keeps fractions as text.
_UNTYPED: Final = msgspec.json.Decoder(float_hook=str)
_LOCATION: Final = re.compile(r"`(?P<path>\$[^`]*)`$|\((?P<byte>byte \d+)\)$")


async def read(request: Request, size_bytes_max: int) -> bytes:
    """Return the whole body. Raises RegistryError (413) as soon as it is too large."""
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
    """Decode a body for an endpoint. Raises RegistryError.

    As in Confluent's registry, unknown fields are ignored, a string is accepted for a number or boolean, and a number
    or boolean is accepted for a string.
    """
    try:
        decoded = _decode_as(endpoint.body, body.decode()) if body.strip() else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise http_error(400, f"The request body {_reason(error)}") from None
    if decoded is None:
        raise http_error(422, f"{endpoint.name}.request must not be null (was null)")
    return decoded


def _decode_as(kind: Any, text: str) -> Any:
    try:
        return _decoder(kind).decode(text)
    except msgspec.ValidationError:
        return msgspec.convert(_with_strings(_UNTYPED.decode(text)), kind | None, strict=False)


def _with_strings(value: Any) -> Any:
    """Return the value with all numbers and booleans as strings; where the type is not a string, msgspec converts them
    back."""
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
    """Return the reason for a decoding error, with the location from the end of the decoder's message."""
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 at byte {error.start}"
    location = _LOCATION.search(str(error))
    if isinstance(error, msgspec.ValidationError):
        return f"has a value of the wrong type at {location['path'] if location else '$'}"
    return f"is not JSON at {location['byte'] if location else 'its end'}"


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind | None, strict=False)


def _too_large(size_bytes: int, size_bytes_max: int) -> Exception:
    return http_error(413, f"Request body is too large: {size_bytes}>{size_bytes_max}")
