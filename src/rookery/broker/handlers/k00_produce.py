"""Produce (0): append one batch per partition to logs that this broker leads.

Stage 1 checks each batch (header and CRC only), stamps it and appends the same bytes, in the order of the connection's
requests. The answer follows at once unless it has to wait: `acks=all` for the in-sync replicas, and any `acks` but 0
for the fsync that `flush.messages` asks for; what does not get there in time is answered with REQUEST_TIMED_OUT.

- `acks=0` has no answer; an error closes the connection, which is how the client learns of it.
- A batch that the log has already (same producer, epoch and sequence) is answered with its old offset and no error. If
  the old batch belongs to a transaction that has ended, the new one is refused: TRANSACTION_ABORTABLE, up to v10
  UNKNOWN_PRODUCER_ID, the error after which clients of that age abort and ask for a new epoch.
- Partitions fail on their own: NOT_ENOUGH_REPLICAS, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD and
  INVALID_TIMESTAMP (with an error for each record at fault), OUT_OF_ORDER_SEQUENCE_NUMBER, KAFKA_STORAGE_ERROR and so
  on.
- A transactional batch that begins its producer's transaction on a partition needs the coordinator's consent, as
  `broker.verification` tells. Where that has to be waited for, the whole request is appended when it is there, and
  later requests with the same transactional id go behind it. A marker in between makes it INVALID_TXN_STATE.
- Where a topic's configuration asks for a look at the records, as `broker.inspections` tells, a batch may have to wait
  for it. It is appended afterwards, and the answer waits for it.

Versions: v0 to v2 carry old message formats; they are advertised, for the sake of old clients, and refused with
UNSUPPORTED_VERSION. v3 is the first with v2 batches. v5 log start offset. v7 may use zstd. v8 record errors and
messages. v9 flexible. v10 the current leader, where this broker is not it (KIP-951). v11 may answer
TRANSACTION_ABORTABLE. v12 adds partitions to their transaction (KIP-890). v13 names topics by id.
"""

import struct
from collections.abc import Awaitable
from typing import Final

from rookery.base.errors import ErrorCode, ProtocolError
from rookery.broker.context import RequestContext
from rookery.broker.produce.append import Appends
from rookery.broker.produce.transactional import append_transactional
from rookery.net.connection import HandlerResult
from rookery.net.send import Reply
from rookery.protocol.produce import decode_produce
from rookery.replication.replica import ACKS_NONE

OLD_VERSIONS: Final = range(3)


def handle(context: RequestContext, frame: memoryview, position: int) -> HandlerResult:
    transactional_id, acks, timeout_ms, topics = decode_produce(context.api_version, frame, position)
    appends = Appends(context, acks)
    if transactional_id is None:
        appends.append_all(topics)
    else:
        task = append_transactional(appends, topics, transactional_id)
        if task is not None:
            return _reply_after(task, appends, timeout_ms)
    return _reply(appends, timeout_ms)


def _reply(appends: Appends, timeout_ms: int) -> HandlerResult:
    """Reply to a request whose batches are appended or being inspected, immediately if nothing has to be waited for."""
    inspected = appends.inspected
    if inspected is not None and inspected.must_wait:
        return _reply_after(inspected.wait(), appends, timeout_ms)
    if appends.acks == ACKS_NONE:
        _close_on_error(appends)
        return None
    acknowledgements = appends.acknowledgements
    # An append may have been acknowledged while another batch was inspected. No later change wakes a response that is
    # delayed for it: the response would be sent at its deadline.
    if acknowledgements is None or acknowledgements.are_settled():
        return appends.reply()
    return acknowledgements.wait(appends.context.services.pending, timeout_ms, appends.reply)


async def _reply_after(appended: Awaitable[None], appends: Appends, timeout_ms: int) -> Reply | None:
    await appended
    answer = _reply(appends, timeout_ms)
    return await answer if isinstance(answer, Awaitable) else answer


def _close_on_error(appends: Appends) -> None:
    for name, topic_id, results in appends.topics:
        for result in results:
            if result.error_code != ErrorCode.NONE:
                code = ErrorCode(result.error_code).name
                raise ProtocolError(f"produce with acks=0 to {name or topic_id}-{result.index} failed: {code}")


def refuse_old_version(version: int, frame: memoryview, position: int) -> list[bytes]:
    """The answer to v0 to v2: every partition UNSUPPORTED_VERSION."""
    try:
        return [_encode_refusal(version, frame, position)]
    except struct.error as error:
        raise ProtocolError(f"malformed Produce v{version}") from error


def _encode_refusal(version: int, frame: memoryview, position: int) -> bytes:
    """Copies the request's structure: acks, timeout, then arrays of topics and their partitions with records."""
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
