"""Fetch and ListOffsets with read_committed: last stable offset, aborted transactions, wakes by markers."""

import asyncio
from pathlib import Path
from typing import Any

from rookery.base.errors import ErrorCode
from rookery.net.send import Reply
from rookery.protocol.api import ApiKey
from rookery.protocol.message import Message
from rookery.records.control import Marker
from rookery.replication.offset_search import LATEST
from rookery.replication.replica import ACKS_ALL
from rookery.storage.producers import Verification
from tests.broker.harness import Broker, decode, running, settle
from tests.broker.test_fetch import bases, fetch, fields, only, partition
from tests.storage.samples import START_MS, batch

READ_COMMITTED = 1


def write(broker: Broker, producer_id: int, sequence: int = 0) -> None:
    data = batch(START_MS, producer_id=producer_id, epoch=0, sequence=sequence, transactional=True)
    appended = broker.replica("orders").append(
        data, acks=ACKS_ALL, now_ms=START_MS, verification=Verification(producer_id, 0, None)
    )
    assert appended.error_code is ErrorCode.NONE


def end(broker: Broker, producer_id: int, *, committed: bool) -> None:
    appended = broker.replica("orders").append_marker(Marker(producer_id, 0, committed, 0), now_ms=START_MS)
    assert appended.error_code is ErrorCode.NONE


def fetch_committed(broker: Broker, offset: int = 0, **more: Any) -> Message:
    return only(fetch(broker, ("orders", [partition(offset=offset)]), isolation_level=READ_COMMITTED, **more))


def aborted(result: Message) -> list[tuple[int, int]]:
    return [(item.producer_id, item.first_offset) for item in result.aborted_transactions]


def test_readers_stop_at_the_last_stable_offset_and_get_the_aborted_transactions(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            write(broker, 1)
            write(broker, 2)
            end(broker, 2, committed=False)
            result = fetch_committed(broker)
            assert (result.high_watermark, result.last_stable_offset, bases(result.records)) == (3, 0, [])
            end(broker, 1, committed=False)
            write(broker, 1, sequence=1)
            for version in (4, 11, 12):
                result = fetch_committed(broker, version=version)
                assert (result.last_stable_offset, bases(result.records)) == (4, [0, 1, 2, 3])
                assert aborted(result) == [(1, 0), (2, 1)]
            assert aborted(fetch_committed(broker, offset=3)) == [(1, 0)]
            everything = only(fetch(broker, ("orders", [partition()])))
            assert (everything.aborted_transactions, bases(everything.records)) == (None, [0, 1, 2, 3, 4])
            assert everything.last_stable_offset == 4

    asyncio.run(main())


def test_the_aborted_list_covers_only_the_records_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", index_interval_bytes="100")
            for number in range(20):
                write(broker, 1, sequence=number)
                end(broker, 1, committed=False)
            result = only(fetch(broker, ("orders", [partition(max_bytes=100)]), isolation_level=READ_COMMITTED))
            assert 1 <= len(aborted(result)) <= 3
            assert len(aborted(fetch_committed(broker))) == 20

    asyncio.run(main())


def test_a_marker_wakes_a_reader(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            write(broker, 1)
            answer = broker.send(
                ApiKey.FETCH,
                12,
                **fields(("orders", [partition()]), isolation_level=READ_COMMITTED, max_wait_ms=60_000),
            )
            assert not isinstance(answer, list)
            assert answer is not None
            waiting = asyncio.ensure_future(answer)
            write(broker, 1, sequence=1)
            await settle()
            assert not waiting.done()
            end(broker, 1, committed=True)
            reply: Reply | None = await asyncio.wait_for(waiting, 60)
            assert reply is not None
            result = only(decode(ApiKey.FETCH, 12, reply))
            assert bases(result.records) == [0, 1, 2]
            assert aborted(result) == []

    asyncio.run(main())


def test_list_offsets_and_describe_producers(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders")
            end(broker, 1, committed=True)
            write(broker, 1)
            for isolation_level, offset in ((0, 2), (READ_COMMITTED, 1)):
                response = await broker.call(
                    ApiKey.LIST_OFFSETS,
                    7,
                    replica_id=-1,
                    isolation_level=isolation_level,
                    topics=[Message(name="orders", partitions=[Message(partition_index=0, timestamp=LATEST)])],
                )
                assert response.topics[0].partitions[0].offset == offset
            described = await broker.call(
                ApiKey.DESCRIBE_PRODUCERS, 0, topics=[Message(name="orders", partition_indexes=[0])]
            )
            (producer,) = described.topics[0].partitions[0].active_producers
            assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (1, 0)

    asyncio.run(main())
