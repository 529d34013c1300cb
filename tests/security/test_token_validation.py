"""Bearer tokens at the broker: signatures, claims, and the exchange of OAUTHBEARER."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from rookery.protocol.principal import Principal
from rookery.security import sasl
from rookery.security.sasl_server.exchange import InvalidCredentialsError, LoginError
from rookery.security.sasl_server.oauth_bearer import OAuthBearerMechanism
from rookery.security.token_signatures import VerificationKeys
from rookery.security.token_validation import (
    BearerToken,
    InvalidTokenError,
    TokenRules,
    UnknownKeyError,
    read_unsecured,
    validate,
)
from tests.security.test_sasl_server import begin, log_in

NOW_S = 1_000_000
RULES = TokenRules(
    issuer="https://provider", audiences=("brokers", "b"), skew_s=30, scope_claim="scope", subject_claim="sub"
)
CLAIMS: dict[str, Any] = {
    "iss": "https://provider",
    "aud": ["x", "brokers"],
    "sub": "carol",
    "scope": "read write",
    "iat": NOW_S - 10,
    "exp": NOW_S + 60,
}
RSA, EC, OTHER = (
    RSAKey.generate_key(2048, {"kid": "r", "use": "sig"}),
    ECKey.generate_key("P-256", {"kid": "e"}),
    RSAKey.generate_key(2048, {"kid": "other"}),
)
KEYS = VerificationKeys(
    json.dumps({"keys": [RSA.as_dict(private=False), EC.as_dict(private=False), {"kty": "strange"}, {"kty": "RSA"}]})
)


def signed(key: Any, alg: str, kid: str | None = None, claims: dict[str, Any] | None = None) -> str:
    header = {"alg": alg, **({} if kid is None else {"kid": kid})}
    return jwt.encode(header, claims or CLAIMS, key, algorithms=[alg])


def test_claims() -> None:
    token = validate(CLAIMS, RULES, NOW_S)
    assert token == BearerToken(subject="carol", scopes=("read", "write"), expires_ms=(NOW_S + 60) * 1000)
    assert validate({**CLAIMS, "scope": ["a", "b c"]}, RULES, NOW_S).scopes == ("a", "b", "c")
    assert validate({**CLAIMS, "aud": "b"}, RULES, NOW_S + 89).subject == "carol"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"exp": NOW_S - 30}, "has expired"),
        ({"exp": None}, "no claim 'exp'"),
        ({"exp": True}, "no claim 'exp'"),
        ({"exp": 1e999}, "no claim 'exp'"),
        ({"iat": None}, "no claim 'iat'"),
        ({"iat": NOW_S + 70}, "issued after its end"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iss": "https://other"}, "another issuer"),
        ({"aud": "x"}, "not for one of"),
        ({"aud": None}, "not for one of"),
        ({"sub": ""}, "no claim 'sub'"),
        ({"sub": 5}, "no claim 'sub'"),
    ],
)
def test_claims_that_are_rejected(changed: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidTokenError, match=expected):
        validate({**CLAIMS, **changed}, RULES, NOW_S)


@pytest.mark.parametrize(("key", "alg", "kid"), [(RSA, "RS256", "r"), (RSA, "PS512", "r"), (EC, "ES256", "e")])
def test_signatures(key: Any, alg: str, kid: str) -> None:
    assert KEYS.verify(signed(key, alg, kid))["sub"] == "carol"


def test_the_only_key_needs_no_id() -> None:
    keys = VerificationKeys(json.dumps({"keys": [RSA.as_dict(private=False)]}))
    assert keys.verify(signed(RSA, "RS256"))["sub"] == "carol"


def test_signatures_that_are_rejected() -> None:
    with pytest.raises(UnknownKeyError):
        KEYS.verify(signed(OTHER, "RS256", "other"))
    with pytest.raises(UnknownKeyError):
        KEYS.verify(signed(RSA, "RS256"))
    with pytest.raises(InvalidTokenError, match="signature"):
        KEYS.verify(signed(OTHER, "RS256", "r"))
    with pytest.raises(InvalidTokenError, match="signature"):
        KEYS.verify(signed(EC, "ES256", "r"))
    secret = OctKey.import_key(json.dumps(RSA.as_dict(private=False)))
    with pytest.raises(InvalidTokenError, match="private key"):
        KEYS.verify(signed(secret, "HS256", "r"))
    header, claims, signature = signed(RSA, "RS256", "r").split(".")
    with pytest.raises(InvalidTokenError):
        KEYS.verify(f"{header}.{claims[:-4]}AAAA.{signature}")
    with pytest.raises(InvalidTokenError):
        KEYS.verify(f"{header}.{claims}.")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "AA"}]}'])
def test_documents_without_keys(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        VerificationKeys(text)


def test_unsecured_tokens() -> None:
    assert read_unsecured("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.") == {"sub": "a"}
    with pytest.raises(InvalidTokenError):
        read_unsecured(signed(RSA, "RS256", "r"))


@given(st.text(max_size=40) | st.binary(max_size=40).map(lambda data: data.decode("latin-1")))
def test_other_texts_are_no_tokens(text: str) -> None:
    with pytest.raises(InvalidTokenError):
        KEYS.verify(text)


def mechanism() -> OAuthBearerMechanism:
    return OAuthBearerMechanism(lambda token: validate(KEYS.verify(token), RULES, NOW_S))


def test_a_login() -> None:
    identity = log_in(mechanism(), sasl.oauth_bearer(signed(RSA, "RS256", "r"), {"logicalCluster": "lkc-1"}))
    assert identity.principal == Principal("User", "carol")
    assert identity.expires_ms == (NOW_S + 60) * 1000


def test_an_invalid_token_is_answered_before_the_error() -> None:
    exchange, client = begin(mechanism()), sasl.oauth_bearer(signed(OTHER, "RS256", "r"))
    reason = exchange.send(next(client))
    assert reason == b'{"status":"invalid_token"}'
    with pytest.raises(LoginError) as error:
        exchange.send(client.send(reason))
    assert str(error.value) == '{"status":"invalid_token"}'
    assert "signature" in error.value.reason


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth\x01\x01",
    ],
)
def test_malformed_messages(message: bytes) -> None:
    with pytest.raises(InvalidCredentialsError):
        begin(mechanism()).send(message)


def test_the_authorization_id_is_the_user() -> None:
    token = signed(RSA, "RS256", "r").encode()
    with pytest.raises(StopIteration):
        begin(mechanism()).send(b"n,a=carol,\x01auth=Bearer " + token + b"\x01\x01")
    with pytest.raises(LoginError, match="different from the token's principal name"):
        begin(mechanism()).send(b"n,a=dave,\x01auth=Bearer " + token + b"\x01\x01")
