"""Readers of keystores and truststores in the formats JKS, PKCS12 and PEM.

Pure: bytes in, certificates (DER) and keys out. Every error is a ConfigError that names the key of the settings, and
contains neither passwords nor private keys. As in Java, a file of type JKS may really be PKCS12, and vice versa.
"""

import base64
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from rookery.base.distribution import install_hint
from rookery.base.errors import ConfigError
from rookery.security import java_keystore

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

JKS: Final = "JKS"
PKCS12: Final = "PKCS12"
PEM: Final = "PEM"

_TRUSTSTORE: Final = "ssl.truststore"
_KEYSTORE: Final = "ssl.keystore"
_KEY_PASSWORD: Final = "ssl.key.password"
_JCEKS_MAGIC: Final = bytes.fromhex("CECECECE")
_DER_SEQUENCE: Final = b"\x30"
_PEM_DASHES: Final = "-----"
_PEM_MARK: Final = re.compile(r"-----(BEGIN|END) ([A-Z0-9 ]+)(?=-----)")
_CERTIFICATE_LABELS: Final = ("CERTIFICATE", "X509 CERTIFICATE")
_KEY_LABEL: Final = "PRIVATE KEY"
_ENCRYPTED_KEY_LABEL: Final = "ENCRYPTED PRIVATE KEY"


class KeyEntry(NamedTuple):
    """A private key (DER of PKCS#8, not encrypted) and its certificates (DER), its own first."""

    key: bytes
    certificates: tuple[bytes, ...]

    def __repr__(self) -> str:
        """Return a text without the key, which must not appear in a log."""
        return f"KeyEntry({len(self.certificates)} certificates)"


def read_trusted(data: bytes, kind: str, password: str | None) -> tuple[bytes, ...]:
    """Return the certificates of `ssl.truststore.location`."""
    format_ = _find_format(data, kind, _TRUSTSTORE)
    if format_ == PEM:
        return pem_certificates(_pem_text(data), f"{_TRUSTSTORE}.location")
    if format_ == JKS:
        with _as_config_error(_TRUSTSTORE, f"{_TRUSTSTORE}.password"):
            store = java_keystore.parse(data, password)
        # As in Java, only the first certificate of a key's chain is trusted, not its issuers. The library for PKCS12
        # does not say which certificates belong to a chain.
        certificates = (*store.trusted, *(key.certificates[0] for key in store.keys if key.certificates))
    else:
        certificates = _der(_pkcs12_certificates(_read_pkcs12(data, password, _TRUSTSTORE)))
    if not certificates:
        raise ConfigError(f"{_TRUSTSTORE}.location holds no certificate: add one with keytool -importcert")
    return certificates


def read_key(data: bytes, kind: str, password: str | None, key_password: str | None) -> KeyEntry:
    """Return the key of `ssl.keystore.location`. In a JKS store, `key_password` defaults to the store's password.

    A JKS or PEM file with several keys is rejected, since it is ambiguous; of PKCS12 the first key is used.
    """
    format_ = _find_format(data, kind, _KEYSTORE)
    name = f"{_KEYSTORE}.location"
    if format_ == PEM:
        text = _pem_text(data)
        return KeyEntry(pem_key(text, key_password, name), pem_certificates(text, name))
    if password is None:
        raise ConfigError(f"{_KEYSTORE}.password is not set: a keystore of type {kind} needs one")
    if format_ == PKCS12:
        return _pkcs12_key(_read_pkcs12(data, password, _KEYSTORE))
    with _as_config_error(_KEYSTORE, f"{_KEYSTORE}.password"):
        entry = _only_key(java_keystore.parse(data, password))
    with _as_config_error(_KEYSTORE, _KEY_PASSWORD):
        key = java_keystore.decrypt_key(entry.protected, key_password if key_password is not None else password)
    return KeyEntry(_pkcs8(key, None, name), entry.certificates)


def pem_certificates(text: str, name: str) -> tuple[bytes, ...]:
    """Return all certificates in a text; `name` is the setting that has it."""
    found = tuple(_pem_bytes(body, name) for label, body in _pem_blocks(text) if label in _CERTIFICATE_LABELS)
    if not found:
        raise ConfigError(f"{name} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    return found


def pem_key(text: str, password: str | None, name: str) -> bytes:
    """Return the only private key in a text, as DER of PKCS#8; `name` is the setting that has it."""
    keys = [(label, body) for label, body in _pem_blocks(text) if label.endswith(_KEY_LABEL)]
    if len(keys) != 1:
        raise ConfigError(f"{name} holds {len(keys)} private keys in PEM: it must be one (-----BEGIN PRIVATE KEY-----)")
    [(label, body)] = keys
    if ":" in body:
        raise ConfigError(f"{name}: convert the key to PKCS#8: openssl pkcs8 -topk8 -in OLD.pem -out NEW.pem")
    encrypted = label == _ENCRYPTED_KEY_LABEL
    if encrypted and password is None:
        raise ConfigError(f"{_KEY_PASSWORD} is not set, but the key in {name} is encrypted")
    return _pkcs8(_pem_bytes(body, name), password if encrypted else None, name)


def encrypted_pem(entry: KeyEntry, password: str) -> bytes:
    """Return key and certificates as PEM, with the key encrypted."""
    with _library():
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            Encoding,
            PrivateFormat,
            load_der_private_key,
        )
    key = load_der_private_key(entry.key, None)
    encryption = BestAvailableEncryption(password.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption) + pem_text(entry.certificates).encode()


