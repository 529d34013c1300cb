"""Formats the log directories of a node of a cluster, with the files of Kafka's `kafka-storage format`.

Each directory gets its `meta.properties` (`identity`) and a `bootstrap.checkpoint`: a snapshot with the first records
of the cluster's metadata, which the first active controller writes to the log. The directory of the metadata log of a
quorum with dynamic voters also gets the snapshot at offset 0 of the metadata log, which holds the first voters.

`meta.properties` is written last: a directory without it is not formatted, whatever else is in it.
"""

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final
from uuid import UUID

from rookery.base.errors import ConfigError, StartupError
from rookery.base.files import Files, make_synced_directory, replace_file
from rookery.base.types import TimestampMs, decode_uuid
from rookery.base.values import value_class
from rookery.metadata.features import KRAFT_VERSION, METADATA_VERSION, SUPPORTED_FEATURES
from rookery.metadata.image.scram import ScramKey, scram_record
from rookery.metadata.records import FeatureLevelRecord, MetadataRecord, decode_record, encode_record
from rookery.metadata.releases import initial_features, release_name
from rookery.node.identity import check_stamp, lock_directories, read_stamp, release_directories, write_stamp
from rookery.node.quorum_config import ANY_ADDRESS, VOTERS
from rookery.node.settings import Settings
from rookery.quorum.committed import has_batches
from rookery.quorum.log_view import NOTHING
from rookery.quorum.snapshots import decode_snapshot, encode_snapshot, snapshot_name
from rookery.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from rookery.security.scram_credentials import ScramCredential
from rookery.storage.names import METADATA_PARTITION

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
_INITIAL_CONTROLLER = re.compile(
    r"(?P<id>\d{1,10})@(?:\[(?P<bracketed>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]/@]+)):(?P<port>\d{1,5}):"
    r"(?P<directory>[A-Za-z0-9_-]{22})",
    re.ASCII,
)


@value_class(kw_only=True)
class FormatOptions:
    """The options of `rookery format`; at most one of the three for the first voters is given."""

    cluster_id: str
    standalone: bool = False
    initial_controllers: str | None = None
    no_initial_controllers: bool = False
    ignore_formatted: bool = False
    release_version: str | None = None
    features: Sequence[str] = ()
    # The first users, which exist when the cluster starts: without them no broker that requires SCRAM could log in.
    scram: Mapping[ScramKey, ScramCredential] = field(default_factory=dict)


def format_node(
    files: Files, settings: Settings, options: FormatOptions, *, new_uuid: Callable[[], UUID], now_ms: TimestampMs
) -> list[str]:
    """Format the directories of a node; returns a line about each one that was not formatted before.

    ConfigError if the options do not fit the settings, StartupError if a directory cannot be formatted.
    """
    if not re.fullmatch(r"[!-~]+", options.cluster_id):
        raise ConfigError("--cluster-id must be a text without spaces; `rookery random-uuid` makes one")
    levels = _feature_levels(settings, options)
    metadata = settings.metadata_directory
    directories = list(dict.fromkeys([*settings.log_directories, metadata]))
    voters = _initial_voters(settings, options, new_uuid)
    locks = lock_directories(files, directories)
    try:
        new = _unformatted(files, directories, settings, options)
        _check_no_log(files, new, metadata)
        lines = []
        for directory in sorted(new, key=lambda path: path == metadata):
            own = voters if directory == metadata else None
            _format_directory(files, directory, settings, options, own, levels, new_uuid, now_ms)
            kind = "data" if directory != metadata else "metadata" if own is None else "dynamic metadata voter"
            lines.append(
                f"formatted the {kind} directory {directory} with {METADATA_VERSION} "
                f"{release_name(levels[METADATA_VERSION])}"
            )
        return lines
    finally:
        release_directories(locks)


def read_bootstrap(files: Files, directory: Path) -> list[MetadataRecord] | None:
    """Return the first records of the metadata of a formatted node; None if it has formatted itself.

    A feature that the file does not name is switched off: it gets a record, too, so that it does not become what a
    later release would switch on.
    """
    path = directory / BOOTSTRAP_FILE
    if not files.exists(path):
        return None
    records = [decode_record(value) for value in decode_snapshot(files.read_file(path))]
    named = {record.name for record in records if isinstance(record, FeatureLevelRecord)}
    off = [FeatureLevelRecord(feature.name, 0) for feature in SUPPORTED_FEATURES if feature.name not in named]
    return [*records, *off]


def _feature_levels(settings: Settings, options: FormatOptions) -> dict[str, int]:
    chosen: dict[str, int] = {}
    for text in options.features:
        name, _, level = text.partition("=")
        if not (level.isascii() and level.isdigit()):
            raise ConfigError(f"--feature: expected name=level, got {text!r}")
        chosen[name.strip()] = int(level)
    _check_kraft_version(chosen.pop(KRAFT_VERSION, None), settings)
    return initial_features(options.release_version, chosen)


def _check_kraft_version(level: int | None, settings: Settings) -> None:
    if level is not None and level != int(not _has_static_voters(settings)):
        raise ConfigError(
            f"{KRAFT_VERSION}={level} does not fit: it is 0 if {VOTERS} is set, else 1. Leave out the option."
        )


def _has_static_voters(settings: Settings) -> bool:
    return bool(settings.layers.items(VOTERS)) or not settings.controller_listener_name


