"""The settings of the registry's client and of the serializers, with Confluent's names."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from rookery.base.config_key import ConfigKey, ConfigType
from rookery.base.config_key import broker_row as row
from rookery.base.values import value_class
from rookery.client.settings.parser import Values, check_together, table
from rookery.serdes.subjects import SubjectNameStrategy, find_strategy
from rookery.serdes.wire import SCHEMA_ID_MAX

_BOOLEAN = ConfigType.BOOLEAN
_INT = ConfigType.INT
_LONG = ConfigType.LONG
_PASSWORD = ConfigType.PASSWORD
_STRING = ConfigType.STRING

REGISTRY_KEYS: dict[str, ConfigKey] = table(
    (
        row("basic.auth.user.info", _PASSWORD, None, "user:password, for registries that require them."),
        row("ssl.ca.location", _STRING, None, "PEM file with trusted certificates; the default is httpx's."),
        row("ssl.certificate.location", _STRING, None, "PEM file with the client's certificate."),
        row("ssl.key.location", _STRING, None, "PEM file with its key, if that is not in the same file."),
        row("ssl.key.password", _PASSWORD, None, "Password of the key."),
        row("enable.ssl.certificate.verification", _BOOLEAN, True, "Whether the registry's certificate is checked."),
        row("http.connect.timeout.ms", _INT, 10_000, "Time limit for connecting to a registry.", minimum=1),
        row("http.read.timeout.ms", _INT, 30_000, "Time limit for a registry's response.", minimum=1),
        row("request.timeout.ms", _INT, 30_000, "Time limit for a request with all its attempts.", minimum=1),
        row("max.retries", _INT, 3, "How often all urls are retried if none answers.", minimum=0),
        row("retries.wait.ms", _LONG, 100, "First wait before a retry; it doubles each time.", minimum=0),
        row("retries.max.wait.ms", _LONG, 1000, "Longest wait before a retry.", minimum=0),
    )
)


@value_class(kw_only=True)
class RegistrySettings:
    user_info: str | None = field(repr=False)
    ca_file: str | None
    certificate_file: str | None
    key_file: str | None
    key_password: str | None = field(repr=False)
    verifies: bool
    connect_timeout_ms: int
    read_timeout_ms: int
    timeout_ms: int
    retries_max: int
    wait_ms: int
    wait_ms_max: int

    @classmethod
    def parse(cls, config: Mapping[str, object]) -> "RegistrySettings":
        values = Values(REGISTRY_KEYS, config)
        check_together(_conflicts(values))
        return cls(
            user_info=values.optional_text("basic.auth.user.info"),
            ca_file=values.optional_text("ssl.ca.location"),
            certificate_file=values.optional_text("ssl.certificate.location"),
            key_file=values.optional_text("ssl.key.location"),
            key_password=values.optional_text("ssl.key.password"),
            verifies=values.boolean("enable.ssl.certificate.verification"),
            connect_timeout_ms=values.integer("http.connect.timeout.ms"),
            read_timeout_ms=values.integer("http.read.timeout.ms"),
            timeout_ms=values.integer("request.timeout.ms"),
            retries_max=values.integer("max.retries"),
            wait_ms=values.integer("retries.wait.ms"),
            wait_ms_max=values.integer("retries.max.wait.ms"),
        )


def _conflicts(values: Values) -> Iterator[str]:
    user_info = values.optional_text("basic.auth.user.info")
    if user_info is not None and ":" not in user_info:
        yield "basic.auth.user.info must be user:password"
    for name in ("ssl.key.location", "ssl.key.password"):
        if values.is_given(name) and not values.is_given("ssl.certificate.location"):
            yield f"{name} needs ssl.certificate.location"


_STRATEGY = "subject.name.strategy"
_LATEST_ROW = row("use.latest.version", _BOOLEAN, False, "Use the subject's latest schema at the first use.")
_VALIDATE_ROW = row("validate", _BOOLEAN, True, "Whether values are checked against the schema.")
_SERIALIZER_ROWS = (
    row("auto.register.schemas", _BOOLEAN, True, "Whether schemas that are not registered yet are registered."),
    row("normalize.schemas", _BOOLEAN, False, "Whether the registry normalizes schemas."),
    row("use.schema.id", _INT, None, "The id of a registered schema to write with.", minimum=0, maximum=SCHEMA_ID_MAX),
    _LATEST_ROW,
)
AVRO_SERIALIZER_KEYS = table(
    _SERIALIZER_ROWS,
    (
        row("validate.strict", _BOOLEAN, False, "Whether a record must have the fields of the schema, and no others."),
        row("validate.strict.allow.default", _BOOLEAN, False, "The same, but fields with defaults may be missing."),
    ),
)
JSON_SERIALIZER_KEYS = table(_SERIALIZER_ROWS, (_VALIDATE_ROW,))
PROTOBUF_SERIALIZER_KEYS = table(
    _SERIALIZER_ROWS,
    (row("skip.known.types", _BOOLEAN, True, "Whether imports that every registry has built in are not registered."),),
)
AVRO_DESERIALIZER_KEYS = table((_LATEST_ROW,))
PROTOBUF_DESERIALIZER_KEYS = AVRO_DESERIALIZER_KEYS
JSON_DESERIALIZER_KEYS = table((_LATEST_ROW, _VALIDATE_ROW))


@value_class(kw_only=True)
class SerializerSettings:
    """How a serializer finds its schema's id. `values` also holds the settings that only one format has."""

    subject_of: SubjectNameStrategy
    registers: bool
    normalizes: bool
    schema_id: int | None
    uses_latest: bool
    values: Values

    @classmethod
    def parse(cls, keys: Mapping[str, ConfigKey], config: Mapping[str, object]) -> "SerializerSettings":
        subject_of, values = _read(keys, config)
        check_together(_contradictions(values))
        schema_id = values.value("use.schema.id")
        assert schema_id is None or isinstance(schema_id, int)
        return cls(
            subject_of=subject_of,
            registers=values.boolean("auto.register.schemas"),
            normalizes=values.boolean("normalize.schemas"),
            schema_id=schema_id,
            uses_latest=values.boolean("use.latest.version"),
            values=values,
        )

    @property
    def needs_schema(self) -> bool:
        """Whether the program has to pass a schema, because the settings do not choose one from the registry."""
        return self.schema_id is None and not self.uses_latest


