"""Parsing of the options of source and sink, and the errors for invalid ones."""

from pathlib import Path

import pytest

from rookery.base.types import TopicPartition
from rookery.spark.offsets import (
    EARLIEST,
    LATEST,
    Edge,
    MatchingTopics,
    NamedPartitions,
    NamedTopics,
    PartitionOffsets,
    PartitionTimes,
    SameTime,
)
from rookery.spark.option_docs import render
from rookery.spark.option_table import OPTIONS, parse_duration_ms, parse_size_bytes
from rookery.spark.options import OptionError, ReadOptions, WriteOptions, parse_read_options, parse_write_options

AT = {"kafka.bootstrap.servers": "localhost:9092"}
CLICKS = {**AT, "subscribe": "clicks"}


def read(options: dict[str, str] | None = None, *, streaming: bool | None = False) -> ReadOptions:
    return parse_read_options({**CLICKS, **(options or {})}, streaming=streaming)


def write(options: dict[str, str] | None = None, *, streaming: bool = True) -> WriteOptions:
    return parse_write_options({**AT, **(options or {})}, streaming=streaming)


def error_of(options: dict[str, str], *, streaming: bool | None = False) -> str:
    with pytest.raises(OptionError) as raised:
        parse_read_options(options, streaming=streaming)
    return str(raised.value)


def test_defaults_are_those_of_sparks_connector() -> None:
    batch, stream = read(), read(streaming=True)
    assert (batch.starting, batch.ending) == (Edge(EARLIEST), Edge(LATEST))
    assert (stream.starting, stream.ending) == (Edge(LATEST), None)
    assert (batch.fail_on_data_loss, batch.include_headers, batch.late_start) == (True, False, None)
    assert stream.max_trigger_delay_ms == 15 * 60_000
    assert batch.client_config == {"bootstrap.servers": "localhost:9092"}
    assert (batch.on_error, batch.include_raw, batch.value_format) == ("fail", "never", None)


def test_names_are_matched_in_any_case() -> None:
    options = {"Kafka.Bootstrap.Servers": "a:1", "SUBSCRIBE": "Clicks", "failondataloss": "FALSE"}
    parsed = parse_read_options(options, streaming=True)
    assert parsed.selection == NamedTopics(("Clicks",))
    assert not parsed.fail_on_data_loss


def test_selections() -> None:
    assert read({"subscribe": " a, b,a,"}).selection == NamedTopics(("a", "b"))
    assert parse_read_options({**AT, "subscribePattern": "a.*"}, streaming=False).selection == MatchingTopics("a.*")
    odd = r"[.][^]\[x-]\[a[\]b]"
    assert parse_read_options({**AT, "subscribePattern": odd}, streaming=False).selection == MatchingTopics(odd)
    assigned = parse_read_options({**AT, "assign": '{"a": [1, 0]}'}, streaming=False).selection
    assert assigned == NamedPartitions((TopicPartition("a", 0), TopicPartition("a", 1)))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "none was given"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "not subscribe and assign"),
        ({"subscribe": ","}, "option subscribe names no topic"),
        ({"subscribe": " "}, "option subscribe is empty"),
        ({"subscribePattern": "("}, "option subscribePattern is not valid for Python's re"),
        ({"subscribePattern": r"\p{Lower}+"}, "for Python's re, which differs from Java's: bad escape"),
        (
            {"subscribePattern": "(?i)T[a-z&&[^b]]++"},
            "option subscribePattern: possible set intersection at position 9",
        ),
        ({"subscribePattern": "[a[b]]"}, "option subscribePattern: nested set in [a[b]]"),
        ({"assign": "a"}, "option assign must be JSON"),
        ({"assign": '{"a": 0}'}, "option assign must be JSON"),
        ({"assign": "{}"}, "option assign names no partition"),
    ],
)
def test_exactly_one_selection_is_required(options: dict[str, str], text: str) -> None:
    assert text in error_of({**AT, **options})


