"""Certificates for tests of TLS: an authority, certificates of a broker and a client, and an unrelated authority.

certificates = make_certificates(tmp_path)
with Gate(..., context=certificates.server_context(ssl.CERT_REQUIRED)) as gate: ...
"""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

PASSWORD = "store-secret"
_NOT_ENCRYPTED = NoEncryption()
_LIFETIME = timedelta(days=2)
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
_BROKER_NAMES = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1")))


class Certificates(NamedTuple):
    """Files in a directory. Those that end in `.p12` have the password PASSWORD, because Java needs one."""

    directory: Path

    @property
    def authority(self) -> Path:
        """PEM: the authority that signed the certificates of the broker and the client."""
        return self.directory / "authority.pem"

    @property
    def stranger(self) -> Path:
        """PEM: an authority that signed neither."""
        return self.directory / "stranger.pem"

    @property
    def broker(self) -> Path:
        """PEM: key, certificate for localhost and 127.0.0.1, authority."""
        return self.directory / "broker.pem"

    @property
    def locked_broker(self) -> Path:
        """The same as `broker`, with the key encrypted with PASSWORD."""
        return self.directory / "locked-broker.pem"

    @property
    def client(self) -> Path:
        """PEM: key, certificate of CN=client, authority."""
        return self.directory / "client.pem"

    @property
    def truststore(self) -> Path:
        """PKCS12: the authority, with Java's mark for trusted certificates."""
        return self.directory / "truststore.p12"

    @property
    def broker_keystore(self) -> Path:
        """PKCS12: the same as `broker`."""
        return self.directory / "broker.p12"

    @property
    def client_keystore(self) -> Path:
        """PKCS12: the same as `client`."""
        return self.directory / "client.p12"

    def server_context(self, clients: ssl.VerifyMode = ssl.CERT_NONE) -> ssl.SSLContext:
        """Return the broker's context; `clients` is whether clients must present a certificate of the authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.broker)
        context.load_verify_locations(self.authority)
        context.verify_mode = clients
        return context


def make_certificates(directory: Path) -> Certificates:
    made = Certificates(directory)
    authority = _authority("authority")
    made.authority.write_bytes(_pem(authority.certificate))
    made.stranger.write_bytes(_pem(_authority("stranger").certificate))
    for name, pem, keystore, names in (
        ("broker", made.broker, made.broker_keystore, _BROKER_NAMES),
        ("client", made.client, made.client_keystore, ()),
    ):
        identity = _signed(name, authority, names)
        chain = _pem(identity.certificate) + _pem(authority.certificate)
        pem.write_bytes(_key_pem(identity.key) + chain)
        keystore.write_bytes(_pkcs12(name, identity, authority))
        locked = _key_pem(identity.key, BestAvailableEncryption(PASSWORD.encode()))
        pem.with_name(f"locked-{pem.name}").write_bytes(locked + chain)
    trusted = pkcs12.PKCS12Certificate(authority.certificate, b"authority")
    made.truststore.write_bytes(
        pkcs12.serialize_java_truststore([trusted], BestAvailableEncryption(PASSWORD.encode())),
    )
    return made


def make_identity(
    directory: Path, name: str, *, names: tuple[str, ...] = (), lifetime: timedelta = _LIFETIME
) -> tuple[Path, Path]:
    """Return a new authority and a key with a certificate of it, as PEM files."""
    authority = _authority(f"authority of {name}")
    identity = _signed(name, authority, tuple(map(x509.DNSName, names)), lifetime)
    trusted, key = directory / f"{name}-authority.pem", directory / f"{name}.pem"
    trusted.write_bytes(_pem(authority.certificate))
    key.write_bytes(_key_pem(identity.key) + _pem(identity.certificate))
    return trusted, key


class _Identity(NamedTuple):
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def _authority(name: str) -> _Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, key).issuer_name(_name(name))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    # Since Python 3.13 an authority without the key usage for signing certificates is rejected by default.
    builder = builder.add_extension(_SIGNS_CERTIFICATES, critical=True)
    return _Identity(key, builder.sign(key, hashes.SHA256()))


def _signed(
    name: str, authority: _Identity, names: tuple[x509.GeneralName, ...], lifetime: timedelta = _LIFETIME
) -> _Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, key, lifetime).issuer_name(authority.certificate.subject)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _Identity(key, builder.sign(authority.key, hashes.SHA256()))


def _builder(name: str, key: ec.EllipticCurvePrivateKey, lifetime: timedelta = _LIFETIME) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder(subject_name=_name(name), public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LIFETIME)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey, encryption: KeySerializationEncryption = _NOT_ENCRYPTED) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def _pkcs12(name: str, identity: _Identity, authority: _Identity) -> bytes:
    return pkcs12.serialize_key_and_certificates(
        name.encode(),
        identity.key,
        identity.certificate,
        [authority.certificate],
        BestAvailableEncryption(PASSWORD.encode()),
    )