def pem_text(certificates: Iterable[bytes]) -> str:
    """Return certificates (DER) as PEM."""
    return "".join(
        f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(certificate).decode()}-----END CERTIFICATE-----\n"
        for certificate in certificates
    )


def _find_format(data: bytes, kind: str, store: str) -> str:
    """Return the format of the data, which for JKS and PKCS12 may differ from the declared one."""
    declared = kind.upper()
    if declared not in (JKS, PKCS12, PEM):
        raise ConfigError(f"{store}.type is {kind}: it must be JKS, PKCS12 or PEM; {_conversion(kind)}")
    if declared == PEM:
        return PEM
    if data.startswith(java_keystore.MAGIC):
        return JKS
    if data.startswith(_DER_SEQUENCE):
        return PKCS12
    if data.startswith(_JCEKS_MAGIC):
        raise ConfigError(f"{store}.location is a keystore of type JCEKS; {_conversion('JCEKS')}")
    if b"-----BEGIN " in data:
        raise ConfigError(f"{store}.location is PEM: set {store}.type to PEM")
    raise ConfigError(f"{store}.location is neither JKS nor PKCS12: it is another file, or damaged")


def _conversion(kind: str) -> str:
    command = f"keytool -importkeystore -srckeystore OLD -srcstoretype {kind}"
    return f"convert it: {command} -destkeystore NEW.p12 -deststoretype PKCS12"


def _pem_text(data: bytes) -> str:
    """Decode the text. Bytes that are not ASCII occur only in comments between the blocks, in any encoding."""
    return data.decode("latin-1")


def _pem_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the label and body of each BEGIN that has an END, in linear time.

    A single regular expression would search for the END from each BEGIN.
    """
    marks = list(_PEM_MARK.finditer(text))
    last_ends = {mark[2]: mark.start() for mark in marks if mark[1] == "END"}
    label, position = None, 0
    for mark in marks:
        kind, name, after = mark[1], mark[2], mark.end() + len(_PEM_DASHES)
        if mark.start() < position:
            continue
        if label is None and kind == "BEGIN" and last_ends.get(name, 0) >= after:
            label, position = name, after
        elif kind == "END" and name == label:
            yield name, text[position : mark.start()]
            label, position = None, after


def _pem_bytes(body: str, name: str) -> bytes:
    """Decode a block. Line ends do not matter: a text from a properties file may have lost them."""
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except ValueError as error:
        raise ConfigError(f"{name} is damaged: the text between BEGIN and END is not base64") from error


@contextmanager
def _as_config_error(store: str, password_name: str) -> Iterator[None]:
    """Translate the errors of a JKS store to ConfigErrors that name the settings."""
    try:
        yield
    except java_keystore.WrongPasswordError as error:
        raise ConfigError(f"{password_name} does not open {store}.location: {error}") from error
    except java_keystore.JavaKeystoreError as error:
        raise ConfigError(f"{store}.location: {error}") from error


def _only_key(store: java_keystore.JavaKeystore) -> java_keystore.ProtectedKey:
    if len(store.keys) != 1:
        aliases = ", ".join(key.alias for key in store.keys) or "none"
        raise ConfigError(f"{_KEYSTORE}.location must hold one private key, and holds {len(store.keys)}: {aliases}")
    if not store.keys[0].certificates:
        raise ConfigError(f"{_KEYSTORE}.location holds a key without a certificate")
    return store.keys[0]


def _read_pkcs12(data: bytes, password: str | None, store: str) -> "PKCS12KeyAndCertificates":
    with _library():
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        hint = "is not set" if password is None else "is wrong"
        raise ConfigError(f"{store}.password {hint}, or the PKCS12 file of {store}.location is damaged") from error


def _pkcs12_certificates(store: "PKCS12KeyAndCertificates") -> Iterator["Certificate"]:
    if store.cert is not None:
        yield store.cert.certificate
    for each in store.additional_certs:
        yield each.certificate


def _pkcs12_key(store: "PKCS12KeyAndCertificates") -> KeyEntry:
    if store.key is None or store.cert is None:
        raise ConfigError(f"{_KEYSTORE}.location holds no private key with a certificate: is it a truststore?")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    chain = _chain(store.cert.certificate, [each.certificate for each in store.additional_certs])
    return KeyEntry(store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()), _der(chain))


def _chain(certificate: "Certificate", others: list["Certificate"]) -> list["Certificate"]:
    """Return a certificate, its issuer, and so on. The store may hold others, which are only trusted."""
    chain = [certificate]
    while issuer := next((each for each in others if each.subject == chain[-1].issuer and each not in chain), None):
        chain.append(issuer)
    return chain


def _der(certificates: Iterable["Certificate"]) -> tuple[bytes, ...]:
    with _library():
        from cryptography.hazmat.primitives.serialization import Encoding
    return tuple(each.public_bytes(Encoding.DER) for each in certificates)


def _pkcs8(key: bytes, password: str | None, name: str) -> bytes:
    """Return a private key, in any DER format, as PKCS#8 without encryption."""
    with _library():
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            load_der_private_key,
        )
    try:
        loaded = load_der_private_key(key, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        hint = "" if password is None else f"{_KEY_PASSWORD} is wrong, or "
        raise ConfigError(f"{hint}the private key in {name} is damaged or of an unknown kind") from error
    return loaded.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


@contextmanager
def _library() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ConfigError(f"Keys and PKCS12 files need a library ({error}): {install_hint('security')}") from error
