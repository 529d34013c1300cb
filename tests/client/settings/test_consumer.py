import contextlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.base.errors import ConfigError
from rookery.client.settings import ConsumerSettings, OffsetReset, OffsetResetStrategy

BOOTSTRAP = {"bootstrap.servers": "localhost:9092"}
GROUP = {"group.id": "g"}


def _parse(config: Mapping[str, object]) -> ConsumerSettings:
    return ConsumerSettings.parse({**BOOTSTRAP, **config})


def _problem(config: Mapping[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        _parse(config)
    return str(caught.value)


def test_defaults() -> None:
    settings = _parse(GROUP)
    assert settings.group_protocol == "classic"
    assert settings.enable_auto_commit
    assert not settings.read_committed
    assert settings.auto_offset_reset == OffsetReset(OffsetResetStrategy.LATEST)
    assert settings.partition_assignment_strategy == ("range", "cooperative-sticky")
    assert settings.common.client_rack == ""


@pytest.mark.parametrize("value", ["", " "])
def test_a_group_id_is_not_empty(value: str) -> None:
    assert "group.id" in _problem({"group.id": value})


@pytest.mark.parametrize("value", ["", "a/b", "ä", ".", "..", "x" * 250, "a\n"])
def test_invalid_instance_ids(value: str) -> None:
    assert "group.instance.id" in _problem({**GROUP, "group.instance.id": value})


def test_valid_instance_ids() -> None:
    for value in ("a", "x" * 249, "a.b_c-D9"):
        assert _parse({**GROUP, "group.instance.id": value}).group_instance_id == value


def test_without_a_group() -> None:
    assert not _parse({}).enable_auto_commit
    assert _problem({"enable.auto.commit": True}) == "enable.auto.commit=true needs a group.id"
    assert _problem({"group.instance.id": "i"}) == "group.instance.id needs a group.id"
    assert not _parse({"enable.auto.commit": False}).enable_auto_commit


def test_automatic_commits_can_be_turned_off() -> None:
    assert not _parse({**GROUP, "enable.auto.commit": "false"}).enable_auto_commit


@pytest.mark.parametrize("value", ["consumer", "CONSUMER", "Consumer"])
def test_the_consumer_protocol_in_any_case(value: str) -> None:
    assert _parse({**GROUP, "group.protocol": value}).group_protocol == "consumer"


@pytest.mark.parametrize(
    ("name", "value"),
    [("session.timeout.ms", 45_000), ("heartbeat.interval.ms", 3000), ("partition.assignment.strategy", "range")],
)
def test_keys_that_the_broker_determines_in_the_consumer_protocol(name: str, value: object) -> None:
    problem = _problem({**GROUP, "group.protocol": "consumer", name: value})
    assert name in problem
    assert "group.protocol" in problem
    _parse({**GROUP, name: value})


def test_a_remote_assignor_needs_the_consumer_protocol() -> None:
    settings = _parse({**GROUP, "group.protocol": "consumer", "group.remote.assignor": "uniform"})
    assert settings.group_remote_assignor == "uniform"
    assert "group.remote.assignor needs group.protocol=consumer" in _problem({"group.remote.assignor": "uniform"})
    assert _parse({"group.remote.assignor": ""}).group_remote_assignor is None


@pytest.mark.parametrize(
    "config", [{"heartbeat.interval.ms": 45_000}, {"session.timeout.ms": 3000}, {"heartbeat.interval.ms": 50_000}]
)
def test_the_heartbeat_interval_is_less_than_the_session_timeout(config: Mapping[str, object]) -> None:
    problem = _problem(config)
    assert "heartbeat.interval.ms" in problem
    assert "session.timeout.ms" in problem


def test_the_fetch_wait_does_not_exceed_the_request_timeout() -> None:
    assert "fetch.max.wait.ms (501) must not exceed request.timeout.ms (500)" in _problem(
        {"request.timeout.ms": 500, "fetch.max.wait.ms": 501}
    )
    assert _parse({"request.timeout.ms": 500}).fetch_max_wait_ms == 250
    assert _parse({"request.timeout.ms": 1000}).fetch_max_wait_ms == 500
    assert _parse({"request.timeout.ms": 500, "fetch.max.wait.ms": 500}).fetch_max_wait_ms == 500


def test_assignors_by_class_names_and_short_names() -> None:
    java = "org.apache.kafka.clients.consumer."
    names = [f"{java}RoundRobinAssignor", f"{java}StickyAssignor", "mine", f"{java}CooperativeStickyAssignor", "sticky"]
    settings = _parse({"partition.assignment.strategy": names})
    assert settings.partition_assignment_strategy == ("roundrobin", "sticky", "mine", "cooperative-sticky")


@pytest.mark.parametrize("value", ["", ",", [], "range,,sticky"])
def test_at_least_one_assignor(value: object) -> None:
    assert "partition.assignment.strategy" in _problem({"partition.assignment.strategy": value})


def test_isolation() -> None:
    assert _parse({"isolation.level": "read_committed"}).read_committed
    assert "isolation.level" in _problem({"isolation.level": "READ_COMMITTED"})


@pytest.mark.parametrize("name", ["earliest", "latest", "none"])
def test_reset_by_name(name: str) -> None:
    reset = _parse({"auto.offset.reset": name}).auto_offset_reset
    assert reset.strategy.value == name == str(reset)


# The results of java.time.Duration.parse(...).toMillis().
@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("P1DT2H3M4.567S", 93_784_567),
        ("PT1H-30M", 1_800_000),
        ("-PT-1H", 3_600_000),
        ("PT0.0001S", 0),
        ("PT0S", 0),
        ("-PT-0.5S", 500),
        ("+PT1,5S", 1500),
        ("pt1.5s", 1500),
        ("PT-1M90.25S", 30_250),
        ("P-1DT25H", 3_600_000),
        ("PT1.S", 1000),
        ("P7D", 604_800_000),
    ],
)
def test_reset_by_duration(text: str, duration_ms: int) -> None:
    reset = _parse({"auto.offset.reset": f"by_duration:{text}"}).auto_offset_reset
    assert reset == OffsetReset(OffsetResetStrategy.BY_DURATION, duration_ms)
    assert OffsetReset.parse(str(reset)) == reset


@pytest.mark.parametrize(
    "text",
    ["EARLIEST", "", "by_duration", "by_duration:", "BY_DURATION:PT1S", "by_time:PT1S", " latest"]
    + [
        f"by_duration:{duration}"
        for duration in ("P", "PT", "P1DT", "P1W", "P1Y", "-PT1S", "PT-0.5S", "PT.5S", "PT0.5H", "1H", "P1D-")
    ]
    + ["by_duration:PT1.1234567891S", "by_duration:P99999999999999999999D", "by_duration:P9999999999999999999D"],
)
def test_invalid_resets(text: str) -> None:
    problem = _problem({"auto.offset.reset": text})
    assert "auto.offset.reset" in problem
    assert "by_duration:PnDTnHnMn.nS" in problem


@given(st.text(alphabet="PTDHMS0123456789+-.,"))
def test_any_duration_is_parsed_or_rejected(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert OffsetReset.parse(f"by_duration:{text}").duration_ms >= 0
