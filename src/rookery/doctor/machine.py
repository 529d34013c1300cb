"""Reads settings of this machine from /proc: memory, open files of brokers, file systems of their logs. A shell."""

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rookery.client.admin import Broker, LogDirectory
from rookery.doctor.snapshot import Mount, SeenMachine, SeenProcess

_VM = ("swappiness", "dirty_background_ratio", "dirty_ratio")
_LISTENING = "0A"
_LOOPBACK = ("127.", "localhost", "::1")


def read_machine(
    brokers: Iterable[Broker], log_dirs: Iterable[LogDirectory], *, always: bool = False, root: Path = Path("/")
) -> SeenMachine | None:
    """Return what /proc below `root` says; None if no broker runs here, unless `always`."""
    local = [broker for broker in brokers if always or _is_local(broker.host)]
    if not local and not always:
        return None
    nodes = {broker.node_id for broker in local}
    paths = sorted({each.path for each in log_dirs if each.node_id in nodes})
    return SeenMachine(
        vm=_read_vm(root),
        processes=tuple(_read_processes(root, {broker.port for broker in local})),
        mounts=tuple(_read_mounts(root, paths)),
    )


def _is_local(host: str) -> bool:
    return host.startswith(_LOOPBACK) or host in (socket.gethostname(), socket.getfqdn())


def _read_vm(root: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in _VM:
        with suppress(OSError, ValueError):
            found[name] = int((root / "proc/sys/vm" / name).read_text())
    return found


def _read_processes(root: Path, ports: set[int]) -> Iterable[SeenProcess]:
    """Return the processes that listen on `ports`, as far as this user may look at them."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(root, ports)}
    for directory in sorted((root / "proc").glob("[0-9]*")) if sockets else ():
        with suppress(OSError, ValueError, StopIteration):
            files = _open_files(directory / "fd")
            if sockets.intersection(files):
                limits = (directory / "limits").read_text().splitlines()
                allowed = next(line for line in limits if line.startswith("Max open files")).split()[3]
                yield SeenProcess(pid=int(directory.name), open_files=len(files), open_files_max=int(allowed))


def _open_files(directory: Path) -> list[str]:
    """Return what the descriptors of a process are. Those that are closed meanwhile are left out."""
    files: list[str] = []
    for each in list(directory.iterdir()):
        with suppress(FileNotFoundError):
            files.append(os.readlink(each))
    return files


def _listening_inodes(root: Path, ports: set[int]) -> set[str]:
    found: set[str] = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (root / "proc/net" / name).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) in ports:
                    found.add(fields[9])
    return found


def _read_mounts(root: Path, paths: Iterable[str]) -> Iterable[Mount]:
    """Return the file system of each path: that of the longest mount point above it."""
    types: dict[Path, str] = {}
    with suppress(OSError):
        for line in (root / "proc/mounts").read_text().splitlines():
            _, point, file_system, *_ = line.split()
            types[Path(point)] = file_system
    for path in paths:
        above = [point for point in types if Path(path).is_relative_to(point)]
        if above:
            yield Mount(path=path, file_system=types[max(above, key=lambda point: len(point.parts))])
