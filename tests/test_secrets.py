"""No `repr` of settings shows a secret: it may come into a log (docs/decisions/0016-security-of-the-client.md)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path

import pytest

from rookery.client.settings.admin import AdminSettings
from rookery.client.settings.consumer import ConsumerSettings
from rookery.client.settings.producer import ProducerSettings
from rookery.pipelines.application import RunOptions
from rookery.pipelines.parser import parse_pipeline
from rookery.pipelines.spec import Pipeline, Sink, Source
from rookery.registry.rest.auth import Credentials
from rookery.registry.settings import RegistrySettings
from rookery.serdes.settings import RegistrySettings as RegistryClientSettings
from rookery.spark.options import parse_read_options, parse_write_options
from rookery.spark.postgres.letters import DeadLetters

SECRET = "hunter2"
TLS = {
    "security.protocol": "SASL_SSL",
    "ssl.truststore.password": SECRET,
    "ssl.keystore.password": SECRET,
    "ssl.keystore.key": SECRET,
    "ssl.key.password": SECRET,
}
PASSWORD = {
    **TLS,
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.jaas.config": f'a.ScramLoginModule required username="alice" password="{SECRET}";',
}
TOKEN = {
    **TLS,
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f'a.Module required clientSecret="{SECRET}" ssl.key.password="{SECRET}";',
    "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
    "sasl.oauthbearer.client.credentials.client.id": "alice",
    "sasl.oauthbearer.client.credentials.client.secret": SECRET,
}
AT = {"bootstrap.servers": "localhost:9092"}
REGISTRY_URL = f"http://alice:{SECRET}@registry:8081"
REGISTRY_LOGIN = {
    "basic.auth.user.info": f"alice:{SECRET}",
    "ssl.key.password": SECRET,
    "ssl.certificate.location": "client.pem",
}
SPARK = {
    **{f"kafka.{name}": value for name, value in (AT | PASSWORD).items()},
    "schema.registry.url": REGISTRY_URL,
    **{f"schema.registry.{name}": value for name, value in REGISTRY_LOGIN.items()},
    "keyFormat": "avro",
    "valueFormat": "avro",
}
PIPELINE = f"""\
name: secretive
platform:
  bootstrap.servers: localhost:9092
  schema.registry.url: {REGISTRY_URL}
  security.protocol: SASL_PLAINTEXT
  sasl.mechanism: PLAIN
  sasl.jaas.config: 'a.PlainLoginModule required username="alice" password="{SECRET}";'
sources:
  topic: {{topic: views, options: {{kafka.ssl.key.password: {SECRET}}}}}
  files: {{files: in/*.csv, format: csv, schema: "id int", options: {{fs.secret.key: {SECRET}}}}}
  shop: {{postgres: "postgresql://alice:{SECRET}@localhost/shop", table: sales}}
  other: {{jdbc: "jdbc:mysql://localhost/shop?password={SECRET}", table: sales, options: {{password: {SECRET}}}}}
sinks:
  - {{topic: copies, from: topic, options: {{kafka.ssl.key.password: {SECRET}}}}}
  - {{parquet: out/views, from: topic, options: {{parquet.encryption.key: {SECRET}}}}}
  - {{name: db, postgres: "postgresql://alice:{SECRET}@localhost/shop", table: views, from: topic}}
"""


def pipeline() -> Pipeline:
    return parse_pipeline(PIPELINE, Path("pipeline.yaml"), {})


def source(name: str) -> Source:
    return pipeline().sources[name]


def sink(number: int) -> Sink:
    return pipeline().sinks[number]


def registry() -> RegistrySettings:
    config = {"kafkastore.bootstrap.servers": "localhost:9092", "ssl.key.password": SECRET}
    return RegistrySettings.parse(config | {f"kafkastore.{name}": value for name, value in PASSWORD.items()})


MADE: dict[str, Callable[[], object]] = {
    "admin": lambda: AdminSettings.parse(AT | PASSWORD),
    "producer": lambda: ProducerSettings.parse(AT | PASSWORD),
    "consumer": lambda: ConsumerSettings.parse(AT | PASSWORD),
    "consumer with tokens": lambda: ConsumerSettings.parse(AT | TOKEN),
    "registry": registry,
    "files of a registry": lambda: registry().tls,
    "reading": lambda: parse_read_options(SPARK | {"subscribe": "views"}, streaming=False),
    "format": lambda: parse_read_options(SPARK | {"subscribe": "views"}, streaming=False).value_format,
    "writing": lambda: parse_write_options(SPARK, streaming=True),
    "a registry's client": lambda: RegistryClientSettings.parse(REGISTRY_LOGIN),
    "users of a registry": lambda: Credentials(SECRET),
    "dead letters": lambda: DeadLetters(SPARK),
    "run of a pipeline": lambda: RunOptions(settings={"spark.hadoop.fs.s3a.secret.key": SECRET}),
    "pipeline": pipeline,
    **{f"source {name}": partial(source, name) for name in ("topic", "files", "shop", "other")},
    **{f"sink {number}": partial(sink, number) for number in range(3)},
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
def test_no_repr_shows_a_secret(make: Callable[[], object]) -> None:
    made = make()
    assert any(SECRET in text for text in texts(made)), "there is nothing to hide"
    assert SECRET not in repr(made)


def texts(value: object) -> Iterator[str]:
    """All texts in a value, shown or not."""
    if isinstance(value, str):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from texts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from texts(item)
