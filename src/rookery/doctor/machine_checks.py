"""Checks of the machine that a broker runs on. Pure; without a broker on this machine they find nothing."""

from collections.abc import Iterator

from rookery.doctor.findings import Check, Seen, Severity
from rookery.doctor.snapshot import ClusterSnapshot

_SWAPPINESS_MAX = 10
_BACKGROUND_MAX = 10
_DIRTY_MIN, _DIRTY_MAX = 20, 80
_OPEN_FILES_MIN = 100_000
_OPEN_FILES_USED = 0.7
_NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "fuse.sshfs", "9p", "ceph", "glusterfs")
_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
_MACHINE = "this machine"


def swappiness(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    value = _vm(snapshot, "swappiness")
    if value is not None and value > _SWAPPINESS_MAX:
        yield _sysctl("swappiness", value, 1)


def dirty_ratios(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    background, dirty = _vm(snapshot, "dirty_background_ratio"), _vm(snapshot, "dirty_ratio")
    if background is not None and background > _BACKGROUND_MAX:
        yield _sysctl("dirty_background_ratio", background, 5)
    # Zero: the limit is set in bytes.
    if dirty and not _DIRTY_MIN <= dirty <= _DIRTY_MAX:
        yield _sysctl("dirty_ratio", dirty, 60)


def _vm(snapshot: ClusterSnapshot, name: str) -> int | None:
    return None if snapshot.machine is None else snapshot.machine.vm.get(name)


def _sysctl(name: str, value: int, better: int) -> Seen:
    return Seen(
        subject=_MACHINE, text=f"vm.{name}={value}", advice=f"sysctl -w vm.{name}={better}, also in sysctl.conf"
    )


def open_files(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for process in () if snapshot.machine is None else snapshot.machine.processes:
        used = process.open_files / process.open_files_max
        if used > _OPEN_FILES_USED or process.open_files_max < _OPEN_FILES_MIN:
            yield Seen(
                subject=f"process {process.pid}",
                text=f"{process.open_files:,} of {process.open_files_max:,} allowed files are open",
                advice=f"LimitNOFILE={_OPEN_FILES_MIN} in its systemd unit, or ulimit -n {_OPEN_FILES_MIN}",
                severity=Severity.ERROR if used > _OPEN_FILES_USED else Severity.WARNING,
            )


def file_systems(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for mount in () if snapshot.machine is None else snapshot.machine.mounts:
        if mount.file_system.startswith(_NETWORK_FILE_SYSTEMS):
            yield Seen(
                subject=_MACHINE,
                text=f"{mount.path} is on a network file system ({mount.file_system})",
                advice="use a local disk, with ext4 or xfs",
            )
        elif mount.file_system in _MEMORY_FILE_SYSTEMS:
            yield Seen(
                subject=_MACHINE,
                text=f"{mount.path} is in memory ({mount.file_system})",
                advice="use a disk, unless the data may be lost with a restart of the machine",
            )


CHECKS = (
    Check(
        id="swappiness",
        severity=Severity.WARNING,
        title="vm.swappiness larger than 10",
        why="The kernel swaps the broker out to keep more page cache; it then pauses for seconds.",
        run=swappiness,
    ),
    Check(
        id="dirty-ratios",
        severity=Severity.NOTE,
        title="vm.dirty_background_ratio above 10, or vm.dirty_ratio outside of 20 to 80",
        why="Writes are collected too long, or block too early: either shows as rare, slow requests.",
        run=dirty_ratios,
    ),
    Check(
        id="open-files",
        severity=Severity.WARNING,
        title="a broker may open fewer than 100,000 files, or has opened 70 % of them (error)",
        why="Each segment and each connection needs some; without, the broker takes its log directory offline.",
        run=open_files,
    ),
    Check(
        id="file-system",
        severity=Severity.WARNING,
        title="logs on a network file system, or in memory",
        why="An acknowledgement promises less than it says: the file system may lose, or hold back, what was written.",
        run=file_systems,
    ),
)