def test_bounds() -> None:
    zero, one = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
    text = '{"clicks": {"0": 23, "1": -2}}'
    assert read({"startingOffsets": text}).starting == PartitionOffsets("startingOffsets", {zero: 23, one: -2})
    assert read({"startingOffsets": " Earliest "}).starting == Edge(EARLIEST)
    times = {"startingOffsetsByTimestamp": '{"clicks": {"0": 5}}', "startingOffsets": "earliest"}
    assert read(times).starting == PartitionTimes("startingOffsetsByTimestamp", {zero: 5})
    assert read({**times, "startingTimestamp": "7"}).starting == SameTime("startingTimestamp", 7)
    assert read({"endingTimestamp": "7", "endingOffsets": "latest"}).ending == SameTime("endingTimestamp", 7)
    assert read({"startingOffsetsByTimestampStrategy": "LATEST"}).late_start == LATEST


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest"),
        ({"startingOffsets": '{"clicks": {"0": -1}}'}, "startingOffsets cannot be latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"clicks": {"0": -2}}'}, "endingOffsets cannot be earliest"),
        ({"startingOffsets": '{"clicks": {"0": -3}}'}, "startingOffsets: -3 of clicks-0 is not valid"),
        ({"startingOffsetsByTimestamp": '{"clicks": {"0": -1}}'}, "-1 of clicks-0 is not valid; times are"),
        ({"startingOffsets": '{"clicks": {"x": 1}}'}, "option startingOffsets must be JSON"),
        ({"startingOffsets": '{"clicks": {"0": true}}'}, "option startingOffsets must be JSON"),
        ({"startingOffsets": "soon"}, "option startingOffsets must be JSON"),
        ({"startingTimestamp": "-1"}, "option startingTimestamp: must be at least 0"),
    ],
)
def test_invalid_bounds_of_a_batch(options: dict[str, str], text: str) -> None:
    assert text in error_of({**CLICKS, **options})


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    assert f"option {name} cannot be used here" in error_of({**CLICKS, name: "1"}, streaming=True)
    assert parse_read_options({**CLICKS, "endingOffsets": "latest"}, streaming=None).ending == Edge(LATEST)


def test_one_error_lists_all_problems_with_the_nearest_names() -> None:
    text = error_of({**CLICKS, "startingOffset": "earliest", "minPartitions": "none", "zzzzzz": "1"})
    assert "unknown option startingoffset; did you mean startingOffsets?" in text
    assert "option minPartitions" in text
    assert "unknown option zzzzzz; docs/spark-options.md" in text


def test_limits() -> None:
    options = {"maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "90s"}
    parsed = read({**options, "maxBytesPerTrigger": "64m"}, streaming=True)
    assert (parsed.max_offsets_per_trigger, parsed.min_offsets_per_trigger) == (10, 5)
    assert (parsed.max_trigger_delay_ms, parsed.max_bytes_per_trigger) == (90_000, 64 * 1024 * 1024)
    assert "must not exceed" in error_of({**CLICKS, **options, "minOffsetsPerTrigger": "11"}, streaming=True)
    assert "option maxTriggerDelay" in error_of({**CLICKS, "maxTriggerDelay": "soon"}, streaming=True)
    assert "option maxBytesPerTrigger" in error_of({**CLICKS, "maxBytesPerTrigger": "0"}, streaming=True)
    assert "option maxOffsetsPerTrigger" in error_of({**CLICKS, "maxOffsetsPerTrigger": "0"}, streaming=True)


def test_times_and_sizes_as_spark_writes_them() -> None:
    durations = {"15m": 900_000, "2 h": 7_200_000, "100ms": 100, "7": 7, "1min": 60_000, "1d": 86_400_000}
    assert {text: parse_duration_ms(text) for text in durations} == durations
    sizes = {"64": 64, "64k": 65_536, "1KB": 1024, "2g": 2 << 30, "5b": 5}
    assert {text: parse_size_bytes(text) for text in sizes} == sizes
    assert [parse_duration_ms(text) for text in ("", "m", "1y", "1.5s")] == [None] * 4
    assert [parse_size_bytes(text) for text in ("", "k", "1x", "-1")] == [None] * 4


def test_keys_of_the_client_are_passed_on() -> None:
    config = {"kafka.isolation.level": "read_committed", "kafka.group.id": "g", "kafka.compression.type": "lz4"}
    assert read(config).client_config == {
        "bootstrap.servers": "localhost:9092",
        "isolation.level": "read_committed",
        "group.id": "g",
    }
    assert "fetch.max.byte" in error_of({**CLICKS, "kafka.fetch.max.byte": "1"})
    assert "fetch.max.bytes" in error_of({**CLICKS, "kafka.fetch.max.bytes": "many"})
    assert "option kafka.bootstrap.servers is required" in error_of({"subscribe": "a"})


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("auto.offset.reset", "startingOffsets"),
        ("key.deserializer", "keyFormat"),
        ("value.deserializer", "valueFormat"),
        ("enable.auto.commit", "groupId"),
        ("interceptor.classes", "interceptors"),
    ],
)
def test_unsupported_keys_of_the_client(key: str, instead: str) -> None:
    text = error_of({**CLICKS, f"kafka.{key}": "x"})
    assert f"option kafka.{key} is not supported" in text
    assert instead in text


