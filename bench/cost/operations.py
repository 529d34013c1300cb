"""The table of operations whose cost is counted, and those of them that need no coordinator.

`Operation.prepare` opens the connections and brings the broker into the state that the operation needs; what it returns
runs the operation once. A request is sent when the reply to the last one has come, so that the broker never finds two
of them in one read; only the members of a group have to join it concurrently.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bench import wire
from bench.cost import coordinated
from bench.cost.client import Client, RunOnce, repeat, require_success
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message

_PRODUCED, _FETCHED, _EMPTY = "produced", "fetched", "empty"
_TOPICS = 1000
# Those of the coordinators, which Metadata of all topics describes too.
_INTERNAL_TOPICS = 2
_RECORD_BYTES = 1000
# As the Java client batches and fetches by default: 16 KB, 1 MB.
_BATCH_RECORDS = 16
_FETCH_BYTES = 1 << 20
_FETCHED_BATCHES = 80
_ACKS_ALL = -1
_TIMEOUT_MS = 30_000


class Operation(NamedTuple):
    """`prepare` takes the broker's port. `times` runs make a window, whose instructions are counted together.
    The cheapest of `windows` windows counts. `topics` is how many topics the broker must have, 0 if that does not
    matter."""

    name: str
    title: str
    prepare: Callable[[int], RunOnce]
    times: int = 10
    windows: int = 9
    topics: int = 0


def prepare_data(port: int, topic_count: int) -> None:
    """Create the topics, the records to fetch and the coordinators' own topics: `topic_count` topics, or as few as the
    operations need."""
    client = Client(port)
    names = [_PRODUCED, _FETCHED, _EMPTY, coordinated.TOPIC]
    names += [f"topic-{number:04}" for number in range(topic_count - _INTERNAL_TOPICS - len(names))]
    topics = [Message(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names]
    created = client.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout_ms=_TIMEOUT_MS, validate_only=False)
    require_success(topic.error_code for topic in created.topics)
    frame = wire.produce_frame(_FETCHED, 0, wire.make_batch(_BATCH_RECORDS, _RECORD_BYTES))
    for _ in range(_FETCHED_BATCHES):
        _produce(client, frame)
    coordinated.find_coordinators(client)


def _produce(client: Client, frame: bytes) -> None:
    response = wire.decode_reply(ApiKey.PRODUCE, wire.PRODUCE_VERSION, client.exchange(frame))
    require_success(part.error_code for topic in response.responses for part in topic.partition_responses)


def _prepare_produce(record_bytes: int, port: int) -> RunOnce:
    frame = wire.produce_frame(_PRODUCED, 0, wire.make_batch(1, record_bytes), acks=_ACKS_ALL)
    return partial(_produce, Client(port), frame)


def _prepare_fetch(topic: str, expected_bytes: range, port: int) -> RunOnce:
    def check(response: Message) -> None:
        parts = [part for topic in response.responses for part in topic.partitions]
        require_success(part.error_code for part in parts)
        size = sum(len(part.records or b"") for part in parts)
        if size not in expected_bytes:
            raise wire.WireError(f"{size} bytes were fetched instead of {expected_bytes}")

    frame = wire.fetch_frame(topic, [0], _FETCH_BYTES, max_wait_ms=0)
    return repeat(port, frame, ApiKey.FETCH, wire.FETCH_VERSION, check)


def _prepare_metadata(topics: list[str] | None, expected: int, port: int) -> RunOnce:
    def check(response: Message) -> None:
        require_success(topic.error_code for topic in response.topics)
        if len(response.topics) != expected:
            raise wire.WireError(f"{len(response.topics)} topics were described instead of {expected}")

    return repeat(port, wire.metadata_frame(topics), ApiKey.METADATA, wire.METADATA_VERSION, check)


def _prepare_api_versions(port: int) -> RunOnce:
    def check(response: Message) -> None:
        require_success([response.error_code])

    return repeat(port, wire.api_versions_frame(), ApiKey.API_VERSIONS, wire.API_VERSIONS_VERSION, check)


_NOTHING = range(1)
_ONE_MB = range(_FETCH_BYTES - 2 * _BATCH_RECORDS * _RECORD_BYTES, _FETCH_BYTES + 1)

OPERATIONS = (
    Operation("produce-1kb", "Produce, a record of 1 KB", partial(_prepare_produce, _RECORD_BYTES)),
    Operation("produce-tiny", "Produce, a record of 10 B", partial(_prepare_produce, wire.TINY_RECORD_BYTES)),
    Operation("fetch-1mb", "Fetch of 1 MB", partial(_prepare_fetch, _FETCHED, _ONE_MB)),
    Operation("fetch-nothing", "Fetch of nothing", partial(_prepare_fetch, _EMPTY, _NOTHING)),
    Operation("heartbeat", "Heartbeat", coordinated.prepare_heartbeat),
    Operation("offset-commit", "OffsetCommit, one partition", coordinated.prepare_offset_commit),
    Operation("api-versions", "ApiVersions", _prepare_api_versions),
    Operation("metadata-1", "Metadata, 1 topic of 1,000", partial(_prepare_metadata, [_PRODUCED], 1), topics=_TOPICS),
    Operation(
        "metadata-1000", "Metadata, 1,000 topics", partial(_prepare_metadata, None, _TOPICS), times=5, topics=_TOPICS
    ),
    Operation("join-100", "JoinGroup of 100 members", coordinated.prepare_rebalance, times=1, windows=4),
    Operation("transaction-100", "Transaction of 100 records", coordinated.prepare_transaction),
)
