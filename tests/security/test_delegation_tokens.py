"""Delegation tokens: their secrets, their end, and their renewers."""

import base64

import pytest

from rookery.protocol.principal import Principal, parse_principal
from rookery.security.delegation_tokens import DelegationToken, token_hmac, token_password

TOKEN = DelegationToken(
    token_id="AAAAAAAAAAEAAAAAAAAAAg",
    owner=Principal("User", "alice"),
    requester=Principal("User", "bob"),
    renewers=(Principal("User", "carol"),),
    issue_ms=1000,
    max_ms=3000,
    expiry_ms=2000,
)


def test_the_hmac_is_hmac_sha512_of_the_id() -> None:
    # The second case of RFC 4231.
    assert token_hmac("Jefe", "what do ya want for nothing?").hex().startswith("164b7a7bfcf819e2e395fbe73b56e0a387bd64")
    assert base64.b64decode(token_password("key", "id")) == token_hmac("key", "id")
    assert token_hmac("key", "id") != token_hmac("other", "id")


@pytest.mark.parametrize(("now_ms", "expired"), [(1000, False), (2000, False), (2001, True), (3001, True)])
def test_a_token_ends_after_its_expiry(now_ms: int, expired: bool) -> None:
    assert TOKEN.is_expired(now_ms) is expired


def test_owner_and_renewers_renew_and_the_requester_does_not() -> None:
    assert TOKEN.may_be_renewed_by(Principal("User", "alice", token_authenticated=True))
    assert TOKEN.may_be_renewed_by(Principal("User", "carol"))
    assert not TOKEN.may_be_renewed_by(Principal("User", "bob"))
    assert not TOKEN.may_be_renewed_by(Principal("Group", "alice"))


@pytest.mark.parametrize(
    "principal", [Principal("User", "alice"), Principal("User", "CN=a:b,O=c"), Principal("User", "")]
)
def test_principals_have_a_text(principal: Principal) -> None:
    assert parse_principal(str(principal)) == principal


@pytest.mark.parametrize("text", ["", "alice", ":alice"])
def test_a_principal_needs_a_type(text: str) -> None:
    with pytest.raises(ValueError, match="a principal is TYPE:NAME"):
        parse_principal(text)
