"""Subjects of certificates as text. The expected texts are those of Java's `X500Principal.getName()`."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import ProtocolError
from rookery.security.certificates import subject_of

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(*attributes: tuple[x509.ObjectIdentifier, str]) -> bytes:
    name = x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(1))
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ([(NameOID.COMMON_NAME, "client")], "CN=client"),
        (
            [
                (NameOID.COUNTRY_NAME, "DE"),
                (NameOID.ORGANIZATION_NAME, "Acme, Inc."),
                (NameOID.ORGANIZATIONAL_UNIT_NAME, 'a=b+c<d>e#f;g"h\\i'),
                (NameOID.COMMON_NAME, " lead and trail  "),
            ],
            r"CN=\ lead and trail\ \ ,OU=a\=b\+c\<d\>e\#f\;g\"h\\i,O=Acme\, Inc.,C=DE",
        ),
        (
            [
                (NameOID.COMMON_NAME, "#x"),
                (NameOID.EMAIL_ADDRESS, "a@b.c"),
                (NameOID.DOMAIN_COMPONENT, "example"),
                (NameOID.USER_ID, "u1"),
                (NameOID.STREET_ADDRESS, "s 1"),
                (NameOID.LOCALITY_NAME, "Zürich"),
                (NameOID.STATE_OR_PROVINCE_NAME, "ZH"),
                (NameOID.SERIAL_NUMBER, "77"),
            ],
            r"2.5.4.5=#13023737,ST=ZH,L=Zürich,STREET=s 1,UID=u1,DC=example,"
            r"1.2.840.113549.1.9.1=#16056140622e63,CN=\#x",
        ),
        ([(NameOID.COMMON_NAME, "a  b")], "CN=a  b"),
        ([(NameOID.COMMON_NAME, " ")], "CN=\\ "),
    ],
)
def test_subjects_are_printed_as_in_java(attributes: list[tuple[x509.ObjectIdentifier, str]], expected: str) -> None:
    assert subject_of(certificate(*attributes)) == expected


@given(st.binary(max_size=200))
def test_other_bytes_are_rejected(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        subject_of(data)


def test_truncated_certificates_are_rejected() -> None:
    whole = certificate((NameOID.COMMON_NAME, "client"))
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            subject_of(whole[:size])
