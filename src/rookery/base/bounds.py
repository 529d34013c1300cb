"""Every bound on what one request, one connection or one peer may cost, with its reason: one table.

There are two kinds. A *slice* is the number of items that are processed before the event loop serves other connections
(`rookery.base.slices`); it bounds time, and nothing is rejected. A *limit* bounds memory: what exceeds it is rejected
or has to wait. `docs/bounds.md` is generated from this table: `python -m rookery.base.bounds > docs/bounds.md`.
"""

import sys
from typing import Final, NamedTuple


class Bound(NamedTuple):
    what: str
    value: int
    unit: str
    beyond: str
    reason: str


SLICES: Final[list[Bound]] = []
LIMITS: Final[list[Bound]] = []


def _slice(what: str, value: int, unit: str, reason: str) -> int:
    SLICES.append(Bound(what, value, unit, "the rest follows in later turns of the event loop", reason))
    return value


def _limit(what: str, value: int, unit: str, beyond: str, reason: str) -> int:
    LIMITS.append(Bound(what, value, unit, beyond, reason))
    return value


METADATA_RECORDS_PER_SLICE: Final = _slice(
    "metadata records encoded, or decoded and applied, per slice",
    250,
    "records",
    "about 5 ms; a request writes up to 10,000",
)
PARTITIONS_PER_SLICE: Final = _slice(
    "partitions whose logs are created or removed per slice",
    8,
    "partitions",
    "half a millisecond each, in system calls; several on a busy machine",
)
COORDINATOR_RECORDS_PER_SLICE: Final = _slice(
    "records that a loading coordinator replays per slice", 500, "records", "about 5 ms"
)
NAMES_PER_SLICE: Final = _slice(
    "topic names matched with a pattern per slice; fewer, down to a hundredth, for larger patterns",
    2000,
    "names",
    "5 microseconds per name; 0.4 ms for a name of 249 characters and the largest pattern",
)
REQUEST_BYTES_ON_LOOP: Final = _slice(
    "bytes of a request that is decoded on the event loop (except Produce)",
    65_536,
    "bytes",
    "about 30 ms for the smallest items; a longer request is decoded, and its response encoded, in a worker thread",
)
UNSPLIT_REQUEST_BYTES: Final = _slice(
    "bytes of a request whose items are not counted",
    512,
    "bytes",
    "nearly all requests are shorter, and take less than 30 ms whatever they contain",
)
ITEMS_PER_SLICE: Final = _slice("items of a request (partitions, keys) processed per slice", 500, "items", "about 5 ms")
OFFSETS_PER_SLICE: Final = _slice(
    "committed offsets compared with deleted topics per slice", 10_000, "offsets", "about 5 ms"
)
FETCH_PARTITIONS_PER_SLICE: Final = _slice(
    "partitions of a Fetch read per slice",
    500,
    "partitions",
    "about 5 ms, for followers 8; also for fetch sessions, whose requests are small however many partitions they have",
)
FETCHED_BATCHES_PER_SLICE: Final = _slice(
    "batches that a follower appends per slice", 500, "batches", "about 5 ms; a response of 10 MB may have 100,000"
)
FETCHED_BYTES_PER_SLICE: Final = _slice(
    "bytes that a follower appends per slice, and at most one batch more", 524_288, "bytes", "about 5 ms"
)
ISR_CHANGES_PER_SLICE: Final = _slice(
    "changed in-sync replicas processed per slice by their leader",
    100,
    "partitions",
    "about 3 ms: each is a line of the log",
)
DESCRIPTIONS_PER_SLICE: Final = _slice(
    "topics, groups or configs described per slice",
    25,
    "items",
    "a description has many parts: those of a topic's configs take 0.4 ms",
)
RECORDS_PER_SLICE: Final = _slice(
    "records of a produced batch checked per slice, if a topic's settings require a check",
    2048,
    "records",
    "about 4 ms; a megabyte of zstd holds a million records",
)
INSPECTED_RECORDS_ON_LOOP: Final = _slice(
    "records of one Produce that are checked when it arrives", 8192, "records", "about 15 ms; most batches have fewer"
)
INSPECTED_BYTES_ON_LOOP: Final = _slice(
    "decompressed bytes of such records",
    262_144,
    "bytes",
    "larger batches are decompressed, and compressed again, in a worker thread: a batch may expand to 64 MB",
)

