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
    ],
)
def test_what_fails_again_in_the_same_way_is_not_tried_again(error: str) -> None:
    assert restart_pause_s(error, 1, failures_max=5) is None
