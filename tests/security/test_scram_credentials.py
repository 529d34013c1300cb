"""The credentials of SCRAM users, with the example of RFC 7677."""

import base64
import hashlib
import hmac

import pytest

from rookery.security.scram_credentials import (
    ScramCredential,
    ScramMechanism,
    credential_of,
    derive_credential,
    salted_password,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
EXCHANGE = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={NONCE}".encode()


def test_the_example_of_rfc_7677() -> None:
    credential = derive_credential(ScramMechanism.SCRAM_SHA_256, "pencil", SALT, 4096)
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_signature = hmac.digest(credential.stored_key, EXCHANGE, "sha256")
    client_key = bytes(left ^ right for left, right in zip(proof, client_signature, strict=True))
    assert hashlib.sha256(client_key).digest() == credential.stored_key
    server_signature = hmac.digest(credential.server_key, EXCHANGE, "sha256")
    assert base64.b64encode(server_signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert credential.iterations == 4096
    assert credential.salt == SALT


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_hashed_password_gives_the_credential_of_the_password(mechanism: ScramMechanism) -> None:
    salted = salted_password(mechanism, "gehëim", SALT, 4096)
    credential = credential_of(mechanism, salted, SALT, 4096)
    assert credential == derive_credential(mechanism, "gehëim", SALT, 4096)
    assert credential != derive_credential(mechanism, "geheim", SALT, 4096)
    assert len(credential.stored_key) == len(credential.server_key) == hashlib.new(mechanism.digest).digest_size


def test_mechanisms_have_the_names_of_sasl() -> None:
    assert [(each.value, each.mechanism_name) for each in ScramMechanism] == [
        (1, "SCRAM-SHA-256"),
        (2, "SCRAM-SHA-512"),
    ]
    assert ScramMechanism.of_name("SCRAM-SHA-512") is ScramMechanism.SCRAM_SHA_512
    assert ScramMechanism.of_name("PLAIN") is None


def test_keys_are_not_shown() -> None:
    assert repr(ScramCredential(b"salt", b"stored", b"server", 4096)) == "ScramCredential(iterations=4096)"
