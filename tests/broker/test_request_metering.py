"""Requests are measured by API and version, whether they wait or not."""

import asyncio
from collections.abc import Callable

import pytest

from rookery.base.errors import ProtocolError
from rookery.broker.request_metering import RequestMetering, metric_name
from rookery.net.connection import ConnectionInfo, HandlerResult
from rookery.protocol.api import ApiKey
from rookery.telemetry.requests import RequestStats, queue_times, remote_times, sizes, throttle_times, total_times

INFO = ("127.0.0.1", 1, "PLAINTEXT")


class Time:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def frame(key: int, version: int) -> memoryview:
    return memoryview(key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + bytes(6))


def metering(
    handle: Callable[[memoryview, ConnectionInfo], HandlerResult],
) -> tuple[RequestMetering, RequestStats, Time]:
    stats, time = RequestStats(), Time()
    return RequestMetering(handle, stats, time), stats, time


def test_an_immediate_answer() -> None:
    def handle(_: memoryview, connection: ConnectionInfo) -> HandlerResult:
        time.now_s += 0.5
        connection.throttled_s = 2.0
        return [b"reply"]

    measure, stats, time = metering(handle)
    connection = ConnectionInfo(*INFO, received_s=99.0)
    assert measure.handle(frame(ApiKey.HEARTBEAT, 4), connection) == [b"reply"]
    found = stats.get("Heartbeat", 4)
    assert found.count == 1
    assert total_times(found.api).sum == pytest.approx(500)
    assert queue_times(found.api).sum == pytest.approx(1000)
    assert throttle_times(found.api).sum == pytest.approx(2000)
    assert (found.api.bytes, sizes(found.api).percentiles[0]) == (10, 10)
    assert connection.throttled_s == 0


def test_an_answer_that_waits() -> None:
    async def main() -> None:
        pending = asyncio.get_running_loop().create_future()
        measure, stats, time = metering(lambda *_: pending)
        connection = ConnectionInfo(*INFO, received_s=100.0)
        assert measure.handle(frame(ApiKey.PRODUCE, 9), connection) is pending
        found = stats.get("Produce", 9).api
        assert found.count == 0, "it is not finished"
        time.now_s += 3
        assert connection.on_finished is not None
        connection.on_finished()
        assert found.count == 1
        assert remote_times(found).sum == pytest.approx(3000)

    asyncio.run(main())


def test_fetches_of_followers_count_apart() -> None:
    measure, stats, _ = metering(lambda *_: [])
    measure.handle(frame(ApiKey.FETCH, 17), ConnectionInfo(*INFO))
    measure.handle(frame(ApiKey.FETCH, 17), ConnectionInfo(*INFO, is_follower=True))
    measure.handle(frame(ApiKey.FETCH, 17), ConnectionInfo(*INFO, is_follower=True))
    assert (stats.get("FetchConsumer", 17).count, stats.get("FetchFollower", 17).count) == (1, 2)


def test_versions_that_do_not_exist_take_no_memory() -> None:
    measure, stats, _ = metering(lambda *_: [])
    for version in range(33, 1000):
        measure.handle(frame(ApiKey.API_VERSIONS, version), ConnectionInfo(*INFO))
    assert list(stats.versions) == [("ApiVersions", -1)]


def test_a_rejected_request_has_no_metrics() -> None:
    def reject(*_: object) -> HandlerResult:
        raise ProtocolError("no such API")

    measure, stats, _ = metering(reject)
    for each in (frame(999, 0), memoryview(b"\x00")):
        with pytest.raises(ProtocolError):
            measure.handle(each, ConnectionInfo(*INFO))
    assert not stats.versions


@pytest.mark.parametrize(
    ("key", "name"),
    [(ApiKey.OFFSET_COMMIT, "OffsetCommit"), (ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn")],
)
def test_names(key: ApiKey, name: str) -> None:
    assert metric_name(key) == name
