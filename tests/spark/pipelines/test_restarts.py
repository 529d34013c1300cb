import pytest

from rookery.spark.pipelines.restarts import restart_pause_s


def test_pauses_grow_until_it_gives_up() -> None:
    pauses = [restart_pause_s("the broker is gone", failures, failures_max=3) for failures in (1, 2, 3, 4)]
    assert pauses == [1.0, 2.0, 4.0, None]


@pytest.mark.parametrize(
    "error",
    [
        "org.apache.spark.sql.AnalysisException: x",
        "rookery.spark.option_table.OptionError: unknown option x",
        "[CAST_INVALID_INPUT] The value 'x' of the type STRING cannot be cast to BIGINT",
        "rookery.spark.postgres.connecting.FencedError: another run has taken over the sink x",
        "rookery.client.errors.ProducerFencedError: PRODUCER_FENCED: y",
        "rookery.spark.sink.commit_protocol.SinkError: batch 3: other drivers write to the sink x at the same time",
        "rookery.spark.sink.commit_protocol.TornBatchError: batch 3 is torn",
        "rookery.spark.postgres.connecting.PostgresError: table orders: column at is missing",
        "psycopg.errors.NotNullViolation: null value in column x",
        "psycopg.errors.UndefinedColumn: column y",
        "There are [2] sources in the checkpoint offsets and now there are [1] sources requested by the query. "
        "Cannot continue.",
        "java.lang.ArithmeticException: long overflow",
        "org.apache.spark.SparkUpgradeException: [INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION] x",
        "[INVALID_DATETIME_PATTERN.ILLEGAL_CHARACTER] Unrecognized datetime pattern: qqqqq.",
    ],
)
def test_what_fails_again_in_the_same_way_is_not_tried_again(error: str) -> None:
    assert restart_pause_s(error, 1, failures_max=5) is None


@pytest.mark.parametrize(
    "error",
    [
        "psycopg.OperationalError: the server closed the connection unexpectedly",
        "rookery.spark.postgres.connecting.PostgresError: connection failed: Connection refused",
        "rookery.spark.postgres.connecting.PostgresError: of 3 rows staged for x, 0 are there: the server",
        "psycopg.errors.SerializationFailure: could not serialize access",
        "rookery.base.errors.ApiError: NOT_LEADER_OR_FOLLOWER",
    ],
)
def test_what_may_pass_is_tried_again(error: str) -> None:
    assert restart_pause_s(error, 1, failures_max=5) == 1.0
