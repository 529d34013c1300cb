"""The authority of a secured cluster, and the certificates that it issues."""

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from rookery.base.errors import ConfigError
from rookery.security.authority import KeyPair, Subject, end_of_pem, issue, make_authority, subject_of_pem

NOW_MS = 1_800_000_000_000
DAY_S = 86_400
SUBJECT = Subject(name="node-1", alternative_names=("kafka1.example.com", "10.0.0.1", "::1"))


@pytest.fixture(scope="module")
def authority() -> KeyPair:
    return make_authority("Rookery test", now_ms=NOW_MS, days=100)


def test_a_certificate_is_for_its_node_only(authority: KeyPair) -> None:
    made = issue(authority, SUBJECT, now_ms=NOW_MS, days=10)
    loaded = x509.load_pem_x509_certificate(made.certificate.encode())
    assert loaded.subject.rfc4514_string() == "CN=node-1"
    assert loaded.issuer.rfc4514_string() == "CN=Rookery test"
    assert not loaded.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = set(loaded.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert usage == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert subject_of_pem(made.certificate) == SUBJECT
    assert loaded.not_valid_after_utc.timestamp() == NOW_MS / 1000 + 10 * DAY_S
    loaded.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.encode()))


def test_no_certificate_outlives_its_authority(authority: KeyPair) -> None:
    made = issue(authority, SUBJECT, now_ms=NOW_MS, days=1000)
    assert end_of_pem(made.certificate) == end_of_pem(authority.certificate)
    with pytest.raises(ConfigError, match="has expired on"):
        issue(authority, SUBJECT, now_ms=NOW_MS + 101 * DAY_S * 1000, days=10)


def test_a_wrong_key_is_named(authority: KeyPair) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        issue(KeyPair(key="nothing", certificate=authority.certificate), SUBJECT, now_ms=NOW_MS, days=1)


def test_openssl_accepts_both_by_its_strict_rules(tmp_path: Path) -> None:
    from rookery.base.clock import SystemClock

    now_ms = SystemClock().now_ms()
    authority = make_authority("Rookery test", now_ms=now_ms, days=2)
    made = issue(authority, SUBJECT, now_ms=now_ms, days=1)
    key_file = tmp_path / "node.pem"
    key_file.write_text(made.key + made.certificate)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(key_file)
    client = ssl.create_default_context(cadata=authority.certificate)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ends = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in range(2)]
    (to_client, to_server) = ends[0]
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="10.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(6):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert sides[0].getpeercert()
    assert "key" not in repr(made)
