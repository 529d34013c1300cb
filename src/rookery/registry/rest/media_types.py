"""Which of the registry's three media types an answer has, and which of them a request may have.

All three are JSON. A server's own preference decides where the client's `Accept` leaves a choice. Requests without a
`Content-Type` count as `application/octet-stream`, which is taken for JSON: that is what ad hoc use of curl sends.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

V1_JSON: Final = "application/vnd.schemaregistry.v1+json"
DEFAULT_JSON: Final = "application/vnd.schemaregistry+json"
JSON: Final = "application/json"
# From the most to the least preferred.
ANSWER_TYPES: Final = (V1_JSON, DEFAULT_JSON, JSON)
REQUEST_TYPES: Final = (*ANSWER_TYPES, "application/octet-stream")


class MalformedHeaderError(ValueError):
    """The header is no list of media types."""


@lru_cache(maxsize=256)
def negotiate(accept: str) -> str | None:
    """The type of the answer to a request with this `Accept`; None if the client accepts none of ours."""
    if not accept.strip():
        return V1_JSON
    ranges = list(_ranges(accept))
    weights = {answer: max((q for each, q in ranges if _matches(each, answer)), default=0.0) for answer in ANSWER_TYPES}
    best = max(ANSWER_TYPES, key=lambda answer: weights[answer])
    return best if weights[best] > 0 else None


def accepts_request(content_type: str) -> bool:
    """Whether a body of this type is read. Parameters, such as a character set, make no difference."""
    essence = content_type.partition(";")[0].strip().lower()
    return not essence or any(_matches(essence, each) for each in REQUEST_TYPES)


def _ranges(accept: str) -> Iterator[tuple[str, float]]:
    for part in accept.split(","):
        if not part.strip():
            continue
        media_range, *parameters = (each.strip().lower() for each in part.split(";"))
        # Java's own HTTP client sends a lone star.
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
