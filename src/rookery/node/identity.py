"""The identity of a node: the `meta.properties` file in every log directory, and the lock against other processes.

A directory permanently belongs to one node of one cluster. The file, called the stamp below, is written when the
directory is formatted: by the first start of a node that is a cluster by itself, else by `rookery format` (`format`).
Later it must agree with the settings, or the start fails: serving the data of another node under this node's id would
corrupt both.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from rookery.base.errors import StartupError
from rookery.base.files import DirectoryLock, Files, make_synced_directory, replace_file
from rookery.base.properties import parse_properties
from rookery.base.types import NodeId, decode_uuid, encode_uuid
from rookery.base.values import value_class

META_FILE = "meta.properties"


@value_class
class Identity:
    cluster_id: str
    node_id: NodeId
    directory_ids: dict[Path, UUID]


def lock_directories(files: Files, directories: Sequence[Path]) -> list[DirectoryLock]:
    """Create the log directories that are missing, and lock all of them against other processes."""
    locks: list[DirectoryLock] = []
    try:
        for directory in directories:
            locks.append(_lock_directory(files, directory))
    except StartupError:
        release_directories(locks)
        raise
    return locks


def release_directories(locks: Sequence[DirectoryLock]) -> None:
    for lock in locks:
        lock.release()


def _lock_directory(files: Files, directory: Path) -> DirectoryLock:
    try:
        make_synced_directory(files, directory)
        lock = files.lock_directory(directory)
    except OSError as error:
        raise StartupError(
            f"cannot write to the log directory {directory}: {error.strerror}. "
            "Make it writable for this user, or name another one with log.dirs or --data-dir."
        ) from error
    if lock is None:
        raise StartupError(
            f"another process holds the log directory {directory}. "
            "Stop that process, or give this node its own directory with log.dirs or --data-dir."
        )
    return lock


def establish_identity(
    files: Files,
    directories: Sequence[Path],
    *,
    node_id: NodeId,
    cluster_id: str | None,
    new_uuid: Callable[[], UUID],
    required: Path | None = None,
) -> Identity:
    """Compare the stamps of all directories with the settings, and stamp new ones. The directories must be locked.

    `required` is a directory that must have its stamp already: on a member of a cluster, that of the metadata log.
    """
    stamps = {directory: read_stamp(files, directory) for directory in directories}
    existing = {directory: stamp for directory, stamp in stamps.items() if stamp is not None}
    for directory, stamp in existing.items():
        check_stamp(directory, stamp, node_id=node_id, cluster_id=cluster_id)
    cluster_ids = {stamp["cluster.id"] for stamp in existing.values()}
    if len(cluster_ids) > 1:
        raise StartupError(
            f"the log directories belong to different clusters ({', '.join(sorted(cluster_ids))}). "
            "List only directories of one cluster in log.dirs."
        )
    if required is not None and stamps[required] is None:
        raise _not_formatted(required, node_id, next(iter(cluster_ids), None))
    chosen_id = cluster_ids.pop() if cluster_ids else cluster_id or encode_uuid(new_uuid())
    directory_ids = {}
    for directory, existing_stamp in stamps.items():
        stamp = existing_stamp or write_stamp(files, directory, node_id, chosen_id, new_uuid())
        directory_ids[directory] = decode_uuid(stamp["directory.id"])
    return Identity(chosen_id, node_id, directory_ids)


def _not_formatted(directory: Path, node_id: NodeId, cluster_id: str | None) -> StartupError:
    """Return the error for a member of a cluster with an empty directory for its metadata log.

    If such a node formatted itself, several nodes that are started for the first time would be as many clusters, and a
    voter with a new disk would come back without the votes that it gave and the records that it acknowledged.
    """
    if cluster_id is None:
        return StartupError(
            f"{directory} is not formatted, and a node of a cluster does not format itself. "
            "Run `rookery format --cluster-id ID --config FILE` first, with the same ID on all nodes "
            "(`rookery random-uuid` makes one for a new cluster)."
        )
    return StartupError(
        f"{directory} has the metadata log and is not formatted, but another log directory belongs to the cluster "
        f"{cluster_id}. Correct metadata.log.dir or log.dirs. If the disk is new and node {node_id} is a voter, remove "
        f"the voter first (`rookery quorum remove {node_id}`), and add it again after "
        f"`rookery format --cluster-id {cluster_id} --config FILE --no-initial-controllers --ignore-formatted`."
    )


def read_stamp(files: Files, directory: Path) -> dict[str, str] | None:
    """Return the content of the directory's `meta.properties`, None if it has none; StartupError if it is damaged."""
    path = directory / META_FILE
    if not files.exists(path):
        return None
    text = files.read_file(path).decode("utf-8", "replace")
    stamp = {key: entry.value for key, entry in parse_properties(text, str(path)).items()}
    problem = _find_problem(stamp)
    if problem is not None:
        raise StartupError(f"{path} is damaged ({problem}). Restore it.")
    return stamp


def _find_problem(stamp: Mapping[str, str]) -> str | None:
    missing = [key for key in ("cluster.id", "node.id", "directory.id") if not stamp.get(key)]
    if missing:
        return f"{', '.join(missing)} is missing"
    if not (stamp["node.id"].isascii() and stamp["node.id"].isdigit()):
        return "node.id is not a number"
    try:
        decode_uuid(stamp["directory.id"])
    except ValueError:
        return "directory.id is not a UUID"
    return None


def check_stamp(
    directory: Path, stamp: dict[str, str], *, node_id: NodeId, cluster_id: str | None, given_as: str = "cluster.id"
) -> None:
    """Raise StartupError unless a directory belongs to this node and, if it is not None, to this cluster."""
    if int(stamp["node.id"]) != node_id:
        raise StartupError(
            f"{directory} belongs to node.id={stamp['node.id']}, but this node has node.id={node_id}. "
            f"Set node.id={stamp['node.id']}, or use another directory."
        )
    if cluster_id is not None and stamp["cluster.id"] != cluster_id:
        raise StartupError(
            f"{directory} belongs to the cluster {stamp['cluster.id']}, but {given_as} is {cluster_id}. "
            f"Set {given_as}={stamp['cluster.id']}, or use another directory."
        )


def write_stamp(files: Files, directory: Path, node_id: NodeId, cluster_id: str, directory_id: UUID) -> dict[str, str]:
    stamp = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": encode_uuid(directory_id),
    }
    text = "".join(f"{key}={value}\n" for key, value in stamp.items())
    replace_file(files, directory / META_FILE, text.encode())
    return stamp
