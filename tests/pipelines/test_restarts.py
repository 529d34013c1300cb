from rookery.pipelines.query_failures import ForeignError
from rookery.pipelines.restarts import restart_pause_s
from rookery.spark.option_table import OptionError


def test_pauses_grow_until_it_gives_up() -> None:
    error = ForeignError("the broker is gone")
    pauses = [restart_pause_s(error, failures, failures_max=3) for failures in (1, 2, 3, 4)]
    assert pauses == [1.0, 2.0, 4.0, None]


def test_the_type_decides_whatever_the_text() -> None:
    assert restart_pause_s(ForeignError("AnalysisException: OptionError"), 1, failures_max=5) == 1.0
    assert restart_pause_s(OptionError("connection refused"), 1, failures_max=5) is None
