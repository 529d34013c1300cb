"""The format of Java's keystores (JKS), the default until Java 9.

All numbers are big-endian; `text` is a two-byte length and UTF-8, `blob` a four-byte length and bytes:

    store        magic FEEDFEED, version (4), number of entries (4), entries, digest (20)
    entry        tag (4): 1 a key, 2 a trusted certificate; alias (text), creation time in ms (8), content
    key          DER of EncryptedPrivateKeyInfo (blob), number of certificates (4), certificates, its own first
    certificate  kind (text, not in version 1), DER (blob)

The digest is the SHA-1 of the password, the words "Mighty Aphrodite" and all bytes before the digest. A key is
encrypted by XOR with a chain of SHA-1 digests: the first of the password and a salt, each other one of the password and
the digest before it. The encrypted key is stored between the salt and the SHA-1 of password and key. Passwords are
UTF-16. This protection is weak by today's standards; the format is only read, for existing files.
"""

import hmac
from hashlib import sha1
from typing import Final

from rookery.base.errors import RookeryError
from rookery.base.values import value_class

MAGIC: Final = bytes.fromhex("FEEDFEED")

_TIME_BYTES: Final = 8
_DIGEST_BYTES: Final = 20
_WORDS: Final = b"Mighty Aphrodite"
_KEY_TAG: Final = 1
_TRUSTED_TAG: Final = 2
_DER_SEQUENCE: Final = 0x30
_DER_OCTETS: Final = 0x04
# 1.3.6.1.4.1.42.2.17.1.1 in DER: Sun's protection of keys.
_PROTECTION: Final = bytes.fromhex("060A2B060104012A02110101")


class JavaKeystoreError(RookeryError):
    """The data is not a keystore, or is damaged."""


class WrongPasswordError(RookeryError):
    """A digest, of the store or of a key, does not match the password."""


@value_class
class ProtectedKey:
    """A key as `decrypt_key` takes it, and its certificates in DER, its own first."""

    alias: str
    protected: bytes
    certificates: tuple[bytes, ...]


@value_class
class JavaKeystore:
    """The contents of a store. Certificates are in DER."""

    keys: tuple[ProtectedKey, ...]
    trusted: tuple[bytes, ...]


def parse(data: bytes, password: str | None) -> JavaKeystore:
    """Parse a store. Without a password the digest is not verified, as in Java."""
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        expected = _digest(_password_bytes(password) + _WORDS + content)
        if not hmac.compare_digest(digest, expected):
            raise WrongPasswordError("the password is wrong, or the store is damaged")
    reader = _Reader(content)
    magic, version = reader.take(len(MAGIC)), reader.number()
    if magic != MAGIC or version not in (1, 2):
        raise JavaKeystoreError("this is not a JKS keystore of version 1 or 2")
    keys: list[ProtectedKey] = []
    trusted: list[bytes] = []
    for _ in range(reader.number()):
        tag = reader.number()
        alias = reader.text()
        reader.take(_TIME_BYTES)
        if tag == _KEY_TAG:
            protected = reader.blob()
            chain = tuple(_certificate(reader, version) for _ in range(reader.number()))
            keys.append(ProtectedKey(alias, protected, chain))
        elif tag == _TRUSTED_TAG:
            trusted.append(_certificate(reader, version))
        else:
            raise JavaKeystoreError(f"an entry has the unknown tag {tag}")
    reader.expect_end()
    return JavaKeystore(tuple(keys), tuple(trusted))


def decrypt_key(protected: bytes, password: str) -> bytes:
    """Return the key as DER of PKCS#8."""
    protected_octets = _protected_octets(protected)
    size = len(protected_octets) - 2 * _DIGEST_BYTES
    if size < 0:
        raise JavaKeystoreError("a key is truncated")
    secret = _password_bytes(password)
    salt, masked, check = (
        protected_octets[:_DIGEST_BYTES],
        protected_octets[_DIGEST_BYTES:-_DIGEST_BYTES],
        protected_octets[-_DIGEST_BYTES:],
    )
    mask = _mask(secret, salt, size)
    key = bytes(left ^ right for left, right in zip(masked, mask, strict=True))
    if not hmac.compare_digest(check, _digest(secret + key)):
        raise WrongPasswordError("the key's password is wrong")
    return key


def _mask(secret: bytes, salt: bytes, size: int) -> bytes:
    mask = bytearray()
    digest = salt
    while len(mask) < size:
        digest = _digest(secret + digest)
        mask += digest
    return bytes(mask[:size])


def _digest(data: bytes) -> bytes:
    """Return the SHA-1, also where policies forbid it for security: the format has no other digest."""
    return sha1(data, usedforsecurity=False).digest()


def _password_bytes(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _protected_octets(data: bytes) -> bytes:
    """Return the encrypted octets of an EncryptedPrivateKeyInfo, a sequence of the algorithm and the octets."""
    info = _Reader(_Reader(data).der(_DER_SEQUENCE))
    if not info.der(_DER_SEQUENCE).startswith(_PROTECTION):
        raise JavaKeystoreError("a key is not protected by the algorithm of JKS")
    return info.der(_DER_OCTETS)


def _certificate(reader: "_Reader", version: int) -> bytes:
    if version > 1:
        reader.text()
    return reader.blob()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise JavaKeystoreError("the store is truncated")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self) -> int:
        return int.from_bytes(self.take(4))

    def text(self) -> str:
        return self.take(int.from_bytes(self.take(2))).decode(errors="replace")

    def blob(self) -> bytes:
        return self.take(self.number())

    def der(self, tag: int) -> bytes:
        """Return the content of the next element, which must have the tag `tag`."""
        if self.take(1)[0] != tag:
            raise JavaKeystoreError("a key is not in DER")
        size = self.take(1)[0]
        if size & 0x80:
            size = int.from_bytes(self.take(size & 0x7F))
        return self.take(size)

    def expect_end(self) -> None:
        if self._position != len(self._data):
            raise JavaKeystoreError("the store has data after its end")
