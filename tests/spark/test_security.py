"""Spark with brokers that require TLS and a login: the options are those of Spark's own source."""

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from tests.support.certificates import PASSWORD, make_certificates
from tests.support.gate import gated_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def test_a_query_logs_in_to_read_and_to_write(spark: "SparkSession", tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    context = certificates.server_context(ssl.CERT_NONE)
    with gated_broker(tmp_path / "data", "num.partitions=2", users={"alice": "secret"}, tls=context) as gate:
        options = {
            "kafka.bootstrap.servers": gate.address,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{_LOGIN} username="alice" password="secret";',
            "kafka.ssl.truststore.location": str(certificates.truststore),
            "kafka.ssl.truststore.password": PASSWORD,
        }
        rows = spark.range(100).selectExpr("cast(id as string) as key", "cast(id * id as string) as value")
        rows.write.format("rookery").options(**options).option("topic", "squares").mode("append").save()
        # A stream with offsets committed to a group uses every client of the source and the sink.
        stream = spark.readStream.format("rookery").options(**options).option("subscribe", "squares")
        copying = (
            stream.option("startingOffsets", "earliest")
            .option("groupId", "copier")
            .load()
            .writeStream.format("rookery")
            .options(**options)
            .option("topic", "copies")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        copying.awaitTermination()
        copies = spark.read.format("rookery").options(**options).option("subscribe", "copies").load()
        found = {(bytes(row.key), bytes(row.value)) for row in copies.select("key", "value").collect()}
        assert found == {(b"%d" % number, b"%d" % number**2) for number in range(100)}
        assert set(gate.logins) == {"SCRAM-SHA-512 alice"}
        assert not gate.hang_ups

        wrong = {**options, "kafka.sasl.jaas.config": f'{_LOGIN} username="alice" password="guess";'}
        with pytest.raises(PySparkException, match=r"cannot log in at localhost.*kafka\.security\.protocol") as caught:
            spark.read.format("rookery").options(**wrong).option("subscribe", "copies").load().count()
        assert "guess" not in str(caught.value)
