"""The effect of `ssl.*` on handshakes over the loopback, with certificates made for the test."""

import asyncio
import base64
import ssl
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from rookery.base.errors import ConfigError
from rookery.security.settings import TlsSettings
from rookery.security.tls import client_context
from tests.support.certificates import PASSWORD, Certificates, make_certificates

NOTHING = TlsSettings(
    enabled_protocols=("TLSv1.2", "TLSv1.3"),
    verify_host_name=True,
    truststore_type="JKS",
    truststore_location=None,
    truststore_password=None,
    truststore_certificates=None,
    keystore_type="JKS",
    keystore_location=None,
    keystore_password=None,
    keystore_key=None,
    keystore_certificate_chain=None,
    key_password=None,
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def trusting(certificates: Certificates, **changes: Any) -> TlsSettings:
    trusted = replace(NOTHING, truststore_type="PEM", truststore_location=str(certificates.authority))
    return replace(trusted, **changes)


class Handshake:
    """A handshake, and what both sides know of each other after it."""

    version: str | None
    client_name: str | None = None

    def __init__(self, server: ssl.SSLContext, settings: TlsSettings, host: str = "localhost") -> None:
        self._server = server
        self._client = client_context(settings)
        asyncio.run(self._connect(host))

    async def _connect(self, host: str) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", ssl=self._server)
        async with server:
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=self._client, server_hostname=host)
            try:
                # With TLS 1.3 the server verifies the client after the client's handshake has ended.
                if await reader.read() != b"welcome":
                    raise ConnectionResetError
            finally:
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("ssl_object")
        self.version = connection.version()
        peer = connection.getpeercert()
        self.client_name = peer["subject"][0][0][1] if peer else None
        writer.write(b"welcome")
        writer.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_broker_with_a_certificate_of_the_authority_is_trusted(certificates: Certificates, host: str) -> None:
    assert Handshake(certificates.server_context(), trusting(certificates), host).version == "TLSv1.3"


def test_every_format_of_a_truststore_works(certificates: Certificates) -> None:
    for settings in (
        replace(
            NOTHING,
            truststore_type="PKCS12",
            truststore_location=str(certificates.truststore),
            truststore_password=PASSWORD,
        ),
        replace(NOTHING, truststore_type="PEM", truststore_certificates=certificates.authority.read_text()),
    ):
        Handshake(certificates.server_context(), settings)


def test_a_broker_of_an_unknown_authority_is_rejected(certificates: Certificates) -> None:
    for settings in (
        trusting(certificates, truststore_location=str(certificates.stranger)),
        trusting(certificates, truststore_location=str(certificates.stranger), verify_host_name=False),
        NOTHING,
    ):
        with pytest.raises(ssl.SSLCertVerificationError, match=r"unable to get local issuer certificate|self-signed"):
            Handshake(certificates.server_context(), settings)


