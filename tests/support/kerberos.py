"""A Kerberos realm of its own: a KDC of the system's packages on a free port, with its files in one directory.

    with Realm(tmp_path) as realm:
        keytab = realm.keytab("kafka/localhost")

The environment variables of `environment` point programs to the realm, and to files in the directory.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.broker import free_port
from tests.support.waiting import eventually

NAME = "ROOKERY.TEST"
STOP_TIMEOUT_S = 10
TIMEOUT_S = 60
# Debian installs the programs of a KDC where only root's PATH leads.
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
# Tickets are refused as soon as they have ended: the usual tolerance for clocks is five minutes.
_CLIENT = """\
[libdefaults]
    default_realm = {name}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    clockskew = 1
    udp_preference_limit = 1

[realms]
    {name} = {{
        kdc = 127.0.0.1:{port}
    }}
"""
_SERVER = """\
[kdcdefaults]
    kdc_listen = ""
    kdc_tcp_listen = 127.0.0.1:{port}

[realms]
    {name} = {{
        database_name = {directory}/principal
        key_stash_file = {directory}/stash
        acl_file = {directory}/acl
        max_life = 1h
        max_renewable_life = 1h
    }}

[logging]
    kdc = FILE:{directory}/kdc.log
"""


class Realm:
    """A running KDC. Leaving the context ends it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = NAME
        self._port = free_port()
        self._kdc: subprocess.Popen[bytes] | None = None
        for file, text in (("krb5.conf", _CLIENT), ("kdc.conf", _SERVER)):
            (directory / file).write_text(text.format(name=NAME, port=self._port, directory=directory))

    @property
    def config(self) -> Path:
        return self.directory / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            # The record of tickets that were used is shared by the programs of a user.
            "KRB5RCACHEDIR": str(self.directory),
            "KRB5CCNAME": str(self.directory / "default.tickets"),
        }

    def add(self, principal: str, password: str | None = None, *options: str) -> None:
        secret = ("-randkey",) if password is None else ("-pw", password)
        self._admin("addprinc", *options, *secret, principal)

    def keytab(self, principal: str, *options: str) -> Path:
        """Add a principal with a random key; return the file with its key."""
        self.add(principal, None, *options)
        return self.export(principal, f"{principal.replace('/', '-')}.keytab")

    def export(self, principal: str, file: str) -> Path:
        """Write the principal's key to a file, without a new one."""
        path = self.directory / file
        self._admin("ktadd", "-norandkey", "-k", str(path), principal)
        return path

    def change_key(self, principal: str, keytab: Path | None = None) -> None:
        """Replace the principal's key by a random one, and add it to the file with the old one."""
        if keytab is None:
            self._admin("cpw", "-randkey", principal)
        else:
            self._admin("ktadd", "-k", str(keytab), principal)

    def kinit(self, principal: str, password: str, cache: str, *options: str) -> Path:
        """Get a ticket with a password, as a user does; return the file with it."""
        path = self.directory / cache
        self._run("kinit", "-c", str(path), *options, principal, text=f"{password}\n")
        return path

    def __enter__(self) -> "Realm":
        self._run("kdb5_util", "create", "-s", "-r", NAME, "-P", "master")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        program = shutil.which("krb5kdc", path=_PATH)
        assert program is not None, "there is no krb5kdc: run scripts/conformance-setup.sh"
        with (self.directory / "kdc.out").open("wb") as output:
            self._kdc = subprocess.Popen(
                [program, "-n", "-r", NAME], env=self._environment(), stdout=output, stderr=output
            )
        eventually(self._serves, "a KDC that serves")

    def stop(self) -> None:
        if self._kdc is not None:
            self._kdc.terminate()
            self._kdc.wait(STOP_TIMEOUT_S)
            self._kdc = None

    def _serves(self) -> bool:
        assert self._kdc is not None
        assert self._kdc.poll() is None, (self.directory / "kdc.out").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def _admin(self, command: str, *arguments: str) -> None:
        self._run("kadmin.local", "-r", NAME, command, *arguments)

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, "PATH": _PATH, **self.environment}

    def _run(self, *command: str, text: str = "") -> None:
        done = subprocess.run(
            command, env=self._environment(), input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