def _initial_voters(settings: Settings, options: FormatOptions, new_uuid: Callable[[], UUID]) -> VoterSet | None:
    """Return the voters for the metadata log; None if they are in the configuration, or not known to this node."""
    if _has_static_voters(settings):
        if options.standalone or options.initial_controllers is not None:
            raise ConfigError(
                f"--standalone and --initial-controllers are for voters in the metadata log, but {VOTERS} is set or "
                f"there is no listener for controllers. Remove {VOTERS} and set controller.quorum.bootstrap.servers, "
                "or leave out the option."
            )
        return None
    if options.standalone:
        return _standalone(settings, new_uuid)
    if options.initial_controllers is not None:
        assert settings.controller_listener_name is not None
        return parse_initial_controllers(options.initial_controllers, settings.controller_listener_name)
    if settings.is_controller and not options.no_initial_controllers:
        raise ConfigError(
            f"{VOTERS} is not set, so a controller needs --standalone (it is the first voter), --initial-controllers "
            "(the first voters, the same on all nodes) or --no-initial-controllers (it joins later)"
        )
    return None


def _standalone(settings: Settings, new_uuid: Callable[[], UUID]) -> VoterSet:
    if not settings.is_controller:
        raise ConfigError("--standalone is for controllers, but process.roles=broker")
    endpoints = {}
    for listener in settings.controller_listeners:
        known = settings.advertised.get(listener.name, listener)
        if known.port == 0:
            raise ConfigError(f"listeners: {listener.name} needs a fixed port, which the metadata log has to hold")
        host = socket.gethostname() if known.listens_everywhere else known.host
        endpoints[listener.name] = Endpoint(host, known.port)
    return VoterSet([Voter(ReplicaKey(settings.node_id, new_uuid()), endpoints)])


def parse_initial_controllers(text: str, listener: str) -> VoterSet:
    """Parse `id@host:port:directory-id,...`; ConfigError if it is invalid."""
    voters = []
    for item in filter(None, (item.strip() for item in text.split(","))):
        match = _INITIAL_CONTROLLER.fullmatch(item)
        if match is None or not 0 < int(match["port"]) < 65_536:
            raise ConfigError(f"--initial-controllers: expected id@host:port:directory-id, got {item!r}")
        host = match["bracketed"] or match["host"]
        if host in ANY_ADDRESS:
            raise ConfigError(f"--initial-controllers: other nodes cannot connect to {host}. Use the host's name.")
        key = ReplicaKey(int(match["id"]), decode_uuid(match["directory"]))
        voters.append(Voter(key, {listener: Endpoint(host, int(match["port"]))}))
    if not voters or len({voter.key.node_id for voter in voters}) < len(voters):
        raise ConfigError("--initial-controllers must name at least one controller, and each node id only once")
    if len({voter.key.directory_id for voter in voters}) < len(voters):
        raise ConfigError("--initial-controllers: each controller needs its own directory id (`rookery random-uuid`)")
    return VoterSet(voters)


def _unformatted(files: Files, directories: Sequence[Path], settings: Settings, options: FormatOptions) -> list[Path]:
    """Return the directories to format. The others must belong to this node and cluster."""
    new = []
    for directory in directories:
        stamp = read_stamp(files, directory)
        if stamp is None:
            new.append(directory)
            continue
        check_stamp(directory, stamp, node_id=settings.node_id, cluster_id=options.cluster_id, given_as="--cluster-id")
        if not options.ignore_formatted:
            raise StartupError(
                f"{directory} is already formatted. "
                "Use --ignore-formatted to format only the directories that are not, or another directory."
            )
    return new


def _check_no_log(files: Files, new: Sequence[Path], metadata_directory: Path) -> None:
    if metadata_directory in new and has_batches(files, metadata_directory):
        raise StartupError(
            f"{metadata_directory} has a metadata log, but no meta.properties. Nothing was changed. "
            "Restore meta.properties from a copy, or use an empty directory."
        )


def _format_directory(
    files: Files,
    directory: Path,
    settings: Settings,
    options: FormatOptions,
    voters: VoterSet | None,
    levels: Mapping[str, int],
    new_uuid: Callable[[], UUID],
    now_ms: TimestampMs,
) -> None:
    own = voters.get(settings.node_id) if voters is not None else None
    directory_id = own.key.directory_id if own is not None else new_uuid()
    if voters is not None:
        log_directory = directory / str(METADATA_PARTITION)
        make_synced_directory(files, log_directory)
        snapshot = encode_snapshot((), NOTHING.epoch, last_timestamp_ms=now_ms, now_ms=now_ms, voters=voters)
        replace_file(files, log_directory / snapshot_name(NOTHING), b"".join(snapshot))
    records: list[MetadataRecord] = [FeatureLevelRecord(name, level) for name, level in _in_order(levels) if level]
    records += (scram_record(key, credential) for key, credential in options.scram.items())
    values = [encode_record(record) for record in records]
    bootstrap = encode_snapshot(values, 0, last_timestamp_ms=0, now_ms=now_ms)
    replace_file(files, directory / BOOTSTRAP_FILE, b"".join(bootstrap))
    write_stamp(files, directory, settings.node_id, options.cluster_id, directory_id)


def _in_order(levels: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the features in Kafka's order: `metadata.version` says how the records after it are written."""
    return sorted(levels.items(), key=lambda item: (item[0] != METADATA_VERSION, item[0]))
