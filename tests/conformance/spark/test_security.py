"""With the same options both connectors read and write the same rows in a cluster with TLS and logins."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.java_keystores import make_keystore, make_truststore
from tests.conformance.secure_kafka import (
    ALLOWED_URLS,
    MUTUAL,
    OAUTH,
    PLAIN,
    SASL_SSL,
    SCRAM_512,
    SecureKafka,
    Settings,
    start_secure,
)
from tests.conformance.spark import topics
from tests.conformance.spark.connectors import CONNECTORS, OURS, SPARKS, Options, read, stream, write
from tests.support.certificates import PASSWORD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 40
# The listener, the mechanism, and the format of the trust store and, if the broker requires one, of the key store.
CONNECTIONS = {
    "plain": (SASL_SSL, PLAIN, "JKS"),
    "scram": (SASL_SSL, SCRAM_512, "PKCS12"),
    "tokens": (SASL_SSL, OAUTH, "PEM"),
    "certificates": (MUTUAL, "", "JKS"),
}


@pytest.fixture(scope="module")
def kafka(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with start_secure(tmp_path_factory.mktemp("secure")) as running:
        topics.create(running.plain, "orders")
        topics.send(running.plain, "orders", COUNT)
        # Spark's connector requests tokens in the JVM of the session.
        system: Any = spark.sparkContext._jvm
        system.java.lang.System.setProperty(ALLOWED_URLS, running.tokens.url)
        yield running


@pytest.fixture(scope="module", params=CONNECTIONS)
def connection(
    request: pytest.FixtureRequest, kafka: SecureKafka, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Options]:
    """Return the address and the options."""
    listener, mechanism, store_format = CONNECTIONS[request.param]
    settings = kafka.settings(listener, mechanism)
    if store_format != "PEM":
        directory = tmp_path_factory.mktemp(request.param)
        settings |= _stored("truststore", make_truststore(kafka.certificates, directory, store_format), store_format)
        if listener == MUTUAL:
            settings |= _stored("keystore", make_keystore(kafka.certificates, directory, store_format), store_format)
    return kafka.addresses[listener], {f"kafka.{key}": value for key, value in settings.items()}


def _stored(name: str, path: Path, store_format: str) -> Settings:
    return {f"ssl.{name}.type": store_format, f"ssl.{name}.location": str(path), f"ssl.{name}.password": PASSWORD}


def test_batches_have_the_same_rows(spark: "SparkSession", connection: tuple[str, Options]) -> None:
    bootstrap, options = connection
    options = {**options, "subscribe": "orders", "includeHeaders": "true"}
    expected, ours = (read(spark, connector, bootstrap, options) for connector in (SPARKS, OURS))
    assert len(expected.rows) == COUNT
    assert ours == expected


def test_streams_have_the_same_rows(spark: "SparkSession", connection: tuple[str, Options], tmp_path: Path) -> None:
    bootstrap, options = connection
    options = {**options, "subscribe": "orders", "startingOffsets": "earliest"}
    expected, ours = (
        stream(spark, connector, bootstrap, options, tmp_path / connector) for connector in (SPARKS, OURS)
    )
    assert sum(len(batch.rows) for batch in expected) == COUNT
    assert [batch.rows for batch in ours] == [batch.rows for batch in expected]


def test_both_write_the_same(
    spark: "SparkSession", kafka: SecureKafka, connection: tuple[str, Options], topic: str
) -> None:
    bootstrap, options = connection
    frame = spark.createDataFrame([(f"key-{n}", f"value-{n}") for n in range(COUNT)], "key string, value string")
    found = []
    for writer in CONNECTORS:
        target = f"{topic}-{writer}"
        topics.create(kafka.plain, target, partitions=3)
        write(frame, writer, bootstrap, {**options, "topic": target})
        rows = read(spark, SPARKS, kafka.plain, {"subscribe": target, "kafka.isolation.level": "read_committed"}).rows
        found.append(sorted((key, value, partition) for key, value, _, partition, *_ in rows))
    assert len(found[0]) == COUNT
    assert found[1] == found[0]


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM_512])
def test_both_fail_with_a_wrong_password(spark: "SparkSession", kafka: SecureKafka, mechanism: str) -> None:
    settings = kafka.settings(SASL_SSL, mechanism, password="guessed")
    options = {"subscribe": "orders", **{f"kafka.{key}": value for key, value in settings.items()}}
    with pytest.raises(Exception, match="SaslAuthenticationException"):
        read(spark, SPARKS, kafka.addresses[SASL_SSL], options)
    with pytest.raises(Exception, match=r"sasl\.jaas\.config") as refused:
        read(spark, OURS, kafka.addresses[SASL_SSL], options)
    assert "guessed" not in str(refused.value)
