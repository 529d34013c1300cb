import pytest

from rookery.registry.rest.media_types import (
    DEFAULT_JSON,
    JSON,
    V1_JSON,
    MalformedHeaderError,
    accepts_request,
    negotiate,
)


@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        ("", V1_JSON),
        ("*/*", V1_JSON),
        ("application/*", V1_JSON),
        ("application/*+json", V1_JSON),
        ("application/*+json; q=0.5, application/vnd.schemaregistry+json", DEFAULT_JSON),
        (JSON, JSON),
        (DEFAULT_JSON, DEFAULT_JSON),
        ("APPLICATION/JSON", JSON),
        (f"{V1_JSON}, {DEFAULT_JSON}; q=0.9, {JSON}; q=0.5", V1_JSON),
        (f"{JSON}, {V1_JSON}; q=0.9", JSON),
        (f"{JSON}, {V1_JSON}", V1_JSON),
        ("text/html, application/json;q=0.2", JSON),
        # Sent by Java's built-in HTTP client.
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", V1_JSON),
        ("text/html", None),
        ("application/json;q=0", None),
        ("application/xml, text/*", None),
        ("application/*+xml, application/*json, text/*+json", None),
    ],
)
def test_the_server_prefers_among_the_accepted_types(accept: str, answered: str | None) -> None:
    assert negotiate(accept) == answered


@pytest.mark.parametrize("accept", ["json", "/json", "application/", "application/json;q=much", "application/json;q=2"])
def test_malformed_headers(accept: str) -> None:
    with pytest.raises(MalformedHeaderError):
        negotiate(accept)


@pytest.mark.parametrize(
    "content_type",
    ["", V1_JSON, DEFAULT_JSON, JSON, "application/json; charset=utf-8", "application/octet-stream", "*/*"],
)
def test_bodies_are_json(content_type: str) -> None:
    assert accepts_request(content_type)


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "application/x-www-form-urlencoded", "json"])
def test_other_bodies_are_rejected(content_type: str) -> None:
    assert not accepts_request(content_type)