def _contradictions(values: Values) -> Iterable[str]:
    """Yield the settings that contradict each other.

    With `use.schema.id` or `use.latest.version` nothing is registered; the default of `auto.register.schemas` is then
    ignored, and only an explicit true is an error.
    """
    chosen = [name for name in ("use.schema.id", "use.latest.version") if values.is_given(name) and values.value(name)]
    if len(chosen) == 2:
        yield "use.schema.id and use.latest.version exclude each other"
    if chosen and values.is_given("auto.register.schemas") and values.boolean("auto.register.schemas"):
        yield f"{chosen[0]} and auto.register.schemas exclude each other"


@value_class(kw_only=True)
class DeserializerSettings:
    subject_of: SubjectNameStrategy
    uses_latest: bool
    values: Values

    @classmethod
    def parse(cls, keys: Mapping[str, ConfigKey], config: Mapping[str, object]) -> "DeserializerSettings":
        subject_of, values = _read(keys, config)
        return cls(subject_of=subject_of, uses_latest=values.boolean("use.latest.version"), values=values)


def _read(keys: Mapping[str, ConfigKey], config: Mapping[str, object]) -> tuple[SubjectNameStrategy, Values]:
    """Take the strategy out before the other settings are parsed: it may be a function, which the parser rejects."""
    rest = dict(config)
    subject_of = find_strategy(rest.pop(_STRATEGY, "TopicNameStrategy"))
    return subject_of, Values(keys, rest)
