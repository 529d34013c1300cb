"""The operating system's files without the waiting for the disk.

A broker for tests loses nothing by that when it is stopped, restarted or killed, for the kernel has the bytes; only the
machine itself must not go down. In return, starting, creating topics and stopping take no time.
"""

from pathlib import Path

from rookery.base.files import File, OsFile, OsFiles


class UnsyncedFile(OsFile):
    def sync(self) -> None:
        """The kernel will do it when it likes."""


class UnsyncedFiles(OsFiles):
    def open(self, path: Path, *, create: bool = False) -> File:
        return UnsyncedFile(path, create=create)

    def sync_directory(self, path: Path) -> None:
        """The kernel will do it when it likes."""