def test_formats() -> None:
    options = {
        "valueFormat": "Avro",
        "valueSchemaVersion": "3",
        "valueDetails": "true",
        "onError": "dead-letter",
        "schema.registry.url": "http://localhost:8081",
        "schema.registry.basic.auth.user.info": "me:secret",
    }
    value = read(options).value_format
    assert value is not None
    assert (value.format, value.version, value.detailed, value.on_error) == ("avro", "3", True, "dead-letter")
    assert value.registry == {"schema.registry.url": "http://localhost:8081", "basic.auth.user.info": "me:secret"}
    assert "option keySubject cannot be used here: it needs keyFormat" in error_of({**CLICKS, "keySubject": "s"})
    for policy in ("null", "dead-letter"):
        message = error_of({**CLICKS, "onError": policy})
        assert "option onError cannot be used here" in message
        assert "needs keyFormat or valueFormat" in message
    assert "option valueFormat: must be one of" in error_of({**CLICKS, "valueFormat": "xml"})
    bad_version = {**CLICKS, "valueFormat": "avro", "valueSchemaVersion": "newest"}
    assert "option valueSchemaVersion must be latest or a number" in error_of(bad_version)


def test_options_of_the_sink() -> None:
    parsed = write()
    assert (parsed.topic, parsed.delivery, parsed.include_headers) == (None, "exactly-once", True)
    assert parsed.transaction_timeout_ms == 900_000
    parsed = write({"delivery": "At-Least-Once", "kafka.transaction.timeout.ms": "5000", "includeHeaders": "false"})
    assert (parsed.delivery, parsed.transaction_timeout_ms, parsed.include_headers) == ("at-least-once", 5000, False)
    named = write({"txnAppId": "nightly", "txnVersion": "4"}, streaming=False)
    assert (named.txn_app_id, named.txn_version) == ("nightly", 4)
    with pytest.raises(OptionError, match="txnAppId and txnVersion must be set together"):
        write({"txnAppId": "nightly"}, streaming=False)
    streamed = write({"streamId": "q", "streamBatch": "7"}, streaming=False)
    assert (streamed.stream_id, streamed.stream_batch) == ("q", 7)
    with pytest.raises(OptionError, match="cannot be set for a TopicSink"):
        write({"streamId": "q", "streamBatch": "7", "txnAppId": "nightly", "txnVersion": "4"}, streaming=False)
    with pytest.raises(OptionError, match=r"option kafka\.transactional\.id is not supported"):
        write({"kafka.transactional.id": "t"})
    # The same dictionary may be used for reading and writing.
    assert write({"subscribe": "a", "startingOffsets": "earliest", "topic": "b"}).topic == "b"


def test_the_page_of_options_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "spark-options.md"
    assert page.read_text() == render(), "run make docs"
    assert all(f"`{option.name}`" in page.read_text() for option in OPTIONS.values())


def test_dead_letters_are_written_with_the_keys_of_producers() -> None:
    keys = {"kafka.acks": "1", "kafka.fetch.min.bytes": "5", "kafka.transactional.id": "mine"}
    config = {"bootstrap.servers": "localhost:9092", "acks": "1"}
    assert read(keys).dead_letter_config == {**config, "max.request.size": "33554432"}
    assert read({**keys, "kafka.max.request.size": "7"}).dead_letter_config == {**config, "max.request.size": "7"}
    # Keys that are not used are not checked.
    assert read({"kafka.acks": "some"}).on_error == "fail"
    assert "acks" in error_of({**CLICKS, "kafka.acks": "some", "valueFormat": "string", "onError": "dead-letter"})
