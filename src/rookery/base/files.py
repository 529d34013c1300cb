"""The interface to the disk: every file that Rookery reads or writes goes through here.

`OsFiles` is the real disk. `tests.faults.files.CrashFiles` implements the same protocols in memory, drops what was not
synced, tears the last write and fails any call on demand; the simulator runs whole nodes on it.

What survives a crash, and what callers may rely on:
- bytes of a file survive once `File.sync()` has returned;
- a created, renamed or removed name survives once `Files.sync_directory()` of its directory has returned;
- `rename` replaces its target atomically: after a crash there is the old file or the new one, never a mixture;
- `replace_file` does all the steps for small files: write a temporary file, sync, rename, sync the directory.

Records, offsets and settings are only for the user that runs the node: files are created with mode 0600 and directories
with 0700, even if the umask would allow more. Existing files keep their mode: an administrator may open them to a
group.
"""

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from rookery.base.types import Buffer

# The modes of everything that is created here.
_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700

# Linux rejects more parts in one writev (IOV_MAX).
_PARTS_PER_WRITE_MAX = 1024


class File(Protocol):
    """An open file: written at its end, read anywhere.

    It stays readable until the last reference is gone, even after it was removed from its directory: a fetch that is
    being sent keeps the bytes of a segment that retention has just deleted.
    """

    @property
    def path(self) -> Path: ...

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end."""
        ...

    def append_parts(self, parts: Sequence[Buffer]) -> None:
        """Write all parts at the end, in as few system calls as possible."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make the file's bytes survive a crash."""
        ...

    def descriptor(self) -> int | None:
        """Return the operating system's descriptor for `sendfile`, None if there is none."""
        ...


class FileSlice(NamedTuple):
    """A range of a file that has not been read: fetched records are passed to the socket in this form."""

    file: File
    position: int
    size: int


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and appending; `create` makes an empty file where there is none."""
        ...

    def exists(self, path: Path) -> bool: ...

    def is_directory(self, path: Path) -> bool: ...

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def file_size(self, path: Path) -> int: ...

    def read_file(self, path: Path) -> bytes: ...

    def write_file(self, path: Path, data: Buffer) -> None:
        """Create or overwrite a file; not atomic, not synced."""
        ...

    def make_directory(self, path: Path) -> None:
        """Create a directory and its missing parents; no error if it exists."""
        ...

    def rename(self, source: Path, target: Path) -> None: ...

    def remove(self, path: Path) -> None:
        """Remove a file; no error if it does not exist."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        ...

    def sync_directory(self, path: Path) -> None: ...

    def lock_directory(self, path: Path) -> DirectoryLock | None:
        """Lock a directory against other processes; None if another one holds the lock."""
        ...

    def free_bytes(self, path: Path) -> int: ...

    def total_bytes(self, path: Path) -> int: ...


def replace_file(files: Files, path: Path, data: Buffer) -> None:
    """Replace a small file so that a crash leaves the old or the new contents.

    Without the sync before the rename, the new name could survive a crash with empty contents.
    """
    temporary = path.with_name(path.name + ".tmp")
    files.write_file(temporary, data)
    files.open(temporary).sync()
    files.rename(temporary, path)
    files.sync_directory(path.parent)


def make_synced_directory(files: Files, path: Path) -> None:
    """Make a directory and its missing parents so that their names survive a crash, like the files in them."""
    if not files.exists(path):
        make_synced_directory(files, path.parent)
        files.make_directory(path)
        files.sync_directory(path.parent)


def remove_tree(files: Files, path: Path) -> None:
    """Remove a directory and everything below it."""
    for name in files.list_directory(path):
        child = path / name
        if files.is_directory(child):
            remove_tree(files, child)
        else:
            files.remove(child)
    files.remove_directory(path)


def _read_all(descriptor: int, size: int) -> bytes:
    """Read an open file from its current position to `size`, or to its end if that comes earlier."""
    data = os.read(descriptor, size)
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


def _write_all(descriptor: int, data: Buffer, path: Path) -> None:
    view = memoryview(data)
    while view:
        count = os.write(descriptor, view)
        if count == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        view = view[count:]


class OsFile:
    """A file of the operating system, closed when the last reference is dropped; see `File`."""

    def __init__(self, path: Path, *, create: bool) -> None:
        self._descriptor = -1
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._descriptor = os.open(path, flags, _FILE_MODE)
        self._path = path

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    @property
    def path(self) -> Path:
        return self._path

    def append(self, data: Buffer) -> None:
        written = os.write(self._descriptor, data)
        if written < len(data):
            self._append_rest([data], written)

    def append_parts(self, parts: Sequence[Buffer]) -> None:
        for start in range(0, len(parts), _PARTS_PER_WRITE_MAX):
            chunk = parts[start : start + _PARTS_PER_WRITE_MAX]
            written = os.writev(self._descriptor, chunk)
            if written < sum(map(len, chunk)):
                self._append_rest(chunk, written)

    def _append_rest(self, parts: Sequence[Buffer], written: int) -> None:
        """Finish a write that the kernel cut short, as it does for very large ones and on a nearly full disk."""
        for part in parts:
            view = memoryview(part)[written:]
            written = max(0, written - len(part))
            _write_all(self._descriptor, view, self._path)

    def read_at(self, position: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        return data + self.read_at(position + len(data), size - len(data))

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def descriptor(self) -> int | None:
        return self._descriptor


class OsDirectoryLock:
    """An advisory lock on the file `.lock`; the kernel releases it when the process ends, however it ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


class OsFiles:
    """The operating system's files."""

    def open(self, path: Path, *, create: bool = False) -> File:
        return OsFile(path, create=create)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def list_directory(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def file_size(self, path: Path) -> int:
        return os.stat(path).st_size

    def read_file(self, path: Path) -> bytes:
        # No Python file objects, which make twice as many system calls: a start reads thousands of small files.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _read_all(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def write_file(self, path: Path, data: Buffer) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
        try:
            _write_all(descriptor, data, path)
        finally:
            os.close(descriptor)

    def make_directory(self, path: Path) -> None:
        path.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        path.rmdir()

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock_directory(self, path: Path) -> DirectoryLock | None:
        descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return OsDirectoryLock(descriptor)

    def free_bytes(self, path: Path) -> int:
        usage = os.statvfs(path)
        return usage.f_bavail * usage.f_frsize

    def total_bytes(self, path: Path) -> int:
        usage = os.statvfs(path)
        return usage.f_blocks * usage.f_frsize
