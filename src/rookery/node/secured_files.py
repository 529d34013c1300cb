"""Makes the files of a secured cluster, and renews its certificates. Needs the extra `security`.

Everything is readable by the owner only. A directory is made completely or not at all.
"""

import secrets
from datetime import datetime
from pathlib import Path
from typing import Final

from rookery.base.errors import ConfigError
from rookery.base.files import Files, make_synced_directory, remove_tree, replace_file
from rookery.base.types import NodeId, TimestampMs
from rookery.base.values import value_class
from rookery.node.secured_cluster import (
    AUTHORITY,
    KEY_FILE,
    TRUSTED,
    SecuredCluster,
    Users,
    client_files,
    next_commands,
    node_files,
    node_subject,
    steps_text,
)
from rookery.security.authority import KeyPair, Subject, end_of_pem, issue, make_authority, subject_of_pem
from rookery.security.node_settings import ADMIN, BROKER, MECHANISM, credential_argument
from rookery.security.passwords import new_password, new_salt
from rookery.security.scram_credentials import salted_password

AUTHORITY_DAYS: Final = 3650
NODE_DAYS: Final = 365
# Twice the number that Kafka's tools use; a login takes some milliseconds.
ITERATIONS: Final = 8192
_AUTHORITY_KEY: Final = "ca.key"
_README: Final = "README.txt"


@value_class
class NodeCertificate:
    """A node's certificate: its file, and when it expires."""

    node: str
    path: Path
    expires: datetime


def make_users() -> Users:
    """Return passwords and credentials for the first users of a cluster. Hashing takes some milliseconds."""
    passwords = {ADMIN: new_password(), BROKER: new_password()}
    credentials: list[str] = []
    for user, password in passwords.items():
        salt = new_salt()
        salted = salted_password(MECHANISM, password, salt, ITERATIONS)
        credentials.append(credential_argument(user, salted, salt, ITERATIONS))
    return Users(admin_password=passwords[ADMIN], broker_password=passwords[BROKER], credentials=tuple(credentials))


def make_cluster_files(
    files: Files, cluster: SecuredCluster, *, cluster_id: str, now_ms: TimestampMs, days: int = NODE_DAYS
) -> list[NodeCertificate]:
    """Make the directory of a cluster with new keys, certificates and passwords. ConfigError if it has files."""
    directory = cluster.directory
    check_unused(files, directory)
    authority = make_authority(f"Rookery {cluster_id}", now_ms=now_ms, days=max(AUTHORITY_DAYS, days))
    users = make_users()
    contents = {
        directory / AUTHORITY / TRUSTED: authority.certificate,
        directory / AUTHORITY / _AUTHORITY_KEY: authority.key,
        directory / _README: steps_text(next_commands(cluster, cluster_id)),
        **client_files(cluster, users, trusted=authority.certificate),
    }
    certificates: list[NodeCertificate] = []
    for node in cluster.nodes:
        name, names = node_subject(node)
        made = issue(authority, Subject(name=name, alternative_names=names), now_ms=now_ms, days=days)
        key_file = _key_file(made)
        contents |= node_files(cluster, node, users, key_file=key_file, trusted=authority.certificate)
        expires = end_of_pem(made.certificate)
        certificates.append(NodeCertificate(name, node.member.directory / KEY_FILE, expires))
    _write_all(files, directory, contents)
    return certificates


def check_unused(files: Files, directory: Path) -> None:
    """Raise ConfigError unless a directory is absent or empty."""
    if not files.exists(directory):
        return
    if not files.is_directory(directory):
        raise ConfigError(f"{directory} is a file: name a directory that does not exist")
    if files.list_directory(directory):
        hint = " To renew its certificates: rookery secure renew" if is_secured(files, directory) else ""
        raise ConfigError(
            f"{directory} is not empty: nothing was written, since keys and passwords in it would be lost. Name "
            f"another directory.{hint}"
        )


def is_secured(files: Files, directory: Path) -> bool:
    """Return whether `make_cluster_files` has made a directory."""
    return files.exists(directory / AUTHORITY / _AUTHORITY_KEY)


def renew_certificates(
    files: Files, directory: Path, *, now_ms: TimestampMs, days: int = NODE_DAYS
) -> list[NodeCertificate]:
    """Replace the keys and certificates of all nodes by new ones, from the same authority and for the same names."""
    if not is_secured(files, directory):
        raise ConfigError(
            f"{directory} has no authority ({AUTHORITY}/{_AUTHORITY_KEY}): name a directory that rookery secure init "
            "has made"
        )
    authority = KeyPair(
        key=_read(files, directory / AUTHORITY / _AUTHORITY_KEY),
        certificate=_read(files, directory / AUTHORITY / TRUSTED),
    )
    paths = [directory / name / KEY_FILE for name in sorted(files.list_directory(directory), key=_node_order)]
    renewed: list[NodeCertificate] = []
    for path in filter(files.exists, paths):
        subject = subject_of_pem(_read(files, path))
        made = issue(authority, subject, now_ms=now_ms, days=days)
        # A node that runs reads the file while it is replaced: it must see the old or the new one.
        replace_file(files, path, _key_file(made).encode())
        renewed.append(NodeCertificate(subject.name, path, end_of_pem(made.certificate)))
    return renewed


def _key_file(pair: KeyPair) -> str:
    return pair.key + pair.certificate


def _node_order(name: str) -> tuple[NodeId, str]:
    digits = name.rpartition("-")[2]
    return (int(digits) if digits.isdecimal() else 0, name)


def _read(files: Files, path: Path) -> str:
    return files.read_file(path).decode()


def _write_all(files: Files, directory: Path, contents: dict[Path, str]) -> None:
    """Write the files to a temporary directory, then give it its name: what exists is complete."""
    temporary = directory.with_name(f".{directory.name}.{secrets.token_hex(4)}.tmp")
    try:
        for path, text in contents.items():
            target = temporary / path.relative_to(directory)
            make_synced_directory(files, target.parent)
            replace_file(files, target, text.encode())
        files.rename(temporary, directory)
    except BaseException:
        if files.exists(temporary):
            remove_tree(files, temporary)
        raise
    files.sync_directory(directory.parent)
