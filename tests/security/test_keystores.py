"""Stores that Java's keytool made (golden/make.sh), read without Java."""

import base64
import re
import sys
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key
from hypothesis import example, given
from hypothesis import strategies as st

from rookery.base.errors import ConfigError
from rookery.security import java_keystore
from rookery.security.keystores import (
    KeyEntry,
    _pem_blocks,
    encrypted_pem,
    pem_certificates,
    pem_key,
    read_key,
    read_trusted,
)

GOLDEN = Path(__file__).parent / "golden"
STORE_PASSWORD = "store-secret"
KEY_PASSWORD = "key-secret"
ACCENTS = "pässwört"


def store(name: str) -> bytes:
    return base64.b64decode((GOLDEN / f"{name}.base64").read_text())


def text(name: str) -> str:
    return (GOLDEN / name).read_text()


def certificates(*names: str) -> tuple[bytes, ...]:
    return pem_certificates("".join(text(f"{name}.pem") for name in names), "test")


def number(key: bytes) -> int:
    """What a key is, whether its file holds the public half too or not."""
    loaded = load_der_private_key(key, None)
    assert isinstance(loaded, EllipticCurvePrivateKey)
    return loaded.private_numbers().private_value


def expected_number() -> int:
    loaded = load_pem_private_key(text("client.key.pem").encode(), None)
    assert isinstance(loaded, EllipticCurvePrivateKey)
    return loaded.private_numbers().private_value


@pytest.mark.parametrize("name", ["trusted.jks", "trusted.pkcs12"])
@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "pkcs12"])
def test_trusted_certificates_are_found_whatever_the_type_says(name: str, kind: str) -> None:
    assert read_trusted(store(name), kind, STORE_PASSWORD) == certificates("authority")


def test_a_java_truststore_needs_no_password() -> None:
    assert read_trusted(store("trusted.jks"), "JKS", None) == certificates("authority")


def test_a_pem_truststore_may_hold_several_certificates_and_remarks() -> None:
    data = f"Größe\n{text('authority.pem')}\n# other\n{text('other.pem')}".encode()
    assert read_trusted(data, "PEM", None) == certificates("authority", "other")


def test_of_a_java_keystore_java_trusts_the_keys_own_certificate_and_not_who_signed_it() -> None:
    assert set(read_trusted(store("mixed.jks"), "JKS", ACCENTS)) == set(certificates("client", "other"))


def test_of_a_pkcs12_keystore_all_certificates_are_trusted() -> None:
    trusted = read_trusted(store("mixed.pkcs12"), "PKCS12", STORE_PASSWORD)
    assert set(trusted) == set(certificates("client", "authority", "other"))


@pytest.mark.parametrize(
    ("name", "password", "key_password"),
    [
        ("client.jks", STORE_PASSWORD, KEY_PASSWORD),
        ("client.pkcs12", STORE_PASSWORD, None),
        ("client.pkcs12", STORE_PASSWORD, STORE_PASSWORD),
        ("legacy.pkcs12", STORE_PASSWORD, None),
        ("mixed.jks", ACCENTS, None),
        ("mixed.pkcs12", STORE_PASSWORD, None),
    ],
)
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_key_comes_with_its_chain_and_nothing_else(
    name: str, password: str, key_password: str | None, kind: str
) -> None:
    entry = read_key(store(name), kind, password, key_password)
    assert number(entry.key) == expected_number()
    assert entry.certificates == certificates("client", "authority")


@pytest.mark.parametrize(
    ("name", "key_password"),
    [
        ("client.key.pem", None),
        ("client.key.pem", "not needed"),
        ("client.traditional.pem", None),
        ("client.encrypted.pem", KEY_PASSWORD),
    ],
)
def test_a_key_in_pem(name: str, key_password: str | None) -> None:
    data = (text(name) + text("client.pem") + text("authority.pem")).encode()
    entry = read_key(data, "PEM", None, key_password)
    assert number(entry.key) == expected_number()
    assert entry.certificates == certificates("client", "authority")


@pytest.mark.parametrize("separator", ["", " ", "\r\n"])
def test_line_ends_of_pem_do_not_matter(separator: str) -> None:
    assert number(pem_key(text("client.key.pem").replace("\n", separator), None, "test")) == expected_number()
    assert pem_certificates(text("client.pem").replace("\n", separator), "test") == certificates("client")


