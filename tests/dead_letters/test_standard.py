import pytest

from rookery.dead_letters.standard import (
    ATTEMPT,
    ERROR_CLASS,
    MESSAGE_LENGTH_MAX,
    OFFSET,
    PARTITION,
    PIPELINE,
    TIMESTAMP,
    TOPIC,
    VALUE_CONVERTER,
    Failure,
    Origin,
    attempt_of,
    dead_letter_topic,
    headers_of,
    original_headers,
    read_failure,
)

FAILURE = Failure(Origin("orders", 3, 42, 1_700_000_000_000), "ValueError", "no ✓", VALUE_CONVERTER, "billing", 2)


def test_topics_are_named_by_a_suffix() -> None:
    assert dead_letter_topic("orders") == "orders.dlq"


def test_headers_have_the_names_of_connect_and_text_values() -> None:
    assert headers_of(FAILURE) == [
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"42"),
        ("__connect.errors.timestamp", b"1700000000000"),
        ("__connect.errors.connector.name", b"billing"),
        ("__connect.errors.stage", b"VALUE_CONVERTER"),
        ("__connect.errors.exception.class.name", b"ValueError"),
        ("__connect.errors.exception.message", "no ✓".encode()),
        ("__connect.errors.attempt", b"2"),
    ]


def test_a_failure_survives_a_round_trip() -> None:
    assert read_failure(headers_of(FAILURE)) == FAILURE
    bare = Failure(Origin("t", 0, 0), "", "", "")
    assert read_failure(headers_of(bare)) == bare
    assert {name for name, _ in headers_of(bare)}.isdisjoint({TIMESTAMP, PIPELINE})


def test_a_failure_without_origin_survives_a_round_trip() -> None:
    sum_of_many = FAILURE._replace(origin=None)
    headers = headers_of(sum_of_many)
    assert {name for name, _ in headers}.isdisjoint({TOPIC, PARTITION, OFFSET, TIMESTAMP})
    assert read_failure(headers) == sum_of_many


def test_headers_written_by_connect_are_read() -> None:
    headers = [
        ("own", b"1"),
        (TOPIC, b"orders"),
        (PARTITION, b"0"),
        (OFFSET, b"7"),
        ("__connect.errors.task.id", b"0"),
        (ERROR_CLASS, b"org.apache.kafka.connect.errors.DataException"),
        ("__connect.errors.exception.stacktrace", None),
    ]
    failure = read_failure(headers)
    assert failure is not None
    assert failure.origin == Origin("orders", 0, 7)
    assert (failure.attempt, failure.pipeline, failure.message) == (1, None, "")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("own", b"1")],
        [(TOPIC, b"t"), (PARTITION, b"0")],
        [(TOPIC, b"t"), (PARTITION, b"x"), (OFFSET, b"1")],
        [(TOPIC, b"t"), (PARTITION, b"0"), (OFFSET, b"-1")],
        [(TOPIC, None), (PARTITION, b"0"), (OFFSET, b"1")],
        [(TOPIC, b"t"), (PARTITION, "٣".encode()), (OFFSET, b"1")],
    ],
)
def test_without_a_valid_origin_and_an_error_there_is_no_failure(headers: list[tuple[str, bytes | None]]) -> None:
    assert read_failure(headers) is None


def test_invalid_bytes_are_replaced() -> None:
    headers = [(TOPIC, b"t"), (PARTITION, b"0"), (OFFSET, b"1"), (ERROR_CLASS, b"\xff"), (ATTEMPT, b"many")]
    failure = read_failure(headers)
    assert failure is not None
    assert (failure.error_class, failure.attempt) == ("�", 1)
    lone = FAILURE._replace(message="\ud800")
    assert dict(headers_of(lone))["__connect.errors.exception.message"] == b"?"


def test_a_long_message_is_cut() -> None:
    long = FAILURE._replace(message="x" * 10 * MESSAGE_LENGTH_MAX)
    assert len(dict(headers_of(long))["__connect.errors.exception.message"]) == MESSAGE_LENGTH_MAX


def test_own_headers_survive_a_round_trip() -> None:
    own = (("a", b"1"), ("b", None), ("a", b"2"))
    first = (*own, *headers_of(FAILURE))
    assert original_headers(first) == own
    # Dead letters that are processed themselves keep their own block.
    second = (*first, *headers_of(Failure(Origin("orders.dlq", 0, 1, 5), "E", "m", "s", "p")))
    assert original_headers(second) == tuple(header for header in first if header[0] != ATTEMPT)
    failure = read_failure(second)
    assert failure is not None
    assert failure.origin == Origin("orders.dlq", 0, 1, 5)


def test_the_attempt_is_that_of_the_last_header() -> None:
    assert attempt_of([]) == 1
    assert attempt_of([(ATTEMPT, b"2"), (ATTEMPT, b"3")]) == 3