REQUEST_ITEMS_MAX: Final = _limit(
    "array items of a request that is processed in slices",
    100_000,
    "items",
    "the connection is closed",
    "more partitions than a broker can have; an item of two bytes becomes an object of hundreds",
)
WHOLE_REQUEST_ITEMS_MAX: Final = _limit(
    "array items of any other request, partitions of a Fetch",
    20_000,
    "items",
    "the connection is closed",
    "such a request is processed in one turn of the loop: about 5 microseconds per item",
)
PRODUCE_PARTITIONS_MAX: Final = _limit(
    "partitions of a Produce",
    10_000,
    "partitions",
    "the connection is closed",
    "they are appended in one turn of the loop; 10,000 empty batches are a request of 700 KB",
)
INSPECTIONS_AT_ONCE: Final = _limit(
    "produced batches above these bounds that are decompressed at the same time",
    1,
    "batch",
    "the others wait in compressed form",
    "a batch may expand to 64 MB",
)
RECORD_ERRORS_MAX: Final = _limit(
    "bad records listed in the response to a Produce",
    10_000,
    "records",
    "the others are only counted; the batch is rejected in any case",
    "the error of a record has 150 bytes, the compressed record itself may have less than one",
)
LARGE_REQUESTS_AT_ONCE: Final = _limit(
    "requests too large for the event loop that are decoded at the same time",
    1,
    "request",
    "the others wait as undecoded bytes",
    "a decoded request takes up to a few hundred times its encoded size",
)
WAITING_REQUEST_BYTES_MAX: Final = _limit(
    "bytes of such requests that are waiting",
    67_108_864,
    "bytes",
    "the connection of the next one is closed",
    "many connections may each send one",
)
PENDING_LOGINS_MAX: Final = _limit(
    "connections of a listener whose clients have not logged in, or whose TLS handshake is not complete",
    1000,
    "connections",
    "the one that has waited for longest is closed",
    "a login takes milliseconds; peers that never finish one must not use up the connections of others",
)
PENDING_LOGIN_SECONDS_MAX: Final = _limit(
    "time for a TLS handshake and a login",
    30,
    "seconds",
    "the connection is closed",
    "a client at the other end of the world needs a second",
)
PARTIAL_REQUEST_BYTES_MAX: Final = _limit(
    "bytes of requests that have arrived in part, over all connections of a listener; `queued.max.request.bytes`",
    268_435_456,
    "bytes",
    "the connection whose request has been incomplete for longest is closed",
    "memory is used only for bytes that have arrived, but 50 peers may each stop half way through 20 MB",
)
RESPONSE_BYTES_MAX: Final = _limit(
    "bytes that a broker may announce for a response (in the client)",
    536_870_912,
    "bytes",
    "the connection is closed",
    "more than any valid response; the first bytes of an HTTP response read as a size of about 1.2 GB. Memory is "
    "allocated for bytes that have arrived, whatever size is announced",
)
KEPT_RESPONSE_BYTES_MAX: Final = _limit(
    "bytes of a response whose memory the client reuses",
    67_108_864,
    "bytes",
    "the memory is returned to the system",
    "three buffers are kept per connection; `fetch.max.bytes` is 50 MiB by default",
)
PATTERN_LENGTH_MAX: Final = _limit(
    "characters of a pattern for topics or transactional ids",
    8192,
    "characters",
    "INVALID_REGULAR_EXPRESSION",
    "a pattern of 20,000 takes 60 ms to compile",
)
PATTERN_PROGRAM_MAX: Final = _limit(
    "instructions of a compiled pattern",
    2000,
    "instructions",
    "INVALID_REGULAR_EXPRESSION",
    "the time of a match grows with their number: 0.4 ms for a name of 249 characters",
)
PATTERN_BYTES_MAX: Final = _limit(
    "memory of a compiled pattern",
    262_144,
    "bytes",
    "INVALID_REGULAR_EXPRESSION",
    "the 256 most recent patterns are kept",
)
TOPIC_PATTERNS_MAX: Final = _limit(
    "patterns whose matching topics are kept up to date",
    1000,
    "patterns",
    "the least recently used one is matched with all topics again when it is used",
    "a new topic is matched with each of them",
)
COORDINATOR_LOADS_AT_ONCE: Final = _limit(
    "partitions of `__consumer_offsets`, and of `__transaction_state`, that are loaded at the same time",
    4,
    "partitions",
    "the others wait, and their clients get COORDINATOR_LOAD_IN_PROGRESS",
    "each reads up to 5 MB at a time, and a node may become the leader of all fifty at once",
)
FETCH_SESSION_PARTITIONS_MAX: Final = _limit(
    "partitions of all fetch sessions together",
    100_000,
    "partitions",
    "an older session is evicted as if no slot were left, or the client gets no session and sends full fetches",
    "a partition takes 400 bytes, and `max.incremental.fetch.session.cache.slots` counts sessions, however large",
)
QUOTA_BUCKETS_MAX: Final = _limit(
    "clients whose use of one kind of quota is known",
    8192,
    "clients",
    "what the client that was quiet for longest has used is forgotten",
    "2 KB each, and clients choose their client ids",
)

_INTRODUCTION = """\
# Bounds

<!-- Generated from the table in src/rookery/base/bounds.py by `make docs`. Do not edit. -->

One event loop serves all connections, so every request waits while another one is processed. No request should block
the loop for more than about 50 ms, or use more than a few megabytes beyond its own bytes. Settings that set limits
(`socket.request.max.bytes`, `max.connections`, `fetch.max.bytes` and so on) are in [config.md](config.md).
"""


def render() -> str:
    return "\n".join((_INTRODUCTION, *_table("Slices", SLICES), *_table("Limits", LIMITS)))


def _table(title: str, bounds: list[Bound]) -> list[str]:
    rows = [f"| {each.what} | {each.value:,} {each.unit} | {each.beyond} | {each.reason} |" for each in bounds]
    return [f"## {title}\n", "| what | bound | beyond it | reason |", "| --- | --- | --- | --- |", *rows, ""]


if __name__ == "__main__":
    sys.stdout.write(render())
