"""A certificate authority of a test, made with the openssl command: who it vouches for, and a client of its own."""

import subprocess
from pathlib import Path
from typing import NamedTuple

KEY_PASSWORD = "secret"


class Certificates(NamedTuple):
    """PEM files: the authority, and keys with their certificates."""

    authority: Path
    server: Path
    locked_server: Path
    client: Path


def make_certificates(directory: Path) -> Certificates:
    authority, authority_key = directory / "authority.pem", directory / "authority.key"
    _openssl("req", "-x509", *_NEW_KEY, "-subj", "/CN=authority", "-keyout", authority_key, "-out", authority)
    server = _issue(directory, "server", authority, authority_key)
    client = _issue(directory, "client", authority, authority_key)
    locked = directory / "locked.pem"
    locked_key = directory / "locked.key"
    _openssl("pkey", "-in", server, "-aes256", "-passout", f"pass:{KEY_PASSWORD}", "-out", locked_key)
    locked.write_text(locked_key.read_text() + _certificates_in(server.read_text()))
    return Certificates(authority, server, locked, client)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "2")


def _issue(directory: Path, name: str, authority: Path, authority_key: Path) -> Path:
    key, certificate, both = (directory / f"{name}.{kind}" for kind in ("key", "crt", "pem"))
    signing = ("-CA", authority, "-CAkey", authority_key, "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    _openssl("req", "-x509", *_NEW_KEY, "-subj", f"/CN={name}", *signing, "-keyout", key, "-out", certificate)
    both.write_text(key.read_text() + certificate.read_text())
    return both


def _certificates_in(text: str) -> str:
    return text[text.index("-----BEGIN CERTIFICATE-----") :]


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
