"""Unsigned tokens, and the expiry of tokens."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import ConfigError
from rookery.security.jwt import expiry_s, unsecured_token
from tests.security.bearer import NOW_S, jwt


def parts_of(token: str) -> list[Any]:
    header, claims, signature = token.split(".")
    assert signature == ""
    return [json.loads(base64.urlsafe_b64decode(part + "==")) for part in (header, claims)]


def test_an_unsecured_token() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": 'al"ice',
        "unsecuredLoginNumberClaim_age": "7",
        "unsecuredLoginListClaim_scope": "|read|write",
        "unsecuredLoginListClaim_none": "",
        "unsecuredLoginLifetimeSeconds": "60",
        "unsecuredLoginExtension_x": "y",
    }
    token = unsecured_token(options, NOW_S)
    claims = {"sub": 'al"ice', "age": 7.0, "scope": ["read", "write"], "none": [], "exp": NOW_S + 60, "iat": NOW_S}
    assert parts_of(token) == [{"alg": "none"}, claims]
    assert expiry_s(token) == NOW_S + 60


def test_an_unsecured_token_lasts_an_hour_and_may_use_another_claim() -> None:
    options = {"unsecuredLoginStringClaim_user": "alice", "unsecuredLoginPrincipalClaimName": "user"}
    assert parts_of(unsecured_token(options, NOW_S))[1] == {"user": "alice", "exp": NOW_S + 3600, "iat": NOW_S}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, 'add unsecuredLoginStringClaim_sub="NAME"'),
        ({"unsecuredLoginStringClaim_sub": ""}, "StringClaim_sub"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginPrincipalClaimName": "user"}, "StringClaim_user"),
        ({"unsecuredLoginStringClaim_exp": "1"}, "remove unsecuredLoginStringClaim_exp"),
        ({"unsecuredLoginNumberClaim_x": "y"}, "unsecuredLoginNumberClaim_x must be a number"),
        ({"unsecuredLoginLifetimeSeconds": "nan"}, "unsecuredLoginLifetimeSeconds must be a number"),
    ],
)
def test_invalid_options(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=rf"^sasl\.jaas\.config.*{text}"):
        unsecured_token(options, NOW_S)


@pytest.mark.parametrize(
    "token", ["", "abc", "a.b", jwt(), jwt(exp="1"), jwt(exp=10**400), "a.b.c", f"a.{jwt(exp=1)}", "..", "é.é.é"]
)
def test_tokens_without_an_expiry(token: str) -> None:
    assert expiry_s(token) is None


@given(st.text())
def test_any_text_is_accepted(payload: str) -> None:
    expiry_s(f"a.{base64.urlsafe_b64encode(payload.encode()).decode()}.b")
    expiry_s(f"a.{payload}.b")