def test_an_entry_shows_no_key_and_is_written_encrypted() -> None:
    entry = read_key(store("client.jks"), "JKS", STORE_PASSWORD, KEY_PASSWORD)
    assert repr(entry) == "KeyEntry(2 certificates)"
    written = encrypted_pem(entry, "another")
    assert b"BEGIN PRIVATE KEY" not in written
    assert KeyEntry(entry.key, entry.certificates) == read_key(written, "PEM", None, "another")


@pytest.mark.parametrize(
    ("name", "kind", "password", "message"),
    [
        ("trusted.jks", "JKS", "wrong-one", "ssl.truststore.password does not open"),
        ("trusted.pkcs12", "PKCS12", "wrong-one", "ssl.truststore.password is wrong"),
        ("trusted.pkcs12", "PKCS12", "\ud800", "ssl.truststore.password is wrong"),
        ("trusted.pkcs12", "PKCS12", None, "ssl.truststore.password is not set"),
        ("trusted.jks", "PEM", None, "ssl.truststore.location holds no certificate in PEM"),
        ("trusted.jceks", "JKS", STORE_PASSWORD, "type JCEKS; convert it: keytool -importkeystore .* JCEKS .* PKCS12"),
        ("trusted.jks", "BCFKS", STORE_PASSWORD, "ssl.truststore.type is BCFKS: it must be .* -srcstoretype BCFKS"),
    ],
)
def test_a_truststore_that_cannot_be_read(name: str, kind: str, password: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_trusted(store(name), kind, password)
    assert "wrong-one" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (text("authority.pem").encode(), "ssl.truststore.location is PEM: set ssl.truststore.type to PEM"),
        (b"", "ssl.truststore.location is neither JKS nor PKCS12"),
        (b"0", "ssl.truststore.location is damaged"),
        (bytes.fromhex("FEEDFEED 00000003 00000000") + bytes(20), "no JKS keystore of version 1 or 2"),
        (bytes.fromhex("FEEDFEED 00000002 00000000") + bytes(20), "ssl.truststore.location holds no certificate"),
        (bytes.fromhex("FEEDFEED 00000002 00000001 00000003 0000") + bytes(28), "unknown tag 3"),
        (bytes.fromhex("FEEDFEED 00000002 00000000 00") + bytes(20), "goes on where it should end"),
    ],
)
def test_a_truststore_that_is_none(data: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_trusted(data, "JKS", None)


@pytest.mark.parametrize(
    ("name", "password", "key_password", "message"),
    [
        ("client.jks", "wrong-one", KEY_PASSWORD, "ssl.keystore.password does not open"),
        ("client.jks", STORE_PASSWORD, "wrong-one", "ssl.key.password does not open"),
        ("client.jks", STORE_PASSWORD, None, "ssl.key.password does not open"),
        ("client.jks", None, None, "ssl.keystore.password is not set"),
        ("client.pkcs12", "wrong-one", None, "ssl.keystore.password is wrong"),
        ("trusted.jks", STORE_PASSWORD, None, "ssl.keystore.location must hold one private key, and holds 0"),
        ("trusted.pkcs12", STORE_PASSWORD, None, "ssl.keystore.location holds no private key"),
        ("two.jks", STORE_PASSWORD, None, r"must hold one private key, and holds 2: (first, second|second, first)"),
    ],
)
def test_a_keystore_that_cannot_be_read(
    name: str, password: str | None, key_password: str | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_key(store(name), "JKS", password, key_password)
    assert "wrong-one" not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "key_password", "message"),
    [
        (["client.pem"], None, "ssl.keystore.location holds 0 private keys"),
        (["client.key.pem"], None, "ssl.keystore.location holds no certificate"),
        (["client.key.pem", "client.traditional.pem"], None, "ssl.keystore.location holds 2 private keys"),
        (["client.encrypted.pem", "client.pem"], None, "ssl.key.password is not set"),
        (["client.encrypted.pem", "client.pem"], "wrong-one", "ssl.key.password is wrong"),
        (["client.old-encryption.pem", "client.pem"], KEY_PASSWORD, "openssl pkcs8 -topk8"),
    ],
)
def test_a_pem_keystore_that_cannot_be_read(names: list[str], key_password: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_key("".join(map(text, names)).encode(), "PEM", None, key_password)
    assert "wrong-one" not in str(caught.value)


MARKS = ["-----BEGIN A-----", "-----END A-----", "-----BEGIN B-----", "-----END B-----"]


@given(st.lists(st.sampled_from([*MARKS, "END A-----", "BEGIN B-----", "-----", "-", "A", "\n", "x"])).map("".join))
@example("-----END A----------BEGIN A----------BEGIN B----------END B-----")
def test_the_blocks_of_pem_are_those_from_a_begin_to_the_next_end_of_its_label(text: str) -> None:
    blocks = re.finditer(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", text, re.DOTALL)
    assert list(_pem_blocks(text)) == [(block[1], block[2]) for block in blocks]


@pytest.mark.parametrize("line", ["-----BEGIN A-----\n", "-----BEGIN {}-----\n"], ids=["same", "different"])
def test_pem_without_ends_is_read_in_no_time(line: str) -> None:
    text = "".join(line.format(number) for number in range(20_000))
    start = time.thread_time()
    with pytest.raises(ConfigError, match="test holds no certificate"):
        pem_certificates(text, "test")
    assert time.thread_time() - start < 2


@pytest.mark.parametrize("body", ["AAAA", "not base64!", "AAA", "\u00fc"])
def test_a_damaged_pem_key_is_named_and_not_shown(body: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.key .*damaged") as caught:
        pem_key(f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----", None, "ssl.keystore.key")
    assert body not in str(caught.value)


def test_without_the_library_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[security\]'"):
        read_trusted(store("trusted.pkcs12"), "PKCS12", STORE_PASSWORD)
    # Java's own truststores and PEM need none.
    assert read_trusted(store("trusted.jks"), "JKS", STORE_PASSWORD) == certificates("authority")


def _read_all(data: bytes, kind: str, password: str | None) -> None:
    for read in (lambda: read_trusted(data, kind, password), lambda: read_key(data, kind, password, KEY_PASSWORD)):
        try:
            read()
        except ConfigError:
            continue


@st.composite
def damaged_stores(draw: st.DrawFn) -> bytes:
    data = bytearray(store(draw(st.sampled_from(["client.jks", "trusted.jks", "trusted.pkcs12", "mixed.pkcs12"]))))
    start = draw(st.integers(0, len(data) - 1))
    end = min(len(data), start + draw(st.integers(0, 8)))
    data[start:end] = draw(st.binary(max_size=8))
    return bytes(data[: draw(st.integers(start, len(data)))] if draw(st.booleans()) else data)


@given(damaged_stores(), st.sampled_from(["JKS", "PKCS12", "PEM"]), st.sampled_from([None, STORE_PASSWORD]))
def test_a_damaged_store_is_a_config_error(data: bytes, kind: str, password: str | None) -> None:
    _read_all(data, kind, password)


@given(st.binary(max_size=200), st.sampled_from(["", "FEEDFEED", "FEEDFEED00000002", "30"]))
def test_any_bytes_are_a_config_error(data: bytes, start: str) -> None:
    for kind in ("JKS", "PEM"):
        _read_all(bytes.fromhex(start) + data, kind, None)
        _read_all(bytes.fromhex(start) + data, kind, STORE_PASSWORD)


@given(st.integers(0, len(store("trusted.jks")) - 1), st.integers(1, 255))
def test_a_java_keystore_notices_every_changed_byte(place: int, change: int) -> None:
    data = bytearray(store("trusted.jks"))
    data[place] ^= change
    with pytest.raises(ConfigError):
        read_trusted(bytes(data), "JKS", STORE_PASSWORD)


@given(st.data())
def test_a_damaged_java_key_is_not_revealed(data: st.DataObject) -> None:
    [key] = java_keystore.parse(store("client.jks"), STORE_PASSWORD).keys
    size = data.draw(st.integers(0, len(key.protected)))
    damaged = bytearray(key.protected[:size])
    if size == len(key.protected):
        # Behind the name of the algorithm, which may have parameters that nobody reads.
        damaged[data.draw(st.integers(20, size - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises((java_keystore.JavaKeystoreError, java_keystore.WrongPasswordError)):
        java_keystore.reveal(bytes(damaged), KEY_PASSWORD)
