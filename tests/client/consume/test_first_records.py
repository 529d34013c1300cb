"""The search for first records, by what leaders return: errors, damage, skipped batches, leaders that stall."""

import asyncio

import pytest

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.client.admin.base import is_transient
from rookery.client.cluster import Cluster
from rookery.client.consume.first_records import FirstRecordSearch, Search
from rookery.client.first_record import SEARCHED_BYTES_MAX, FirstRecord
from rookery.protocol.fetch import FetchedPartition
from rookery.records.record import Record, build_batch
from tests.client.consume.test_decoder import marker as transaction_marker

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def answer(data: bytes = b"", *, end: int = 10, code: int = 0) -> FetchedPartition:
    return FetchedPartition(0, code, end, end, 0, None, -1, memoryview(data) if data else None)


def records(first: int, *timestamps_ms: int) -> bytes:
    made = [Record(first + index, timestamp_ms, None, b"v") for index, timestamp_ms in enumerate(timestamps_ms)]
    return bytes(build_batch(made, base_offset=first))


def marker(offset: int) -> bytes:
    return transaction_marker(offset, 7, committed=True)


def search(**positions: int) -> Search:
    return Search({TopicPartition("t", int(name[1:])): at for name, at in positions.items()}, False, is_transient)


def test_the_position_may_be_within_a_batch() -> None:
    wanted = search(p0=4)
    assert list(wanted.take(TP, answer(records(3, 100, 200, 300)))) == []
    assert wanted.found == {TP: FirstRecord(offset=4, timestamp_ms=200)}


def test_a_marker_is_skipped_and_the_search_continues_after_it() -> None:
    wanted = search(p0=0)
    assert list(wanted.take(TP, answer(marker(0)))) == []
    assert wanted.pending[TP].position == 1
    list(wanted.take(TP, answer(records(1, 500))))
    assert wanted.found[TP] == FirstRecord(offset=1, timestamp_ms=500)


def test_nothing_up_to_the_end() -> None:
    wanted = search(p0=10)
    list(wanted.take(TP, answer(end=10)))
    assert wanted.found == {TP: FirstRecord()}


def test_a_damaged_batch_is_an_error_of_its_partition() -> None:
    damaged = bytearray(records(0, 100))
    damaged[-1] ^= 1
    wanted = search(p0=0, p1=0)
    list(wanted.take(TP, answer(bytes(damaged))))
    assert wanted.found == {TP: FirstRecord(error=ErrorCode.CORRUPT_MESSAGE)}
    assert list(wanted.pending) == [OTHER]


@pytest.mark.parametrize(
    ("code", "is_final"), [(ErrorCode.OFFSET_OUT_OF_RANGE, True), (ErrorCode.NOT_LEADER_OR_FOLLOWER, False)]
)
def test_errors_of_leaders(code: ErrorCode, is_final: bool) -> None:
    wanted = search(p0=0)
    transient = [error.code for error in wanted.take(TP, answer(code=code))]
    assert (transient, wanted.found) == (([], {TP: FirstRecord(error=code)}) if is_final else ([code], {}))


def test_a_partition_without_data_comes_first_next_time_and_asks_for_more() -> None:
    """Brokers return a batch that is larger than the limit for the first partition of a request only."""
    wanted = search(p0=0, p1=0)
    before = wanted.pending[OTHER].size_max
    list(wanted.take(OTHER, answer()))
    assert list(wanted.pending) == [OTHER, TP]
    assert wanted.pending[OTHER].size_max > before


def test_a_search_ends_after_many_bytes() -> None:
    wanted = search(p0=0)
    wanted.pending[TP] = type(wanted.pending[TP])(0, 1, SEARCHED_BYTES_MAX)
    list(wanted.take(TP, answer(marker(0))))
    assert wanted.found == {TP: FirstRecord(error=ErrorCode.REQUEST_TIMED_OUT)}


class StalledSearch(FirstRecordSearch):
    """Leaders that always answer, and never with data."""

    rounds = 0

    async def _search_once(self, search: Search) -> None:
        self.rounds += 1
        for tp in list(search.pending):
            list(search.take(tp, answer()))


def test_leaders_that_return_nothing_are_not_asked_for_ever() -> None:
    async def work() -> None:
        cluster = Cluster.at("127.0.0.1:1", timeout_s=0.05)
        stalled = StalledSearch(cluster, read_committed=False, retriable=is_transient)
        assert await stalled.run({TP: 0}) == {TP: FirstRecord(error=ErrorCode.REQUEST_TIMED_OUT)}
        assert stalled.rounds > 1
        await cluster.close()

    asyncio.run(work())
