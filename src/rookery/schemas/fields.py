"""The names of a schema's outermost fields, as Confluent's registry counts them where names are reserved."""

from rookery.schemas.interface import ParsedSchema


def top_level_fields(schema: ParsedSchema) -> set[str]:
    """Of Avro's record, of JSON Schema's properties, of all of Protobuf's outermost messages (without their oneofs)."""
    raw = schema.raw
    match schema.schema_type:
        case "AVRO":
            is_record = isinstance(raw, dict) and raw.get("type") == "record"
            return {field["name"] for field in raw["fields"]} if is_record else set()
        case "JSON":
            properties = raw.get("properties") if isinstance(raw, dict) else None
            return set(properties) if isinstance(properties, dict) else set()
        case "PROTOBUF":
            return {field.name for message in raw.messages for field in message.fields}
