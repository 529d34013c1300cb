"""Dead letters for tests."""

from typing import Any

from rookery.client.consume.records import ConsumerRecord
from rookery.dead_letters.letters import DeadLetter, read_letter
from rookery.dead_letters.standard import Failure, Origin, headers_of
from rookery.records.record import Headers

ORIGIN = Origin("orders", 1, 7, 500)


def failure(origin: Origin | None = ORIGIN, **changes: Any) -> Failure:
    return Failure(origin, "builtins.ValueError", "bad", "VALUE_CONVERTER", "billing")._replace(**changes)


def letter(
    why: Failure | None = None,
    *,
    partition: int = 0,
    offset: int = 0,
    timestamp_ms: int = 1000,
    own: Headers = (),
    value: bytes = b"v",
) -> DeadLetter:
    headers = (*own, *(headers_of(why) if why else ()))
    return read_letter(ConsumerRecord("orders.dlq", partition, offset, timestamp_ms, 0, b"k", value, headers, -1))
