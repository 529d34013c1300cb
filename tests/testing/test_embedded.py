"""The embedded broker: start, stop, restart, and the release of all resources."""

import asyncio
import gc
import logging
import os
import socket
import tempfile
import threading
from pathlib import Path

import pytest
import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from rookery.base.errors import ApiError, ConfigError, ErrorCode, StartupError
from rookery.testing import EmbeddedBroker
from rookery.testing.embedded import Mode

DAY_S = 86_400.0


def produce(broker: EmbeddedBroker, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(broker: EmbeddedBroker, topic: str) -> list[str]:
    """Return all values of partition 0."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "enable.auto.commit": False}
    )
    start, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[str] = []
    while len(values) < end - start:
        message = consumer.poll(30)
        assert message is not None
        values.append((message.value() or b"").decode())
    consumer.close()
    return values


def open_files() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return found


@pytest.fixture
def temporary_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for the temporary directories of this test's brokers, to check that they are deleted."""
    root = tmp_path / "temporary"
    root.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(root))
    return root


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_records_are_produced_and_consumed(mode: Mode) -> None:
    with EmbeddedBroker(settings={"num.partitions": "3"}, mode=mode) as broker:
        broker.create_topic("one", partitions=1, config={"retention.ms": "60000"})
        produce(broker, "one", "a", "b")
        assert consume(broker, "one") == ["a", "b"]
        broker.create_topic("default")
        topics = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30).topics
        assert len(topics["default"].partitions) == 3


def test_nothing_is_left_behind(temporary_root: Path) -> None:
    # Modules that the first broker of a process loads stay: measure from the second one on.
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
    threads, files = set(threading.enumerate()), open_files()
    # Files must be closed by `stop`, not by the garbage collector.
    gc.disable()
    try:
        with EmbeddedBroker() as broker:
            broker.create_topic("t", partitions=5)
            produce(broker, "t", "a")
            idle = socket.create_connection(("127.0.0.1", broker.port))
            assert set(threading.enumerate()) - threads
        idle.close()
        assert not set(threading.enumerate()) - threads
        assert {name for name in open_files() - files if "rookery" in name} == set()
    finally:
        gc.enable()
    assert list(temporary_root.iterdir()) == []
    assert not structlog.is_configured()


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_nothing_is_left_behind_when_the_test_fails(mode: Mode, temporary_root: Path) -> None:
    def failing_test() -> None:
        with EmbeddedBroker(mode=mode) as broker:
            ports.append(broker.port)
            broker.pause()
            raise ZeroDivisionError

    ports: list[int] = []
    with pytest.raises(ZeroDivisionError):
        failing_test()
    assert list(temporary_root.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]))


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_broker_that_cannot_start_reports_the_reason_and_leaves_nothing(
    mode: Mode, temporary_root: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    broker = EmbeddedBroker(mode=mode, data_dir=tmp_path / "file")
    threads = set(threading.enumerate())
    with pytest.raises(StartupError, match="cannot write to the log directory"):
        broker.start()
    assert list(temporary_root.iterdir()) == []
    assert not set(threading.enumerate()) - threads
    broker.stop()


def test_several_brokers_run_concurrently() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        produce(one, "t", "in one")
        produce(other, "t", "in the other")
        assert (consume(one, "t"), consume(other, "t")) == (["in one"], ["in the other"])
        one.stop()
        assert consume(other, "t") == ["in the other"]


def test_data_in_a_given_directory_is_kept(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path / "data") as broker:
        assert broker.data_dir == tmp_path / "data"
        produce(broker, "t", "kept")
    with EmbeddedBroker(data_dir=tmp_path / "data") as broker:
        assert consume(broker, "t") == ["kept"]


@pytest.mark.parametrize("mode", ["thread", "process"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_keeps_port_and_data(mode: Mode, clean: bool) -> None:
    with EmbeddedBroker(mode=mode) as broker:
        address = broker.bootstrap_servers
        producer = Producer({"bootstrap.servers": address})
        for value in ("before", "after"):
            producer.produce("t", value)
            assert producer.flush(30) == 0
            broker.restart(clean=clean)
        assert broker.bootstrap_servers == address
        assert consume(broker, "t") == ["before", "after"]


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_paused_broker_accepts_connections_and_does_not_respond(mode: Mode) -> None:
    with EmbeddedBroker(mode=mode) as broker:
        delivered = threading.Event()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        produce(broker, "t", "first")
        broker.pause()
        broker.pause()
        producer.produce("t", "second", callback=lambda error, message: delivered.set())
        assert producer.flush(0.5) == 1
        socket.create_connection(("127.0.0.1", broker.port), timeout=30).close()
        broker.resume()
        assert producer.flush(30) == 0
        assert delivered.is_set()
        assert consume(broker, "t") == ["first", "second"]


def test_advancing_time_expires_records() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t", config={"retention.ms": "60000"})
        produce(broker, "t", "old")
        broker.advance_time(30)
        assert consume(broker, "t") == ["old"]
        broker.advance_time(31)
        assert consume(broker, "t") == []
        broker.restart()
        broker.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
        produce(broker, "stamped", "new")
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition("stamped", 0, OFFSET_BEGINNING)])
        message = consumer.poll(30)
        assert message is not None
        before = broker.data_dir.stat().st_mtime
        assert message.timestamp()[1] / 1000 > before + 55, "time stays advanced after a restart"
        consumer.close()


def test_time_is_advanced_while_paused() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t", config={"retention.ms": "60000"})
        produce(broker, "t", "old")
        broker.pause()
        broker.advance_time(DAY_S)
        broker.resume()
        broker.advance_time(0)
        assert consume(broker, "t") == []


def test_time_can_only_be_moved_forward() -> None:
    with EmbeddedBroker() as broker, pytest.raises(ValueError, match="forward"):
        broker.advance_time(-1)


def test_a_broker_in_another_process_has_no_faults() -> None:
    with EmbeddedBroker(mode="process") as broker:
        with pytest.raises(RuntimeError, match="mode="):
            broker.advance_time(1)
        with pytest.raises(RuntimeError, match="mode="):
            broker.faults.clear()


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="use data_dir"):
        EmbeddedBroker(settings={"log.dirs": "x"})
    with pytest.raises(ValueError, match="mode must be"):
        EmbeddedBroker(mode="nowhere")  # type: ignore[arg-type]  # the invalid value is the test
    with pytest.raises(ConfigError, match=r"^settings: unknown key 'num.partition'; did you mean num\.partitions"):
        EmbeddedBroker(settings={"num.partition": "3"}).start()


