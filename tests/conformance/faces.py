"""What a client must be able to do to play the scenarios of transactions."""

from collections.abc import Mapping
from typing import Any, Protocol

Partition = tuple[str, int]
READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


class FencedError(Exception):
    """The client says that another instance, or the coordinator's time-out, took its transactional id from it."""


class Source(Protocol):
    """A consumer of one topic, in a group, at read_committed."""

    def __init__(self, bootstrap: str, group_id: str, topic: str) -> None: ...

    def take(self, count: int) -> list[bytes]:
        """The next values."""
        ...

    def positions(self) -> dict[Partition, int]: ...

    def close(self) -> None: ...


class Transactor(Protocol):
    """A transactional producer; a new one has called `init_transactions` already."""

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
        """Let go without a word to the broker about the transaction, as a process that is killed."""
        ...
