"""Chooses the schema with which a column is written, and its id, by the rules of `serdes.registration`.

a version in the options     that version of the subject
use.latest.version           the latest version of the subject
otherwise                    the schema in the options, or the one derived from the column's type; it is registered if
                             it is new, unless auto.register.schemas is false
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rookery.base.config_key import ConfigKey
from rookery.base.errors import ConfigError
from rookery.schemas.interface import SchemaType
from rookery.serdes import Schema
from rookery.serdes.errors import InvalidDataError, NotRegisteredError, RegistryRequestError
from rookery.serdes.registration import Registration, SchemaWithId
from rookery.serdes.settings import SerializerSettings
from rookery.serdes.subjects import field_of
from rookery.serdes.wire import encode_prefix
from rookery.spark.formats.errors import FormatError, wrap_registry_errors
from rookery.spark.formats.registries import fetch_version, registry_of, serdes_settings

if TYPE_CHECKING:
    from rookery.spark.options import FormatOptions


# HTTP statuses of the registry: the schema is incompatible with earlier versions, or invalid.
_REFUSED: Final = (409, 422)


class WriterSchema(NamedTuple):
    """A registered schema. `resolved` has the texts of the schemas that it refers to."""

    schema: Schema
    schema_id: int
    resolved: Mapping[str, str]

    @property
    def prefix(self) -> bytes:
        return encode_prefix(self.schema_id)


def choose_schema(
    options: "FormatOptions",
    own: Schema | None,
    *,
    schema_type: SchemaType,
    keys: Mapping[str, ConfigKey],
    record_name: str | None,
    topic: str,
    is_key: bool,
) -> WriterSchema:
    """Return the schema to write with. `own` is the schema of the options or the derived one. Raises FormatError."""
    registry = registry_of(options.registry)
    config: dict[str, Any] = dict(serdes_settings(options.registry, keys))
    subject = options.subject
    if options.version != "latest":
        found = fetch_version(registry, subject or f"{topic}-{field_of(is_key=is_key)}", options.version, schema_type)
        with wrap_registry_errors():
            return WriterSchema(found.schema, found.id, registry.resolve(found.schema))
    if subject is not None:
        config["subject.name.strategy"] = lambda context, name: subject
    try:
        settings = SerializerSettings.parse(keys, config)
        registration: Registration[SchemaWithId] = Registration(
            registry,
            settings,
            schema_type=schema_type,
            parse=lambda chosen: chosen,
            own_schema=None if own is None else lambda: own,
            record_name=record_name,
            field=field_of(is_key=is_key),
        )
    except ConfigError as error:
        raise FormatError(str(error)) from error
    with wrap_registry_errors():
        try:
            chosen = registration.target(topic).schema
        except RegistryRequestError as error:
            if error.status not in _REFUSED:
                raise
            raise FormatError(f"the registry rejects the schema of the column: {error}") from error
        except (NotRegisteredError, InvalidDataError) as error:
            raise FormatError(str(error)) from error
        return WriterSchema(chosen.schema, chosen.schema_id, registry.resolve(chosen.schema))
