"""Produce (0): append one batch per partition to logs that this broker leads.

Stage 1 checks each batch (header and CRC only), stamps it and appends the same bytes, in the order of the connection's
requests. The response is sent immediately unless it has to wait: with `acks=all` for the in-sync replicas, and with any
`acks` but 0 for the fsync that `flush.messages` requires. Batches that are not acknowledged within the request's
time-out get REQUEST_TIMED_OUT.

- `acks=0` has no response. After an error the connection is closed, which tells the client that records were lost.
- A batch that is already in the log (same producer, epoch and sequence) gets its old offset and no error. If the old
  batch belongs to a transaction that has ended, the new one is rejected: TRANSACTION_ABORTABLE, up to v10
  UNKNOWN_PRODUCER_ID, the error after which clients of that age abort and request a new epoch.
- Each partition has its own error: NOT_ENOUGH_REPLICAS, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD and
  INVALID_TIMESTAMP (with an error for each invalid record), OUT_OF_ORDER_SEQUENCE_NUMBER, KAFKA_STORAGE_ERROR and
  others.
- A transactional batch that begins its producer's transaction on a partition is verified first (`broker.verification`).
  If the result is not available immediately, the whole request is appended later, and later requests with the same
  transactional id after it. If a marker ends the producer's transaction meanwhile, the batch gets INVALID_TXN_STATE.
- A request without a transactional id that has a transactional batch is refused as a whole:
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED, with and without an authorizer.
- If a topic's configuration requires an inspection of the records (`broker.inspections`), a batch may be appended
  later, and the response waits for it.

The bytes of the request count in the client's quota, also with `acks=0` (`broker.throttling`).

Versions: v0 to v2 carry old message formats; they are advertised for old clients, which need them in ApiVersions, and
rejected with UNSUPPORTED_VERSION. v3 is the first with v2 batches. v5 log start offset. v7 may use zstd. v8 record
errors and messages. v9 flexible. v10 the current leader, if this broker is not the leader (KIP-951). v11 may return
TRANSACTION_ABORTABLE. v12 adds partitions to their transaction (KIP-890). v13 names topics by id.
"""

import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from rookery.base.errors import ErrorCode, ProtocolError
from rookery.broker.context import RequestContext
from rookery.broker.produce.append import Appends
from rookery.broker.produce.transactional import append_transactional, has_transactional
from rookery.net.connection import HandlerResult
from rookery.net.send import Reply
from rookery.protocol.produce import ProduceTopic, decode_produce
from rookery.replication.replica import ACKS_NONE

OLD_VERSIONS: Final = range(3)


def handle(context: RequestContext, frame: memoryview, position: int) -> HandlerResult:
    transactional_id, acks, timeout_ms, topics = decode_produce(context.api_version, frame, position)
    appends = Appends(context, acks)
    if transactional_id is not None:
        return append_in_transaction(appends, topics, transactional_id, timeout_ms)
    if has_transactional(topics):
        # Without the id, nothing could verify that the transaction exists, and no marker would end it.
        appends.refuse_all(topics, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    else:
        appends.append_all(topics)
    return reply(appends, timeout_ms)


def append_in_transaction(
    appends: Appends, topics: Sequence[ProduceTopic], transactional_id: str, timeout_ms: int
) -> HandlerResult:
    """Append all batches of a request with a transactional id, and return the reply or an awaitable of it."""
    task = append_transactional(appends, topics, transactional_id)
    if task is not None:
        return _reply_after(lambda: task, appends, timeout_ms)
    return reply(appends, timeout_ms)


def reply(appends: Appends, timeout_ms: int) -> HandlerResult:
    """Return the reply to a request whose batches are appended or being inspected, or an awaitable of it."""
    inspected = appends.inspected
    if inspected is not None and inspected.must_wait:
        return _reply_after(inspected.wait, appends, timeout_ms)
    if appends.acks == ACKS_NONE:
        _close_on_error(appends)
        if (usage := appends.context.usage) is not None:
            usage.charge_produce(has_response=False)
        return None
    acknowledgements = appends.acknowledgements
    # All appends may have been acknowledged while another batch was inspected. Then no later change of their partitions
    # would wake the response, and it would be sent at its deadline.
    if acknowledgements is None or acknowledgements.are_settled():
        return appends.reply()
    return acknowledgements.wait(appends.context.services.pending, timeout_ms, appends.reply)


async def _reply_after(appended: Callable[[], Awaitable[None]], appends: Appends, timeout_ms: int) -> Reply | None:
    await appended()
    answer = reply(appends, timeout_ms)
    return await answer if isinstance(answer, Awaitable) else answer


def _close_on_error(appends: Appends) -> None:
    """Raise ProtocolError, which closes the connection, if an append has failed."""
    for name, topic_id, results in appends.topics:
        for result in results:
            if result.error_code != ErrorCode.NONE:
                code = ErrorCode(result.error_code).name
                raise ProtocolError(f"produce with acks=0 to {name or topic_id}-{result.index} failed: {code}")


def refuse_old_version(version: int, frame: memoryview, position: int) -> list[bytes]:
    """Return the response to v0 to v2: every partition has UNSUPPORTED_VERSION."""
    try:
        return [_encode_refusal(version, frame, position)]
    except struct.error as error:
        raise ProtocolError(f"malformed Produce v{version}") from error


def _encode_refusal(version: int, frame: memoryview, position: int) -> bytes:
    """Encode a response with the topics and partitions of the request.

    The request is acks, time-out, then arrays of topics and their partitions with records, which are skipped.
    """
    out = bytearray()
    acks, _, topic_count = struct.unpack_from(">hii", frame, position)
    if acks == ACKS_NONE:
        raise ProtocolError(f"Produce v{version} is not supported")
    position += 10
    out += struct.pack(">i", topic_count)
    for _ in range(topic_count):
        (name_size,) = struct.unpack_from(">h", frame, position)
        name, partition_count = struct.unpack_from(f">{max(name_size, 0)}si", frame, position + 2)
        position += 6 + len(name)
        out += struct.pack(">h", len(name)) + name + struct.pack(">i", partition_count)
        for _ in range(partition_count):
            index, size = struct.unpack_from(">ii", frame, position)
            position += 8 + max(size, 0)
            out += struct.pack(">ihq", index, ErrorCode.UNSUPPORTED_VERSION, -1)
            out += struct.pack(">q", -1) if version >= 2 else b""
    return bytes(out + (struct.pack(">i", 0) if version >= 1 else b""))
