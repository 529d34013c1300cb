"""A certificate authority of one cluster: makes its certificate, and issues the certificates of nodes.

Keys are on the curve P-256, which every client supports and whose handshakes are cheap. Everything is PEM text; private
keys are PKCS#8 and not encrypted, so that a node starts without a password: the files must be readable by their owner
only. Importing this module needs the extra `security`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rookery.base.errors import ConfigError
from rookery.base.types import TimestampMs
from rookery.base.values import value_class

# Clocks of other machines may be slow: a certificate is valid a little before it is made.
_BACKDATED: Final = timedelta(hours=1)
_NODE_USAGE: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@value_class(kw_only=True)
class KeyPair:
    """A private key with its certificate."""

    key: str = field(repr=False)
    certificate: str


@value_class(kw_only=True)
class Subject:
    """What a certificate is for: the common name, and the host names and addresses of the node."""

    name: str
    alternative_names: tuple[str, ...]


def make_authority(name: str, *, now_ms: TimestampMs, days: int) -> KeyPair:
    """Return a new authority, whose certificate is valid for `days`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _distinguished_name(name)
    builder = (
        _builder(subject, subject, key, now_ms)
        .not_valid_after(_time(now_ms) + timedelta(days=days))
        # No further authorities below this one.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return _signed(builder, key, key)


def issue(authority: KeyPair, subject: Subject, *, now_ms: TimestampMs, days: int) -> KeyPair:
    """Return a new key and certificate of a node, as server and client, for `days` or as long as the authority's."""
    signer, issuer = _load(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(_time(now_ms) + timedelta(days=days), issuer.not_valid_after_utc)
    if end <= _time(now_ms):
        raise ConfigError(
            f"the authority's certificate has expired on {issuer.not_valid_after_utc:%Y-%m-%d}: make another authority "
            "with rookery secure init in a new directory"
        )
    builder = (
        _builder(_distinguished_name(subject.name), issuer.subject, key, now_ms)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_NODE_USAGE), critical=False)
        .add_extension(x509.SubjectAlternativeName(_general_names(subject.alternative_names)), critical=False)
        .add_extension(_authority_key_id(issuer), critical=False)
    )
    return _signed(builder, key, signer)


def subject_of_pem(certificate: str) -> Subject:
    """Return what a certificate is for, to issue another one for the same node."""
    loaded = x509.load_pem_x509_certificate(certificate.encode())
    (name,) = loaded.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return Subject(name=str(name.value), alternative_names=tuple(str(each.value) for each in names))


def end_of_pem(certificate: str) -> datetime:
    """Return the time at which a certificate expires."""
    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now_ms: TimestampMs
) -> x509.CertificateBuilder:
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_time(now_ms) - _BACKDATED)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> KeyPair:
    certificate = builder.sign(signer, hashes.SHA256())
    return KeyPair(
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        certificate=certificate.public_bytes(Encoding.PEM).decode(),
    )


def _load(authority: KeyPair) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    try:
        key = load_pem_private_key(authority.key.encode(), None)
        certificate = x509.load_pem_x509_certificate(authority.certificate.encode())
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the authority's key or certificate cannot be read: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError("the authority's key is not one that rookery secure init has made: it must be of type EC")
    return key, certificate


def _authority_key_id(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    own = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_names(names: Iterable[str]) -> Sequence[x509.GeneralName]:
    return [_general_name(name) for name in names]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _distinguished_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _time(now_ms: TimestampMs) -> datetime:
    return datetime.fromtimestamp(now_ms // 1000, UTC)
