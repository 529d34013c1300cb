"""JSON Schema, drafts 04, 06, 07, 2019-09 and 2020-12: parsing, canonical text, compatibility."""

from rookery.schemas.json_schema.comparison import check
from rookery.schemas.json_schema.schema import JSONSchema, parse
from rookery.schemas.json_schema.schema import parse as parse_registered

__all__ = ["JSONSchema", "check", "parse", "parse_registered"]
