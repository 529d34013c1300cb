"""A disk in memory that loses unsynced data, tears writes and fails on demand, within the contract of `base.files`.

Every file keeps its synced bytes and the writes since then; every directory keeps its synced names and the changes
since then. `crash` applies a `Survival` to the unsynced data. `crash_at` stops before a given mutation: a test runs a
scenario once to count its mutations, and then once per crash point.
"""

import copy
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple, TypeAlias

from rookery.base.files import DirectoryLock, File
from rookery.base.types import Buffer


class Crash(BaseException):
    """The machine stopped. It is not an Exception, so that no handler catches it as an ordinary error."""


class Survival(Enum):
    """The part of the unsynced data that survives a crash."""

    NOTHING = auto()
    EVERYTHING = auto()
    # The last write of every file is cut in half.
    TORN = auto()
    # Names survive, bytes do not: files are empty or short.
    NAMES = auto()
    # Bytes survive, names do not.
    BYTES = auto()
    # Every second change of each directory, and the first half of the writes of each file.
    HALF = auto()
    # The other changes of each directory, and all writes of each file.
    OTHER_HALF = auto()
    # Only the last change of each directory, without the earlier ones; all writes of each file.
    LAST = auto()


# The names in a directory, with the bytes of files and the content of directories.
Content: TypeAlias = frozenset[tuple[str, "bytes | Content"]]


class Call(NamedTuple):
    name: str
    path: Path


class Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""
        # Truncations (an int: the new size) and appended bytes since the last sync.
        self.pending: list[bytes | int] = []

    def change(self, operation: bytes | int) -> None:
        self.pending.append(operation)
        _apply_write(self.data, operation)

    def sync(self) -> None:
        self.synced = bytes(self.data)
        self.pending = []

    def crash(self, survival: Survival) -> None:
        operations = list(self.pending)
        if survival in (Survival.NOTHING, Survival.NAMES):
            operations = []
        elif survival is Survival.HALF:
            operations = operations[: len(operations) // 2]
        elif survival is Survival.TORN and operations and isinstance(operations[-1], bytes):
            operations[-1] = operations[-1][: len(operations[-1]) // 2]
        self.data = bytearray(self.synced)
        for operation in operations:
            _apply_write(self.data, operation)
        self.sync()

    def content(self) -> bytes:
        return bytes(self.data)


class Directory:
    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.synced: dict[str, Inode | Directory] = {}
        # (removed name or None, added name or None, its node)
        self.pending: list[tuple[str | None, str | None, Inode | Directory]] = []

    def change(self, old: str | None, new: str | None, node: "Inode | Directory") -> None:
        self.pending.append((old, new, node))
        _apply_change(self.entries, old, new, node)

    def sync(self) -> None:
        self.synced = dict(self.entries)
        self.pending = []

    def crash(self, survival: Survival) -> None:
        changes = list(self.pending)
        if survival in (Survival.NOTHING, Survival.BYTES):
            changes = []
        elif survival is Survival.HALF:
            changes = changes[::2]
        elif survival is Survival.OTHER_HALF:
            changes = changes[1::2]
        elif survival is Survival.LAST:
            changes = changes[-1:]
        self.entries = dict(self.synced)
        for change in changes:
            _apply_change(self.entries, *change)
        self.sync()
        for node in self.entries.values():
            node.crash(survival)

    def content(self) -> "Content":
        return frozenset((name, node.content()) for name, node in self.entries.items())


def _apply_write(data: bytearray, operation: bytes | int) -> None:
    if isinstance(operation, int):
        del data[operation:]
    else:
        data += operation


def _apply_change(
    entries: dict[str, Inode | Directory], old: str | None, new: str | None, node: Inode | Directory
) -> None:
    if old is not None:
        entries.pop(old, None)
    if new is not None:
        entries[new] = node


class CrashFile:
    def __init__(self, files: "CrashFiles", path: Path, inode: Inode) -> None:
        self._files = files
        self._path = path
        self._inode = inode

    @property
    def path(self) -> Path:
        return self._path

    def append(self, data: Buffer) -> None:
        self.append_parts([data])

    def append_parts(self, parts: Sequence[Buffer]) -> None:
        data = b"".join(bytes(part) for part in parts)
        try:
            self._files.mutate("append", self._path)
        except (OSError, Crash):
            # A full disk, or a crash, cuts a write in the middle.
            self._inode.change(data[: len(data) // 2])
            raise
        self._inode.change(data)

    def read_at(self, position: int, size: int) -> bytes:
        self._files.call("read_at", self._path)
        return bytes(self._inode.data[position : position + size])

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._files.mutate("truncate", self._path)
        self._inode.change(size)

    def sync(self) -> None:
        self._files.mutate("sync", self._path)
        self._inode.sync()

    def descriptor(self) -> int | None:
        return None


class _Lock:
    def __init__(self, files: "CrashFiles", path: Path) -> None:
        self._files = files
        self._path = path

    def release(self) -> None:
        self._files.locked.discard(self._path)


class CrashFiles:
    """Implements `base.files.Files`. Paths are absolute; the root directory exists."""

    def __init__(self) -> None:
        self.root = Directory()
        self.calls: list[Call] = []
        self.mutation_count = 0
        self.crash_at: int | None = None
        self.fail: Callable[[Call], int | None] | None = None
        self.locked: set[Path] = set()
        self.free_space_bytes = 1 << 40

    # Faults

    def fail_call(self, number: int, code: int = errno.EIO) -> None:
        """Fail the call with this number, counted from 1 from now on, with an errno."""
        at = len(self.calls) + number
        self.fail = lambda _: code if len(self.calls) == at else None

    def fail_matching(self, matches: Callable[[Call], bool], code: int = errno.EIO) -> None:
        self.fail = lambda call: code if matches(call) else None

    def crash(self, survival: Survival = Survival.NOTHING) -> None:
        """Drop unsynced data, locks and faults. Files that are still open must not be used any more."""
        self.root.crash(survival)
        self.crash_at = None
        self.fail = None
        self.locked.clear()

    def after_crash(self) -> "Iterator[tuple[Survival, CrashFiles]]":
        """Yield copies of the disk, as a crash may leave it now: each different one once, that of torn writes first.

        At most points little is unsynced, so that most survivals leave the same disk.
        """
        seen: set[Content] = set()
        for survival in sorted(Survival, key=lambda survival: survival is not Survival.TORN):
            files = CrashFiles()
            files.root = copy.deepcopy(self.root)
            files.crash(survival)
            content = files.root.content()
            if content not in seen:
                seen.add(content)
                yield survival, files

    def call(self, name: str, path: Path) -> None:
        call = Call(name, path)
        self.calls.append(call)
        code = self.fail(call) if self.fail is not None else None
        if code is not None:
            raise OSError(code, os.strerror(code), str(path))

    def mutate(self, name: str, path: Path) -> None:
        """Record a call that changes the disk, or what survives a crash: the crash points."""
        if self.crash_at is not None and self.mutation_count >= self.crash_at:
            raise Crash(f"{name} {path}")
        self.mutation_count += 1
        self.call(name, path)

    # Files

    def open(self, path: Path, *, create: bool = False) -> File:
        self.call("open", path)
        directory = self._directory(path.parent)
        inode = directory.entries.get(path.name)
        if inode is None:
            if not create:
                raise _error(errno.ENOENT, path)
            self.mutate("create", path)
            inode = Inode()
            directory.change(None, path.name, inode)
        if isinstance(inode, Directory):
            raise _error(errno.EISDIR, path)
        return CrashFile(self, path, inode)

    def exists(self, path: Path) -> bool:
        self.call("exists", path)
        return self._find(path) is not None

    def is_directory(self, path: Path) -> bool:
        return isinstance(self._find(path), Directory)

    def list_directory(self, path: Path) -> list[str]:
        self.call("list_directory", path)
        return sorted(self._directory(path).entries)

    def file_size(self, path: Path) -> int:
        self.call("file_size", path)
        return len(self._inode(path).data)

    def read_file(self, path: Path) -> bytes:
        self.call("read_file", path)
        return bytes(self._inode(path).data)

    def write_file(self, path: Path, data: Buffer) -> None:
        file = self.open(path, create=True)
        if file.size():
            file.truncate(0)
        file.append(data)

    def make_directory(self, path: Path) -> None:
        node: Inode | Directory = self.root
        for part in path.parts[1:]:
            assert isinstance(node, Directory)
            if part not in node.entries:
                self.mutate("make_directory", path)
                node.change(None, part, Directory())
            node = node.entries[part]

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "only renames within one directory are atomic here"
        directory = self._directory(source.parent)
        if source.name not in directory.entries:
            raise _error(errno.ENOENT, source)
        self.mutate("rename", source)
        directory.change(source.name, target.name, directory.entries[source.name])

    def remove(self, path: Path) -> None:
        directory = self._directory(path.parent)
        if path.name in directory.entries:
            self._inode(path)
            self.mutate("remove", path)
            directory.change(path.name, None, directory.entries[path.name])

    def remove_directory(self, path: Path) -> None:
        if self._directory(path).entries:
            raise _error(errno.ENOTEMPTY, path)
        self.mutate("remove_directory", path)
        parent = self._directory(path.parent)
        parent.change(path.name, None, parent.entries[path.name])

    def sync_directory(self, path: Path) -> None:
        directory = self._directory(path)
        self.mutate("sync_directory", path)
        directory.sync()

    def lock_directory(self, path: Path) -> DirectoryLock | None:
        self.call("lock_directory", path)
        if path in self.locked:
            return None
        self.locked.add(path)
        return _Lock(self, path)

    def free_bytes(self, path: Path) -> int:
        return self.free_space_bytes

    def total_bytes(self, path: Path) -> int:
        return self.free_space_bytes

    def all_paths(self) -> Iterator[Path]:
        """Yield every file, for tests that look for remains."""
        pending: list[tuple[Path, Directory]] = [(Path("/"), self.root)]
        while pending:
            path, directory = pending.pop()
            for name, node in directory.entries.items():
                if isinstance(node, Directory):
                    pending.append((path / name, node))
                else:
                    yield path / name

    def _find(self, path: Path) -> Inode | Directory | None:
        node: Inode | Directory | None = self.root
        for part in path.parts[1:]:
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(part)
        return node

    def _inode(self, path: Path) -> Inode:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        return node

    def _directory(self, path: Path) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise _error(errno.ENOENT if node is None else errno.ENOTDIR, path)
        return node


def _error(code: int, path: Path) -> OSError:
    return OSError(code, os.strerror(code), str(path))
