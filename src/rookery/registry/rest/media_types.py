"""Negotiates which of the registry's three media types a response has, and checks the media type of a request.

All three are JSON. If the client's `Accept` allows several, the server's preference decides. A request without a
`Content-Type` counts as `application/octet-stream`, which is read as JSON: simple calls of curl send no other type.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

V1_JSON: Final = "application/vnd.schemaregistry.v1+json"
DEFAULT_JSON: Final = "application/vnd.schemaregistry+json"
JSON: Final = "application/json"
# From the most to the least preferred.
RESPONSE_TYPES: Final = (V1_JSON, DEFAULT_JSON, JSON)
REQUEST_TYPES: Final = (*RESPONSE_TYPES, "application/octet-stream")


class MalformedHeaderError(ValueError):
    """The header is not a valid list of media types."""


@lru_cache(maxsize=256)
def negotiate(accept: str) -> str | None:
    """Return the media type for a request with this `Accept`; None if the client accepts none of the three."""
    if not accept.strip():
        return V1_JSON
    ranges = list(_ranges(accept))
    weights = {own: max((q for each, q in ranges if _matches(each, own)), default=0.0) for own in RESPONSE_TYPES}
    best = max(RESPONSE_TYPES, key=lambda own: weights[own])
    return best if weights[best] > 0 else None


def accepts_request(content_type: str) -> bool:
    """Whether a body of this type is accepted. Parameters, such as a character set, are ignored."""
    essence = content_type.partition(";")[0].strip().lower()
    return not essence or any(_matches(essence, each) for each in REQUEST_TYPES)


def _ranges(accept: str) -> Iterator[tuple[str, float]]:
    for part in accept.split(","):
        if not part.strip():
            continue
        media_range, *parameters = (each.strip().lower() for each in part.split(";"))
        # Java's built-in HTTP client sends a single star.
        media_range = "*/*" if media_range == "*" else media_range
        kind, slash, subtype = media_range.partition("/")
        if not (kind and slash and subtype):
            raise MalformedHeaderError(accept)
        yield media_range, _weight(parameters)


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                weight = float(value)
            except ValueError:
                raise MalformedHeaderError(parameter) from None
            if not 0 <= weight <= 1:
                raise MalformedHeaderError(parameter)
            return weight
    return 1.0


def _matches(media_range: str, media_type: str) -> bool:
    kind, _, subtype = media_type.partition("/")
    _, plus, suffix = subtype.partition("+")
    return media_range in {media_type, "*/*", f"{kind}/*", f"{kind}/*{plus}{suffix}"}