def test_calls_in_a_wrong_state_are_rejected() -> None:
    broker = EmbeddedBroker()
    with pytest.raises(RuntimeError, match="not started"):
        _ = broker.bootstrap_servers
    with pytest.raises(RuntimeError, match="not running"):
        broker.restart()
    with broker, pytest.raises(RuntimeError, match="already started"):
        broker.start()
    broker.stop()


def test_a_stopped_broker_can_start_again() -> None:
    broker = EmbeddedBroker()
    for _ in range(2):
        with broker:
            produce(broker, "t", "fresh")
            assert consume(broker, "t") == ["fresh"]


def test_a_topic_that_cannot_be_created_is_an_error() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        with pytest.raises(ApiError) as raised:
            broker.create_topic("t")
        assert raised.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_it_works_on_an_event_loop() -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as broker:
            broker.create_topic("t")
            _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            broker.restart()
            writer.close()

    asyncio.run(scenario())


def test_it_works_in_another_thread() -> None:
    seen: list[list[str]] = []

    def scenario() -> None:
        with EmbeddedBroker() as broker:
            produce(broker, "t", "a")
            seen.append(consume(broker, "t"))

    thread = threading.Thread(target=scenario)
    thread.start()
    thread.join()
    assert seen == [["a"]]


def test_log_lines_are_routed_to_logging(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.INFO, "rookery"), EmbeddedBroker() as broker:
        address = broker.bootstrap_servers
    assert any(f"event=serving address={address}" in line for line in caplog.messages)
    assert capfd.readouterr().out == ""
