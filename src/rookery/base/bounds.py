"""Every bound on what one request, one connection or one peer may cost, with its reason: one table.

Two kinds. A *slice* is how many items are worked on before the event loop serves others (`rookery.base.slices`); it
bounds time, and nothing is refused. A *limit* is what is refused, or waited for, beyond it; it bounds memory.
`docs/bounds.md` is written from this table: `python -m rookery.base.bounds > docs/bounds.md`.
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
    "metadata records that are encoded at once", 500, "records", "about 10 ms; a request writes up to 10,000"
)
PARTITIONS_PER_SLICE: Final = _slice(
    "partitions whose logs are created or removed at once", 16, "partitions", "half a millisecond each, in system calls"
)
COORDINATOR_RECORDS_PER_SLICE: Final = _slice(
    "records that a coordinator replays at once while it loads", 1000, "records", "about 10 ms"
)
COORDINATOR_READ_BYTES_PER_SLICE: Final = _slice(
    "bytes that a loading coordinator reads on the event loop",
    65_536,
    "bytes",
    "more is read in a worker thread: a disk may be slow, and a partition's read is 5 MB",
)
NAMES_PER_SLICE: Final = _slice(
    "topics' names that are matched with a pattern at once; fewer, down to a hundredth, the larger the pattern",
    2000,
    "names",
    "5 microseconds for a name; 0.4 ms for one of 249 characters and the largest pattern",
)
REQUEST_BYTES_ON_LOOP: Final = _slice(
    "bytes of a request that is decoded on the event loop (Produce apart)",
    65_536,
    "bytes",
    "about 30 ms for the smallest items; a longer request is decoded, and its response encoded, in a worker thread",
)
UNSPLIT_REQUEST_BYTES: Final = _slice(
    "bytes of a request whose items are not counted",
    512,
    "bytes",
    "nearly all requests are shorter, and have no more items than are answered in 30 ms",
)
ITEMS_PER_SLICE: Final = _slice(
    "items of a request (partitions, keys) that are answered at once", 500, "items", "about 5 ms"
)
FETCH_PARTITIONS_PER_SLICE: Final = _slice(
    "partitions of a Fetch that are read at once",
    2000,
    "partitions",
    "about 15 ms; also of a session, whose requests are small however many partitions it has",
)
DESCRIPTIONS_PER_SLICE: Final = _slice(
    "topics, groups or configs that are described at once",
    25,
    "items",
    "a description has many parts: those of a topic's configs take 0.4 ms",
)
RECORDS_PER_SLICE: Final = _slice(
    "records of a produced batch that are looked at at once, where a topic's settings ask for it",
    2048,
    "records",
    "about 4 ms; a megabyte of zstd holds a million records",
)
INSPECTED_RECORDS_ON_LOOP: Final = _slice(
    "records that one Produce may have looked at as it comes in", 8192, "records", "about 15 ms; most batches have less"
)
INSPECTED_BYTES_ON_LOOP: Final = _slice(
    "bytes that such records may expand to",
    262_144,
    "bytes",
    "larger batches are decompressed, and compressed again, in a worker thread: a batch may expand to 64 MB",
)

REQUEST_ITEMS_MAX: Final = _limit(
    "array items of a request that is answered in slices",
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
    "what must be decided as a whole is decided in one turn: about 5 microseconds for each item",
)
PRODUCE_PARTITIONS_MAX: Final = _limit(
    "partitions of a Produce",
    10_000,
    "partitions",
    "the connection is closed",
    "they are appended in one turn; with an empty batch for each, 10,000 are a request of 700 KB",
)
INSPECTIONS_AT_ONCE: Final = _limit(
    "produced batches above these bounds that are open at the same time",
    1,
    "batch",
    "the others wait, as they came",
    "a batch may expand to 64 MB",
)
RECORD_ERRORS_MAX: Final = _limit(
    "bad records that the answer to a Produce names",
    10_000,
    "records",
    "the others are counted, and their batch is refused all the same",
    "the error of a record has 150 bytes, the record itself may have less than one",
)
LARGE_REQUESTS_AT_ONCE: Final = _limit(
    "requests above the bytes that are decoded on the event loop, decoded at the same time",
    1,
    "request",
    "the others wait, as bytes",
    "a decoded request takes up to some hundred times its bytes",
)
WAITING_REQUEST_BYTES_MAX: Final = _limit(
    "bytes of such requests that wait",
    67_108_864,
    "bytes",
    "the connection of the next one is closed",
    "many connections may send one each",
)
PARTIAL_REQUEST_BYTES_MAX: Final = _limit(
    "bytes of requests that have arrived in part, over all connections of a listener; `queued.max.request.bytes`",
    268_435_456,
    "bytes",
    "the connection whose request has been incomplete for longest is closed",
    "a request takes the memory that has arrived of it, but 50 peers may each stop half way through 20 MB",
)
RESPONSE_BYTES_MAX: Final = _limit(
    "bytes that a broker may say a response has (of the client)",
    536_870_912,
    "bytes",
    "the connection is closed",
    "more than any sane response; a stray HTTP server's first bytes read as a size of about 1.2 GB. The memory of a "
    "response follows what has arrived of it, whatever its size is said to be",
)
KEPT_RESPONSE_BYTES_MAX: Final = _limit(
    "bytes of a response whose memory the client uses again",
    67_108_864,
    "bytes",
    "the memory goes back to the system",
    "three of them are kept for each connection; `fetch.max.bytes` is 50 MiB by default",
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
    "a match takes time with their number: 0.4 ms for a name of 249 characters",
)
PATTERN_BYTES_MAX: Final = _limit(
    "memory of a compiled pattern", 262_144, "bytes", "INVALID_REGULAR_EXPRESSION", "the 256 latest patterns are kept"
)
TOPIC_PATTERNS_MAX: Final = _limit(
    "patterns whose matching topics are kept up to date",
    1000,
    "patterns",
    "the one that was not used for longest is matched again with all topics",
    "a new topic is matched with each of them",
)
FETCH_SESSION_PARTITIONS_MAX: Final = _limit(
    "partitions of all fetch sessions together",
    100_000,
    "partitions",
    "an older session ends as if no slot were left, or the fetcher gets no session and sends full fetches",
    "a partition takes 400 bytes, and `max.incremental.fetch.session.cache.slots` counts sessions, however large",
)

_INTRODUCTION = """\
# Bounds

<!-- Generated from the table in src/rookery/base/bounds.py by `make docs`. Do not edit. -->

One event loop serves all connections, so whatever one request costs, all others wait for. No request may hold the loop
for more than about 100 ms, or hold more than some megabytes beyond its own bytes. Settings with limits of their own
(`socket.request.max.bytes`, `max.connections`, `fetch.max.bytes` and so on) are in [config.md](config.md).
"""


def render() -> str:
    return "\n".join((_INTRODUCTION, *_table("Slices", SLICES), *_table("Limits", LIMITS)))


def _table(title: str, bounds: list[Bound]) -> list[str]:
    rows = [f"| {each.what} | {each.value:,} {each.unit} | {each.beyond} | {each.reason} |" for each in bounds]
    return [f"## {title}\n", "| what | bound | beyond it | reason |", "| --- | --- | --- | --- |", *rows, ""]


if __name__ == "__main__":
    sys.stdout.write(render())
