"""Creates Python's SSLContext from `ssl.*`: reads the stores, and reports errors by the names of Kafka's keys.

As in Kafka, some keys exclude each other, and a store of type PEM has no password.
"""

import secrets
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rookery.base.errors import ConfigError
from rookery.security.keystores import (
    PEM,
    KeyEntry,
    encrypted_pem,
    pem_certificates,
    pem_key,
    read_key,
    read_trusted,
)
from rookery.security.listener_security import ClientCertificates, ServerTls
from rookery.security.settings import TlsSettings

_VERIFY_MODES: Final = {
    ClientCertificates.NONE: ssl.CERT_NONE,
    ClientCertificates.REQUESTED: ssl.CERT_OPTIONAL,
    ClientCertificates.REQUIRED: ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context for a client's connections. Reads the files, once per client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.verify_host_name
    # As in Java, every certificate in the truststore is trusted, not only self-signed authorities.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _set_versions(context, settings.enabled_protocols)
    _load_trusted(context, settings)
    _load_key(context, settings)
    return context


def server_context(tls: ServerTls) -> ssl.SSLContext:
    """Return the context for a listener. Reads the files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # A resumed session would outlive the certificates that it was made with.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    _set_versions(context, tls.settings.enabled_protocols)
    if tls.client_certificates is not ClientCertificates.NONE:
        context.verify_mode = _VERIFY_MODES[tls.client_certificates]
        _load_trusted(context, tls.settings)
    else:
        _check_truststore(tls.settings)
    _load_key(context, tls.settings)
    return context


def probe_context() -> ssl.SSLContext:
    """Return a context that trusts every server: for a question whose answer is not confidential."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def store_files(settings: TlsSettings) -> tuple[Path, ...]:
    """Return the files that a context is made from."""
    return tuple(Path(name) for name in (settings.keystore_location, settings.truststore_location) if name)


def _set_versions(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in _VERSIONS]
    if unknown or not names:
        raise ConfigError(f"ssl.enabled.protocols is {','.join(names)!r}: name TLSv1.2, TLSv1.3 or both")
    versions = [_VERSIONS[name] for name in names]
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)


def _load_trusted(context: ssl.SSLContext, settings: TlsSettings) -> None:
    _check_truststore(settings)
    if settings.truststore_certificates is not None:
        name = "ssl.truststore.certificates"
        certificates = pem_certificates(settings.truststore_certificates, name)
    elif settings.truststore_location is not None:
        name = "ssl.truststore.location"
        data = _read(settings.truststore_location, name)
        certificates = read_trusted(data, settings.truststore_type, settings.truststore_password)
    else:
        context.load_default_certs()
        return
    # One by one: if several are loaded in one call, OpenSSL takes a damaged last one for the end of the data.
    for certificate in certificates:
        try:
            context.load_verify_locations(cadata=certificate)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"{name} holds a damaged certificate ({_reason(error)})") from error


def _check_truststore(settings: TlsSettings) -> None:
    has_text, has_file = settings.truststore_certificates is not None, settings.truststore_location is not None
    _check_store("ssl.truststore", settings.truststore_type, has_text, has_file, "ssl.truststore.certificates")
    _check_password("ssl.truststore", settings.truststore_type, settings.truststore_password, has_file)


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    _check_keystore(settings)
    if settings.keystore_key is not None and settings.keystore_certificate_chain is not None:
        name = "ssl.keystore.certificate.chain"
        key = pem_key(settings.keystore_key, settings.key_password, "ssl.keystore.key")
        entry = KeyEntry(key, pem_certificates(settings.keystore_certificate_chain, name))
    elif settings.keystore_location is not None:
        name = "ssl.keystore.location"
        data = _read(settings.keystore_location, name)
        entry = read_key(data, settings.keystore_type, settings.keystore_password, settings.key_password)
    else:
        return
    try:
        _load_entry(context, entry)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{name}: the certificate does not match the key or cannot be used ({_reason(error)})"
        ) from error


def _check_keystore(settings: TlsSettings) -> None:
    key, chain = settings.keystore_key is not None, settings.keystore_certificate_chain is not None
    if key != chain:
        given, missing = ("key", "certificate.chain") if key else ("certificate.chain", "key")
        raise ConfigError(f"ssl.keystore.{given} is set without ssl.keystore.{missing}: set both")
    has_file = settings.keystore_location is not None
    _check_store("ssl.keystore", settings.keystore_type, key, has_file, "ssl.keystore.key")
    _check_password("ssl.keystore", settings.keystore_type, settings.keystore_password, has_file)


def _check_store(store: str, kind: str, has_text: bool, has_file: bool, text_name: str) -> None:
    if has_text and has_file:
        raise ConfigError(f"{store}.location and {text_name} are both set: keep one of them")
    if has_text and kind.upper() != PEM:
        raise ConfigError(f"{store}.type is {kind}, but {text_name} holds PEM: set {store}.type to PEM")


def _check_password(store: str, kind: str, password: str | None, has_file: bool) -> None:
    if password is None:
        return
    if kind.upper() == PEM:
        raise ConfigError(f"{store}.password is set, but PEM has none: remove it (a key's own is ssl.key.password)")
    if not has_file:
        raise ConfigError(f"{store}.password is set without a store: set {store}.location")


def _read(location: str, name: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{name}: cannot read {location!r}: {reason}") from error


def _load_entry(context: ssl.SSLContext, entry: KeyEntry) -> None:
    """Load a key by way of a temporary file, because Python loads keys only from files.

    The key in the file is encrypted, its directory is private, and both are deleted immediately.
    """
    password = secrets.token_hex()
    with TemporaryDirectory(prefix="rookery-tls-") as directory:
        file = Path(directory, "key.pem")
        file.write_bytes(encrypted_pem(entry, password))
        context.load_cert_chain(file, password=password)


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
