"""Key stores and trust stores in Java's formats, created with Java's keytool."""

import subprocess
from pathlib import Path

from tests.support.certificates import PASSWORD, Certificates

_TIMEOUT_S = 60


def make_truststore(certificates: Certificates, directory: Path, store_format: str) -> Path:
    path = directory / "truststore"
    _keytool("-importcert", "-alias", "authority", "-file", certificates.authority, *_store(path, store_format))
    return path


def make_keystore(certificates: Certificates, directory: Path, store_format: str) -> Path:
    """Create a key store with the client's key."""
    path = directory / "keystore"
    source = ("-srckeystore", certificates.client_keystore, "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD)
    _keytool("-importkeystore", *source, *_store(path, store_format, "dest"))
    return path


def _store(path: Path, store_format: str, prefix: str = "") -> tuple[str | Path, ...]:
    options = (f"-{prefix}keystore", path, f"-{prefix}storetype", store_format, f"-{prefix}storepass", PASSWORD)
    return *options, "-noprompt"


def _keytool(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["keytool", *map(str, arguments)], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"keytool {arguments}: {done.stdout}{done.stderr}"
