import pytest

from rookery.base.errors import ConfigError
from rookery.client.settings import Acks, ProducerSettings
from rookery.records.batch import Codec

BOOTSTRAP = {"bootstrap.servers": "localhost:9092"}


def _parse(config: dict[str, object]) -> ProducerSettings:
    return ProducerSettings.parse({**BOOTSTRAP, **config})


def _problem(config: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        _parse(config)
    return str(caught.value)


def test_defaults() -> None:
    settings = _parse({})
    assert settings.acks is Acks.ALL
    assert settings.enable_idempotence
    assert settings.linger_ms == 5
    assert settings.compression_codec is Codec.NONE
    assert settings.transactional_id is None
    assert settings.partitioner_class is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [("all", Acks.ALL), ("-1", Acks.ALL), (-1, Acks.ALL), ("0", Acks.NONE), (0, Acks.NONE), (1, Acks.LEADER)],
)
def test_acks(value: object, expected: Acks) -> None:
    assert _parse({"acks": value}).acks is expected


@pytest.mark.parametrize("value", ["ALL", "2", 2, "", True, -2])
def test_invalid_acks(value: object) -> None:
    assert "acks" in _problem({"acks": value})


@pytest.mark.parametrize("config", [{"acks": "1"}, {"acks": 0}, {"retries": 0}, {"enable.idempotence": False}])
def test_conflicting_keys_turn_idempotence_off(config: dict[str, object]) -> None:
    assert not _parse(config).enable_idempotence


@pytest.mark.parametrize(
    ("config", "key"), [({"acks": 1}, "acks"), ({"acks": "0"}, "acks"), ({"retries": 0}, "retries")]
)
def test_explicit_idempotence_is_not_turned_off(config: dict[str, object], key: str) -> None:
    problem = _problem({**config, "enable.idempotence": "true"})
    assert "enable.idempotence" in problem
    assert key in problem


@pytest.mark.parametrize("config", [{}, {"enable.idempotence": True}, {"acks": "1"}, {"retries": 0}])
def test_more_than_five_in_flight_need_idempotence_off(config: dict[str, object]) -> None:
    problem = _problem({**config, "max.in.flight.requests.per.connection": 6})
    assert "max.in.flight.requests.per.connection (6)" in problem
    assert "enable.idempotence" in problem
    settings = _parse({"max.in.flight.requests.per.connection": 6, "enable.idempotence": False})
    assert settings.max_in_flight_requests_per_connection == 6


@pytest.mark.parametrize("config", [{"enable.idempotence": False}, {"acks": "1"}, {"retries": 0}])
def test_transactions_need_idempotence(config: dict[str, object]) -> None:
    problem = _problem({**config, "transactional.id": "t"})
    assert "transactional.id" in problem
    assert next(iter(config)) in problem


@pytest.mark.parametrize("value", ["", "  "])
def test_a_transactional_id_is_not_empty(value: str) -> None:
    assert "transactional.id" in _problem({"transactional.id": value})


def test_the_delivery_timeout_covers_linger_and_request() -> None:
    problem = _problem({"delivery.timeout.ms": 30_004})
    assert problem == "delivery.timeout.ms (30004) must be at least linger.ms + request.timeout.ms (30005)"
    assert _parse({"delivery.timeout.ms": 30_005}).delivery_timeout_ms == 30_005
    assert _parse({"request.timeout.ms": 200_000}).delivery_timeout_ms == 200_005
    assert _parse({"linger.ms": 2**40}).delivery_timeout_ms == 2**31 - 1


@pytest.mark.parametrize("codec", Codec)
def test_codecs(codec: Codec) -> None:
    settings = _parse({"compression.type": codec.name.lower()})
    assert settings.compression_codec is codec
    assert settings.compression_level is None


def test_a_level_applies_to_its_codec_only() -> None:
    levels = {"compression.gzip.level": 1, "compression.zstd.level": -5, "compression.lz4.level": 17}
    assert _parse({**levels, "compression.type": "gzip"}).compression_level == 1
    assert _parse({**levels, "compression.type": "zstd"}).compression_level == -5
    assert _parse({**levels, "compression.type": "lz4"}).compression_level == 17
    assert _parse({**levels, "compression.type": "snappy"}).compression_level is None
    assert _parse({**levels, "compression.type": "none"}).compression_level is None


@pytest.mark.parametrize(("name", "value"), [("gzip", 0), ("gzip", 10), ("lz4", 18), ("zstd", 23)])
def test_levels_have_limits(name: str, value: int) -> None:
    assert f"compression.{name}.level" in _problem({f"compression.{name}.level": value})


@pytest.mark.parametrize("name", ["round-robin", "org.apache.kafka.clients.producer.RoundRobinPartitioner"])
def test_round_robin_by_either_name(name: str) -> None:
    assert _parse({"partitioner.class": name}).partitioner_class == "round-robin"


@pytest.mark.parametrize("value", ["com.example.Mine", "", object(), str])
def test_other_partitioners_are_passed_as_objects(value: object) -> None:
    problem = _problem({"partitioner.class": value})
    assert "partitioner.class" in problem
    assert "keyword argument partitioner" in problem


def test_two_phase_commit_is_rejected() -> None:
    assert "two-phase" in _problem({"transaction.two.phase.commit.enable": "true", "transactional.id": "t"})
