"""The interfaces that a client must implement for the transaction scenarios."""

from collections.abc import Mapping
from typing import Any, Protocol

Partition = tuple[str, int]
READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


class FencedError(Exception):
    """The client reports that it is fenced, by another instance or by the coordinator's time-out."""


class Source(Protocol):
    """A consumer of one topic in a group, with isolation level read_committed."""

    def __init__(self, bootstrap: str, group_id: str, topic: str) -> None: ...

    def take(self, count: int) -> list[bytes]:
        """Return the next values."""
        ...

    def positions(self) -> dict[Partition, int]: ...

    def close(self) -> None: ...


class Transactor(Protocol):
    """A transactional producer; its constructor calls `init_transactions`."""

    def __init__(
        self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000, codec: str = "none"
    ) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, *values: bytes) -> None:
        """Write values and wait until all are acknowledged."""
        ...

    def send_offsets(self, offsets: Mapping[Partition, int], source: Any) -> None:
        """Commit offsets of the source's group within the transaction."""
        ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None:
        """Close without ending the transaction, like a process that is killed."""
        ...
