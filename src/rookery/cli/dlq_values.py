"""Keys and values of dead letters as people read them: decoded by the registry's schemas, where that can be done.

Dead letters are often those that cannot be decoded, so nothing here fails: what cannot be read is shown as bytes.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rookery.cli.output import note

if TYPE_CHECKING:
    from rookery.serdes.client import RegistryClient

# A value in the registry's format: a zero, and the number of its schema in four bytes.
FRAME_SIZE = 5


def schema_id_of(data: bytes) -> int | None:
    return int.from_bytes(data[1:FRAME_SIZE]) if len(data) >= FRAME_SIZE and data[0] == 0 else None


class RegistryValues:
    """Decodes by the schemas of a registry; the origin's topic is what the bytes were written for."""

    def __init__(self, url: str) -> None:
        from rookery.serdes.client import RegistryClient

        self._registry = RegistryClient(url)
        self._decoders: dict[str, Callable[[str, bytes], Any]] = {}
        self._is_down = False

    def decode(self, topic: str, data: bytes | None) -> str | None:
        """As JSON, or as the text of a Protobuf message; None if it cannot be decoded."""
        from rookery.serdes.errors import InvalidSchemaError, RegistryUnavailableError, SerdesError

        schema_id = None if data is None else schema_id_of(data)
        if schema_id is None or data is None or self._is_down:
            return None
        try:
            schema_type = self._registry.get_by_id(schema_id).schema_type
            if schema_type not in self._decoders:
                self._decoders[schema_type] = _decoder(schema_type, self._registry)
            return _text(self._decoders[schema_type](topic, data))
        except RegistryUnavailableError as error:
            self._is_down = True
            note(f"values are not decoded: {error}")
        except (SerdesError, InvalidSchemaError):
            pass
        return None


def _decoder(schema_type: str, registry: "RegistryClient") -> Callable[[str, bytes], Any]:
    from rookery.serdes import AvroDeserializer, JSONSchemaDeserializer, ProtobufDeserializer

    match schema_type:
        case "PROTOBUF":
            return ProtobufDeserializer(registry)
        case "JSON":
            return JSONSchemaDeserializer(registry)
        case _:
            return AvroDeserializer(registry)


def _text(value: Any) -> str:
    """Of what JSON has no form for, Python's."""
    if isinstance(value, dict | list | str | int | float | None):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value).strip()
