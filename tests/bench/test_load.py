"""The loads of the benchmark: their work matches their counts, and a failure of the broker fails the load."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import paced, wire
from bench.load import Load, LoadError, Measurements, run_loads
from bench.model import Broker, Row
from bench.payload import event_text
from bench.rows import floor, latency, requests, throughput, transactions
from bench.systems import Rookery
from bench.topics import await_count, count_records, topic, topics
from rookery.records.batch import Codec, check_batch
from rookery.records.compression import compress

RECORDS = 1200
RECORD_BYTES = 100
CONNECTIONS = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Rookery().start(tmp_path_factory.mktemp("load"))
    yield broker
    broker.stop()


def _librdkafka(broker: Broker, action: str, name: str, partitions: int, **settings: str) -> Measurements:
    options = {
        "bootstrap": broker.bootstrap,
        "topic": name,
        "partitions": partitions,
        "record_bytes": RECORD_BYTES,
        "records": RECORDS,
        "settings": settings,
    }
    outcome = run_loads([Load("bench.librdkafka", action, options)], broker)
    assert outcome.cpu_s >= 0
    return outcome.result


def _requests(broker: Broker, kind: str, **options: object) -> Measurements:
    settings = {"port": broker.port, "kind": kind, "connections": CONNECTIONS, "duration_s": 0.1, **options}
    return run_loads([Load("bench.wire", "requests", settings)], broker).result


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_librdkafka_produces_and_consumes_every_record(broker: Broker, compression: str) -> None:
    with topic(broker, 3) as name:
        produced = _librdkafka(broker, "produce", name, 3, **{"compression.type": compression, "acks": "all"})
        assert count_records(broker, name, 3) == RECORDS
        consumed = _librdkafka(broker, "consume", name, 3)
    for result in (produced, consumed):
        assert (result["records"], result["bytes"]) == (RECORDS, RECORDS * RECORD_BYTES)
        assert result["elapsed_s"] > 0


def test_a_failed_delivery_fails_the_load(broker: Broker) -> None:
    with topic(broker, 1) as name, pytest.raises(LoadError, match="were not delivered"):
        _librdkafka(broker, "produce", name, 1, acks="7")


def test_an_unknown_setting_fails_the_load(broker: Broker) -> None:
    with pytest.raises(LoadError, match=r"no\.such\.setting"):
        _librdkafka(broker, "produce", "topic", 1, **{"no.such.setting": "1"})


def _transactional(broker: Broker, action: str, name: str, **options: object) -> Measurements:
    common = {"bootstrap": broker.bootstrap, "topic": name, "partitions": 3, "record_bytes": RECORD_BYTES}
    settings = {"settings": {"transactional.id": name}}
    return run_loads([Load("bench.transactional", action, {**common, **settings, **options})], broker).result


@pytest.mark.parametrize("commit", [True, False])
def test_transactions_leave_their_records_and_a_marker_in_each_partition(broker: Broker, commit: bool) -> None:
    with topic(broker, 3) as name:
        result = _transactional(broker, "produce", name, records=10, transactions=5, commit=commit)
        # One more transaction precedes the measurement; its number of records is a multiple of the partitions.
        await_count(broker, name, 3, (5 * 10 + 5 * 3) + (9 + 3))
    assert result["offsets"] == 77
    assert (result["transactions"], result["bytes"]) == (5, 50 * RECORD_BYTES)


def test_commits_at_intervals(broker: Broker) -> None:
    with topic(broker, 3) as name:
        result = _transactional(broker, "commit_every", name, interval_s=0.05, duration_s=0.2)
        await_count(broker, name, 3, int(result["offsets"]))
    assert result["elapsed_s"] >= 0.2
    assert result["bytes"] > 0


def test_transactions_at_scheduled_times(broker: Broker) -> None:
    with topic(broker, 3) as name:
        result = _transactional(broker, "commit_paced", name, records=10, transactions=20, rate=50, skipped=5)
        await_count(broker, name, 3, (20 * 10 + 20 * 3) + (9 + 3))
    assert result["offsets"] == 272
    assert 0 < result["p50_ms"] <= result["p99_ms"] <= result["max_ms"]


def test_a_rejected_transaction_fails_the_load(broker: Broker) -> None:
    options = {"records": 10, "transactions": 1, "commit": True}
    refused = {"transactional.id": "refused", "transaction.timeout.ms": "2000000000"}
    with topic(broker, 3) as name, pytest.raises(LoadError, match="timeout"):
        _transactional(broker, "produce", name, **options, settings=refused)


def test_tiny_produces_are_all_in_the_log(broker: Broker) -> None:
    with topic(broker, 2) as name:
        result = _requests(broker, "produce", topics=[name], partitions=2)
        # The first request of each connection is not measured.
        assert count_records(broker, name, 2) == result["requests"] + CONNECTIONS


def test_metadata_and_api_versions(broker: Broker) -> None:
    with topics(broker, 5, partitions=1) as names:
        assert _requests(broker, "metadata")["requests"] >= CONNECTIONS
        assert _requests(broker, "metadata", topics=names[:1])["requests"] >= CONNECTIONS
    assert _requests(broker, "api_versions")["requests"] >= CONNECTIONS


def test_an_error_in_a_reply_fails_the_load(broker: Broker) -> None:
    with pytest.raises(LoadError, match="the first reply has an error"):
        _requests(broker, "produce", topics=["no-such-topic"])


def test_error_codes_are_at_the_positions_of_the_wire_load(broker: Broker) -> None:
    with topic(broker, 1) as name:
        frame = wire.produce_frame(name, 5, wire.make_batch(1, 10))
        with wire.connect(broker.port) as connection:
            connection.sendall(frame)
            reply = wire.read_reply(connection)
        position = wire.produce_error_position(name)
        assert reply[position : position + 2] == (3).to_bytes(2, "big"), "UNKNOWN_TOPIC_OR_PARTITION"


def test_raw_batches_are_produced_and_fetched(broker: Broker) -> None:
    shape = {"port": broker.port, "partitions": 2, "record_bytes": 100, "records_per_batch": 50}
    with topic(broker, 2) as name:
        produce = Load("bench.wire", "produce", {**shape, "topic": name, "batches": 6, "in_flight": 2})
        produced = run_loads([produce], broker).result
        assert count_records(broker, name, 2) == produced["records"] == 300
        options = {**shape, "topic": name, "batches_per_partition": 3, "duration_s": 0.1, "in_flight": 2}
        fetched = run_loads([Load("bench.wire", "fetch", options)], broker).result
    assert fetched["records"] == fetched["requests"] * 100 > 0


def test_latency_is_measured_from_when_records_are_due(broker: Broker) -> None:
    with topic(broker, 1) as name:
        common = {"bootstrap": broker.bootstrap, "topic": name, "records": 200}
        consumer = Load("bench.paced", "consume", {**common, "skipped": 50})
        producer = Load("bench.paced", "produce", {**common, "record_bytes": 100, "rate": 1000})
        late, sent = run_loads([consumer, producer], broker).results
    assert 0 < late["p50_ms"] <= late["p99_ms"] <= late["p99.9_ms"] <= late["max_ms"]
    assert sent["elapsed_s"] >= 0.199


def test_percentiles() -> None:
    late = paced.percentiles([number * 1_000_000 for number in range(1001)])
    assert late == {"p50_ms": 500, "p99_ms": 990, "p99.9_ms": 999, "max_ms": 1000}


def test_raw_sockets_and_files(tmp_path: Path) -> None:
    options = {"directory": str(tmp_path), "total_bytes": 4 << 20}
    written = run_loads([Load("bench.raw", "append", options)]).result
    assert 0 < written["written_s"] <= written["synced_s"]


def test_a_load_that_hangs_is_ended(tmp_path: Path) -> None:
    # No client ever connects to it.
    load = Load("bench.raw", "receive", {"port": 0, "total_bytes": 1})
    with pytest.raises(LoadError, match="receive failed"):
        run_loads([load], timeout_s=1.5)


def test_text_is_the_same_every_time_and_compresses_like_events() -> None:
    text = event_text(1_000_000)
    assert text == event_text(1_000_000)
    assert len(text) == 1_000_000
    assert 3 < len(text) / len(compress(Codec.ZSTD, text)) < 4.5
    assert 2 < len(text) / len(compress(Codec.LZ4, text)) < 4


def test_raw_batches_are_what_a_producer_sends() -> None:
    batch = wire.make_batch(1000, 1000)
    header = check_batch(batch)
    assert (header.record_count, header.producer_id) == (1000, -1)
    assert len(batch) < 1_048_588, "the default max.message.bytes"


@pytest.mark.parametrize("rows", [floor.ROWS, throughput.ROWS, latency.ROWS, requests.ROWS, transactions.ROWS])
def test_names_are_unique(rows: tuple[Row, ...]) -> None:
    names = [row.name for row in rows]
    metrics = [metric.name for row in rows for metric in row.metrics]
    assert len(set(names)) == len(names)
    assert len(set(metrics)) == len(metrics)
