"""How the last process ended that wrote a log directory: stopped cleanly, killed, or with its machine.

A clean stop leaves a marker, and the next start removes it. A process that was killed loses nothing that it has
written, synced or not, as long as the machine runs: the system still has it. Only a crash of the machine loses unsynced
data, and the machine has another boot id then. So every registration of a broker is noted with the boot id (decision
39).
"""

from pathlib import Path

from rookery.base.errors import CorruptionError
from rookery.base.files import Files
from rookery.base.types import NO_BROKER_EPOCH
from rookery.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    REGISTRATION_FILE,
    decode_clean_shutdown,
    decode_registration,
    encode_registration,
)


def take_clean_shutdown(files: Files, path: Path) -> int | None:
    """Remove the marker of a clean stop; returns the broker epoch in it, None if the stop was not clean."""
    marker = path / CLEAN_SHUTDOWN_FILE
    try:
        broker_epoch: int | None = decode_clean_shutdown(files.read_file(marker))
    except FileNotFoundError:
        return None
    except CorruptionError:
        broker_epoch = None
    files.remove(marker)
    files.sync_directory(path)
    return broker_epoch


def kept_epoch(files: Files, path: Path, stopped_epoch: int | None, boot_id: str | None) -> int:
    """Return the epoch of the broker that wrote a directory last; -1 if some of its writes may be lost.

    `stopped_epoch` is that of a clean stop, and `boot_id` the present one.
    """
    if stopped_epoch is not None:
        return stopped_epoch
    try:
        epoch, boot_id_then = decode_registration(files.read_file(path / REGISTRATION_FILE))
    except (FileNotFoundError, CorruptionError):
        return NO_BROKER_EPOCH
    return epoch if boot_id_then == boot_id else NO_BROKER_EPOCH


def write_registration(files: Files, path: Path, broker_epoch: int, boot_id: str) -> None:
    """Note the epoch of a broker's registration in a directory.

    It is not synced: after a crash of the machine the file does not count, whatever it contains.
    """
    file = path / REGISTRATION_FILE
    temporary = file.with_name(file.name + ".tmp")
    files.write_file(temporary, encode_registration(broker_epoch, boot_id))
    files.rename(temporary, file)