def test_without_a_truststore_the_systems_authorities_are_trusted(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    Handshake(certificates.server_context(), NOTHING)


def test_a_brokers_own_certificate_may_be_trusted(certificates: Certificates) -> None:
    """As in Java, a truststore need not contain the issuer."""
    own, end, _ = certificates.broker.read_text().partition("-----END CERTIFICATE-----")
    settings = replace(NOTHING, truststore_type="PEM", truststore_certificates=own + end)
    Handshake(certificates.server_context(), settings)


def test_the_host_name_is_verified_unless_disabled(certificates: Certificates) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        Handshake(certificates.server_context(), trusting(certificates), "elsewhere")
    Handshake(certificates.server_context(), trusting(certificates, verify_host_name=False), "elsewhere")


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_only_enabled_protocols_are_used(certificates: Certificates, version: str) -> None:
    settings = trusting(certificates, enabled_protocols=(version,))
    assert Handshake(certificates.server_context(), settings).version == version
    other = certificates.server_context()
    if version == "TLSv1.2":
        other.minimum_version = ssl.TLSVersion.TLSv1_3
    else:
        other.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Handshake(other, settings)


@pytest.mark.parametrize("versions", [(), ("TLSv1.1", "TLSv1.2"), ("tls",)])
def test_unknown_protocols_are_rejected(versions: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.enabled\.protocols is .*: name TLSv1\.2, TLSv1\.3 or both"):
        client_context(replace(NOTHING, enabled_protocols=versions))


def test_a_client_sends_the_certificate_of_its_keystore(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    server = certificates.server_context(ssl.CERT_REQUIRED)
    pem = certificates.client.read_text()
    key, mark, chain = pem.partition("-----BEGIN CERTIFICATE-----")
    stores: tuple[dict[str, str], ...] = (
        {"keystore_type": "PEM", "keystore_location": str(certificates.client)},
        {"keystore_type": "PEM", "keystore_key": key, "keystore_certificate_chain": mark + chain},
        {
            "keystore_type": "PKCS12",
            "keystore_location": str(certificates.client_keystore),
            "keystore_password": PASSWORD,
        },
    )
    for store in stores:
        assert Handshake(server, trusting(certificates, **store)).client_name == "client"
    assert list(tmp_path.iterdir()) == [], "no key remains on the disk"


def test_the_key_is_never_on_the_disk_unencrypted(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    load = ssl.SSLContext.load_cert_chain

    def watched(context: ssl.SSLContext, certfile: Path, password: str) -> None:
        seen.append((certfile.read_text(), certfile.parent.stat().st_mode & 0o777))
        load(context, certfile, password=password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    client_context(trusting(certificates, keystore_type="PEM", keystore_location=str(certificates.client)))
    [(text, mode)] = seen
    assert "BEGIN ENCRYPTED PRIVATE KEY" in text
    assert "BEGIN PRIVATE KEY" not in text
    assert mode == 0o700


def test_a_client_without_a_certificate_is_rejected_by_a_broker_that_requires_one(certificates: Certificates) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Handshake(certificates.server_context(ssl.CERT_REQUIRED), trusting(certificates))
    settings = trusting(certificates)
    assert Handshake(certificates.server_context(ssl.CERT_OPTIONAL), settings).client_name is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"truststore_location": "missing.jks"}, r"ssl\.truststore\.location: cannot read 'missing.jks': No such file"),
        ({"truststore_location": "nul\0"}, r"ssl\.truststore\.location: cannot read"),
        ({"keystore_location": "missing.jks"}, r"ssl\.keystore\.location: cannot read 'missing.jks': No such file"),
        ({"truststore_password": "hidden"}, r"ssl\.truststore\.password is set without a store"),
        ({"keystore_password": "hidden"}, r"ssl\.keystore\.password is set without a store"),
        ({"truststore_certificates": "hidden"}, r"ssl\.truststore\.type is JKS, .* set ssl\.truststore\.type to PEM"),
        ({"keystore_key": "hidden"}, r"ssl\.keystore\.key is set without ssl\.keystore\.certificate\.chain"),
        ({"keystore_certificate_chain": "hidden"}, r"ssl\.keystore\.certificate\.chain is set without"),
        (
            {"keystore_key": "hidden", "keystore_certificate_chain": "hidden"},
            r"ssl\.keystore\.type is JKS, but ssl\.keystore\.key holds PEM",
        ),
        (
            {"keystore_key": "hidden", "keystore_certificate_chain": "hidden", "keystore_type": "PEM"},
            r"ssl\.keystore\.key holds 0 private keys",
        ),
        (
            {"truststore_type": "PEM", "truststore_certificates": "hidden"},
            r"ssl\.truststore\.certificates holds no certificate",
        ),
        (
            {"truststore_type": "PEM", "truststore_certificates": "hidden", "truststore_location": "file"},
            r"ssl\.truststore\.location and ssl\.truststore\.certificates are both set",
        ),
        (
            {"truststore_type": "PEM", "truststore_location": "file", "truststore_password": "hidden"},
            r"ssl\.truststore\.password is set, but PEM has none",
        ),
    ],
)
def test_errors_name_the_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        client_context(replace(NOTHING, **changes))
    assert "hidden" not in str(caught.value)


def test_a_chain_that_does_not_match_its_key_is_rejected(certificates: Certificates) -> None:
    key, _, _ = certificates.client.read_text().partition("-----BEGIN CERTIFICATE-----")
    settings = replace(
        NOTHING,
        keystore_type="PEM",
        keystore_key=key,
        keystore_certificate_chain=certificates.authority.read_text(),
    )
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.certificate\.chain: the certificate does not match the key"):
        client_context(settings)


def pem(certificate: bytes) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(certificate).decode()}\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("damaged", ["", "00", "3082FFFF"])
def test_a_damaged_certificate_after_a_valid_one_is_an_error(certificates: Certificates, damaged: str) -> None:
    text = certificates.authority.read_text() + pem(bytes.fromhex(damaged))
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.certificates holds a damaged certificate"):
        client_context(replace(NOTHING, truststore_type="PEM", truststore_certificates=text))


def test_a_java_truststore_with_an_empty_certificate_is_damaged(tmp_path: Path) -> None:
    """The store has one trusted entry without a name, created at 0, of no bytes, and a digest that is not verified."""
    store = tmp_path / "empty.jks"
    store.write_bytes(bytes.fromhex("FEEDFEED 00000002 00000001 00000002 0000") + bytes(8 + 2 + 4 + 20))
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location holds a damaged certificate"):
        client_context(replace(NOTHING, truststore_location=str(store)))


@examples(max_examples=30)
@given(st.binary(max_size=40), st.integers(0, 300))
def test_a_damaged_certificate_is_a_config_error(damage: bytes, position: int) -> None:
    golden = Path(__file__).parent / "golden" / "authority.pem"
    certificate = bytearray(ssl.PEM_cert_to_DER_cert(golden.read_text()))
    certificate[position : position + len(damage)] = damage
    text = pem(bytes(certificate))
    key = (golden.parent / "client.key.pem").read_text()
    valid = replace(NOTHING, truststore_type="PEM", truststore_certificates=golden.read_text())
    for damaged in (
        replace(valid, truststore_certificates=text),
        replace(valid, keystore_type="PEM", keystore_key=key, keystore_certificate_chain=text),
    ):
        try:
            client_context(damaged)
        except ConfigError:
            continue
