"""Entities and values of `rookery quotas`."""

import pytest

from rookery.base.errors import ConfigError
from rookery.base.quota_entities import DEFAULT, QuotaEntity
from rookery.cli.quota_words import check_keys, parse_rate, quota_entity, rate_text


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1000", 1000),
        ("1.5", 1.5),
        ("10MB", 10**7),
        ("512KiB", 2**19),
        ("2 GB/s", 2 * 10**9),
        ("1k", 1000),
        ("1K", 1000),
    ],
)
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text, "--produce-rate") == rate


@pytest.mark.parametrize("text", ["", "fast", "-1", "10XB", "1e6"])
def test_a_wrong_rate_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--produce-rate: '{text}' must be bytes per second"):
        parse_rate(text, "--produce-rate")


def test_entities() -> None:
    assert quota_entity(user="alice", default_client_id=True) == QuotaEntity(user="alice", client_id=DEFAULT)
    assert quota_entity(default_ip=True) == QuotaEntity(ip=DEFAULT)
    for options, sentence in (
        ({}, "name what the quota is for"),
        ({"user": "a", "default_user": True}, "only one of --user and --default-user"),
        ({"user": "a", "ip": "10.0.0.1"}, "--ip stands alone"),
        ({"client_id": ""}, "--client-id: the name is empty"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            quota_entity(**options)


def test_quotas_fit_their_entities() -> None:
    check_keys(QuotaEntity(ip="10.0.0.1"), {"connection_creation_rate": 1})
    with pytest.raises(ConfigError, match=r"producer_byte_rate does not apply to ip 10.0.0.1: set connection_creation"):
        check_keys(QuotaEntity(ip="10.0.0.1"), {"producer_byte_rate": 1})
    with pytest.raises(ConfigError, match="connection_creation_rate does not apply to user alice"):
        check_keys(QuotaEntity(user="alice"), {"connection_creation_rate": 1})


def test_values_for_people() -> None:
    assert rate_text("producer_byte_rate", 1_000_000.0) == "1,000,000 bytes/s"
    assert rate_text("request_percentage", 12.5) == "12.5 %"
    assert rate_text("connection_creation_rate", 3.0) == "3 per second"
