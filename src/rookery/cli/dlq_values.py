"""Decodes keys and values of dead letters with the registry's schemas.

Many dead letters are records that cannot be decoded: nothing here fails, and undecodable bytes are shown as they are.
"""

import json

from rookery.cli.output import note

# The prefix of a value in the registry's wire format: a zero byte, and the schema id in four bytes.
FRAME_SIZE = 5


def schema_id_of(data: bytes) -> int | None:
    return int.from_bytes(data[1:FRAME_SIZE]) if len(data) >= FRAME_SIZE and data[0] == 0 else None


class RegistryValues:
    """Decodes values with the schemas of a registry, by the topic that they were written to."""

    def __init__(self, url: str) -> None:
        from rookery.cli.registry_access import connect_registry
        from rookery.serdes.json_records import JsonReader

        self._read = JsonReader(connect_registry(url, None))
        self._is_down = False

    def decode(self, topic: str, data: bytes | None) -> str | None:
        """Return the JSON of a value; None if it cannot be decoded."""
        from rookery.serdes.errors import InvalidSchemaError, RegistryUnavailableError, SerdesError

        schema_id = None if data is None else schema_id_of(data)
        if schema_id is None or data is None or self._is_down:
            return None
        try:
            return json.dumps(self._read(topic, data), ensure_ascii=False)
        except RegistryUnavailableError as error:
            self._is_down = True
            note(f"values are not decoded: {error}")
        except (SerdesError, InvalidSchemaError):
            pass
        return None
